"""Make the recordings of `parity demo` from the directory of a run with a positive control.

    parity run --backends cpu --prompts PROMPTS --max-tokens 48 --positive-control accepted_counts:rate=0.6 --out RUN
    python tools/make_demo.py RUN

Nothing is changed in what the engine said. Left out are the machine's own paths.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parent.parent / "parity" / "demo"
LOCAL = ("LD_PRELOAD", "PYTHONPATH")
MOST_BYTES = 300_000


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(name: str, rows: list[dict[str, Any]]) -> int:
    for row in rows:
        if row.get("record") == "header":
            variables = row.get("environment", {}).get("variables", {})
            for local in LOCAL:
                variables.pop(local, None)
    data = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    path = DEMO / f"{name}.jsonl.gz"
    path.write_bytes(gzip.compress(data.encode(), 9, mtime=0))  # the same bytes each time
    return path.stat().st_size


def main(run: Path) -> None:
    broken = list(run.glob("cpu-mtp-control-*.jsonl"))
    if len(broken) != 1:
        sys.exit(f"{run}: expected one capture of a positive control, found {len(broken)}")
    DEMO.mkdir(exist_ok=True)
    sources = {
        "base": run / "cpu-base.jsonl",
        "mtp": run / "cpu-mtp.jsonl",
        "mtp-broken": broken[0],
        "scores": run / "scores.jsonl",
    }
    total = sum(write(name, records(path)) for name, path in sources.items())
    print(f"{total} bytes in {DEMO}")
    if total > MOST_BYTES:
        sys.exit(f"that is more than {MOST_BYTES}: fewer prompts or tokens")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
