"""Where the time of the main job goes: starts, generation, scoring; and what scoring costs of the generation it judges.

    python benchmarks/main_job.py [--runs 2] [--backends cpu] [--json FILE] [-- OPTIONS of parity run]

Runs `parity run` as `make demo` does, each time with a directory and a database of its own. The first run on a machine
compiles kernels and fills caches; the last one here is warm. Seconds are the engines' own, from the footers of captures
and scores; "the rest" is what no arm accounts for: the plan, checks, comparing, what ends engines.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from parity.capture.lines import loads


def footer(path: Path) -> dict[str, Any]:
    """The counters of a capture or a scores file."""
    last: dict[str, Any] = loads(path.read_bytes().splitlines()[-1])
    counters: dict[str, Any] = last["counters"]
    return counters


def measured(backends: str, options: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "parity", "run", "--backends", backends, *options]
        began = time.perf_counter()
        with (folder / "log").open("wb") as log:
            code = subprocess.run(
                [*command, "--out", str(folder / "run"), "--db", str(folder / "parity.db")],
                stdout=log, stderr=log, check=False,
            ).returncode  # fmt: skip
        wall = time.perf_counter() - began
        if code not in (0, 1, 4):
            raise SystemExit(f"parity ended with {code}:\n{(folder / 'log').read_text()[-2000:]}")
        captures = [path for path in (folder / "run").glob("*.jsonl") if path.name != "scores.jsonl"]
        arms = {path.stem: footer(path) for path in sorted(captures)}
        scores = footer(folder / "run" / "scores.jsonl")
    starts = sum(arm["engine_start_seconds"] for arm in arms.values())
    generation = sum(arm["generate_seconds"] for arm in arms.values())
    return {
        "wall_s": wall,
        "starts_s": starts,
        "generation_s": {name: arm["generate_seconds"] for name, arm in arms.items()},
        "scoring_s": scores["score_seconds"],
        "scored_tokens": scores["scored_tokens"],
        "rest_s": wall - starts - generation - scores["score_seconds"],
        "scoring_of_generation": scores["score_seconds"] / generation,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--backends", default="cpu")
    parser.add_argument("--json", dest="json_file", type=Path)
    parser.add_argument("options", nargs="*", help="of parity run")
    asked = parser.parse_args()
    results = []
    for number in range(asked.runs):
        results.append(one := measured(asked.backends, asked.options))
        arms = ", ".join(f"{name} {seconds:.1f}" for name, seconds in one["generation_s"].items())
        print(
            f"run {number + 1}: {one['wall_s']:.1f} s; starts {one['starts_s']:.1f}, generation {arms}, scoring "
            f"{one['scoring_s']:.2f} ({one['scored_tokens']} tokens), the rest {one['rest_s']:.1f}; scoring is "
            f"{one['scoring_of_generation']:.3f} of the generation it judges",
            flush=True,
        )
    if asked.json_file:
        asked.json_file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
