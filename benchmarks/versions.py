"""Run the embedded checkpoint on several versions of vLLM's CPU build and compare all of them with one.

    python benchmarks/versions.py [0.27.1 0.29.0 0.31.0 0.32.0] [--suite smoke] [--max-tokens 32]

One `parity run` over `cpu@VERSION`, `base` and `mtp` of each; what a version needs to run at all is known here and
asked of all. The first use of a version builds its environment (2.5 GB each). The last version named is the baseline.
Prints a Markdown table; docs/versions.md has one. Exit code: that of `parity run` (0: all PASS).
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VERSIONS = ("0.27.1", "0.29.0", "0.31.0", "0.32.0")

NEEDS = {"0.27.1": {"mamba_ssm_cache_dtype": "float32"}}
"""Settings without which a version does not run this checkpoint. All arms get them, so that all are asked the same.

0.27.1: its CPU kernel for Gated DeltaNet's prefill takes the recurrent state in float32 only.
"""


def command(versions: list[str], suite: str, max_tokens: str, out: Path) -> list[str]:
    """The `parity run` that compares them."""
    needed = {name: value for version in versions for name, value in NEEDS.get(version, {}).items()}
    words = [sys.executable, "-m", "parity", "run", "--suite", suite, "--max-tokens", max_tokens, "--out", str(out)]
    words += ["--backends", ",".join(f"cpu@{version}" for version in reversed(versions))]
    for name, value in needed.items():
        words += ["--engine", f"{name}={value}"]
    return words


def rows(run: Path) -> list[dict[str, Any]]:
    """What the captures of a run directory say of each arm, the baseline first."""
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    baseline: dict[tuple[Any, ...], Any] = {}
    found = []
    for arm in sorted((arm["name"] for arm in plan["arms"]), key=lambda name: name != plan["baseline"]):
        path = run / (arm.replace("/", "-") + ".jsonl")
        if not path.is_file():
            found.append({"arm": arm, "failed": True})
            continue
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
                "failed": False,
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
    parser.add_argument("--out", type=Path, help="Where the run goes. [default: a new temporary directory]")
    parser.add_argument("--run", type=Path, help="Only print the table of this run directory.")
    args = parser.parse_args()
    code = 0
    run = args.run
    if run is None:
        run = args.out or Path(tempfile.mkdtemp(prefix="parity-versions-")) / "run"
        words = command(args.versions, args.suite, args.max_tokens, run)
        print("$", shlex.join(["parity", *words[3:]]), file=sys.stderr, flush=True)
        code = subprocess.run(words, stdout=sys.stderr).returncode
        if not (run / "plan.json").is_file():
            return code
    print("| arm | torch | transformers | identical | drafts accepted | left out | start, s | tokens/s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows(run):
        if row["failed"]:
            print(f"| {row['arm']} | did not run | | | | | | |")
            continue
        accepted = f"{row['accepted']} of {row['drafts']}" if row["drafts"] else "–"
        print(
            f"| {row['arm']} | {row['versions'].get('torch')} | {row['versions'].get('transformers')} "
            f"| {row['identical']} of {row['completions']} | {accepted} | {', '.join(row['dropped']) or '–'} "
            f"| {row['start']} | {row['speed']} |"
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
