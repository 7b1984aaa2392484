"""Run the small checkpoints of `parity model tiny` on vLLM's CPU build, `base` and `mtp`, and say how each goes.

    python benchmarks/tiny_models.py [mimo glm4_moe …] [--out DIRECTORY]

Prints a Markdown table: what each family's run said, how many drafts were accepted, or the engine's own last words.
Two engine starts a family. The exit code is the number of families that ran otherwise than `parity/tiny/families.py`
says: did not though they should, or did though a reason is given there why they do not.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from parity.tiny import FAMILIES, write_checkpoint

VERDICTS = {0: "PASS", 1: "DIVERGED", 4: "INCONCLUSIVE"}


def read(capture: Path) -> tuple[dict[str, list[int]], dict[str, Any]]:
    """Token ids by request, and the counters; nothing where there is no capture."""
    if not capture.is_file():
        return {}, {}
    records = [json.loads(line) for line in capture.read_text(encoding="utf-8").splitlines()]
    streams = {record["request"]: record["token_ids"] for record in records if record["record"] == "completion"}
    return streams, records[-1].get("counters") or {}


def last_words(log: Path) -> str:
    """The engine's error: the last that its log names, but for a module that is missing, which the last came of."""
    if not log.is_file():
        return "no log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [found.group() for line in lines if (found := re.search(r"\w+Error: .+", line))]
    missing = [error for error in errors if error.startswith("ModuleNotFoundError")]
    return (missing or errors[-1:] or [line.strip() for line in lines[-1:]] or ["nothing"])[0][:160]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--out", type=Path, help="Where checkpoints and runs go. [default: a temporary directory]")
    args = parser.parse_args()
    if unknown := set(args.families) - set(FAMILIES):
        parser.error(f"unknown family {min(unknown)}; known: {', '.join(FAMILIES)}")
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = args.out or Path(temporary)
        print("| family | verdict | identical | drafts accepted | remark |\n|---|---|---|---|---|", flush=True)
        for name in args.families:
            model, run = home / name, home / f"run-{name}"
            if not model.exists():
                write_checkpoint(name, model)
            command = [sys.executable, "-m", "parity", "run", "--backends", "cpu", "--model", str(model), "-k", "1"]
            command += ["--suite", "smoke", "--max-tokens", "16", "--db", str(home / "db"), "--out", str(run), "--json"]
            command += [f"--engine={key}={json.dumps(value)}" for key, value in FAMILIES[name].on_cpu.items()]
            done = subprocess.run(command, capture_output=True, text=True)
            base, _ = read(run / "cpu-base.jsonl")
            mtp, counted = read(run / "cpu-mtp.jsonl")
            same = f"{sum(base.get(key) == tokens for key, tokens in mtp.items())} of {len(mtp)}" if mtp else "–"
            accepted = f"{counted.get('accepted_tokens')} of {counted.get('draft_tokens')}" if counted else "–"
            verdict, remark = VERDICTS.get(done.returncode, f"exit code {done.returncode}"), ""
            if runs := done.returncode in VERDICTS:
                remark = "; ".join(json.loads(done.stdout)["reasons"]) if done.returncode else ""
            else:
                logs = [run / "logs" / f"cpu-{variant}.log" for variant in ("mtp", "base")]
                remark = last_words(next((log for log in logs if log.is_file()), logs[0])).replace("|", "/")
            if runs != (FAMILIES[name].not_on_cpu is None):
                bad += 1
            print(f"| {name} | {verdict} | {same} | {accepted} | {remark} |", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
