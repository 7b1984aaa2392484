"""Run the embedded checkpoint on several versions of vLLM's CPU build and compare all of them with one.

    python benchmarks/versions.py [0.27.1 0.29.0 0.31.0 0.32.0] [--suite smoke] [--max-tokens 32]

The first use of a version builds its environment (2.5 GB each). The last version named is the baseline. Prints a
Markdown table; docs/versions.md has one. Exit code: that of `parity run` (0: all PASS).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VERSIONS = ("0.27.1", "0.29.0", "0.31.0", "0.32.0")


def rows(run: Path) -> list[dict[str, Any]]:
    """What the captures of a run directory say of each arm."""
    found = []
    baseline: dict[tuple[Any, ...], Any] = {}
    captures = sorted(run.glob("cpu@*.jsonl"), reverse=True)
    for path in sorted(captures, key=lambda path: "base" not in path.name):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        header, footer = records[0], records[-1]
        streams = {
            (record["request"], record["round"], record["sample"]): record["token_ids"]
            for record in records
            if record["record"] == "completion"
        }
        baseline = baseline or streams
        counters = footer.get("counters") or {}
        seconds = counters.get("generate_seconds") or 0
        found.append(
            {
                "arm": header["arm"],
                "versions": header["environment"]["versions"],
                "completions": len(streams),
                "identical": sum(baseline.get(key) == tokens for key, tokens in streams.items()),
                "drafts": counters.get("draft_tokens"),
                "accepted": counters.get("accepted_tokens"),
                "start": counters.get("engine_start_seconds"),
                "speed": round(counters.get("tokens", 0) / seconds) if seconds else None,
                "dropped": sorted(header["engine"].get("dropped") or {}),
            }
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=list(VERSIONS))
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--max-tokens", default="32")
    parser.add_argument("--run", type=Path, help="Only print the table of this run directory.")
    args = parser.parse_args()
    code = 0
    run = args.run
    if run is None:
        backends = ",".join(f"cpu@{version}" for version in reversed(args.versions))
        run = Path(tempfile.mkdtemp(prefix="parity-versions-")) / "run"
        command = [sys.executable, "-m", "parity", "run", "--backends", backends, "--suite", args.suite]
        code = subprocess.run([*command, "--max-tokens", args.max_tokens, "--out", str(run)]).returncode
    print("| arm | torch | transformers | identical | drafts accepted | left out | start, s | tokens/s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows(run):
        accepted = f"{row['accepted']} of {row['drafts']}" if row["drafts"] else "–"
        print(
            f"| {row['arm']} | {row['versions'].get('torch')} | {row['versions'].get('transformers')} "
            f"| {row['identical']} of {row['completions']} | {accepted} | {', '.join(row['dropped']) or '–'} "
            f"| {row['start']} | {row['speed']} |"
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
