"""Run the small checkpoints of `parity model tiny` on vLLM's CPU build, `base` and `mtp`, and say how each goes.

    python benchmarks/tiny_models.py [mimo glm4_moe …] [--out DIRECTORY]
    python benchmarks/tiny_models.py --views [--seeds 4] [--first-seed 0] [--asked '--frequency-penalty 0.4'] [mimo …]

Prints a Markdown table: what each family's run said, how many drafts were accepted, or the engine's own last words.
Two engine starts a family. The exit code is the number of families that ran otherwise than `parity/tiny/families.py`
says: did not though they should, or did though a reason is given there why they do not.

`--views`: as many checkpoints of each family; greedy, 96 tokens of 64 prompts, five logprobs listed, all scored; base
against mtp, judged in each view of `worlds.seen_as`. Neither arm has a fault, and experts of random weights lie far
apart. `--asked`: more options of `parity run`; `--parts`: each run cut into runs of so many completions. The exit code
is the number of runs in which somebody is accused.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.capture import read_capture, read_scores
from parity.comparator import CompareOptions
from parity.tiny import FAMILIES, write_checkpoint

TESTS = Path(__file__).resolve().parents[1] / "tests"

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


def run_of(family: str, model: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parity", "run", "--backends", "cpu", "--model", str(model), *options]
    command += ["--db", str(out.parent / "db"), "--out", str(out), "--json"]
    command += [f"--engine={key}={json.dumps(value)}" for key, value in FAMILIES[family].on_cpu.items()]
    return subprocess.run(command, capture_output=True, text=True)


def views(families: Sequence[str], seeds: Sequence[int], home: Path, asked: Sequence[str], parts: int) -> int:
    """Runs that accuse somebody, though no arm has a fault, each cut into runs of so many completions."""
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]
    from worlds import Truth
    from worlds.seen_as import VIEWS
    from worlds.trials import Trial, in_parts, judge

    found: dict[str, Counter[str]] = {name: Counter() for name in VIEWS}
    accused: set[str] = set()
    for name in families:
        for seed in seeds:
            model, run = home / f"{name}-{seed}", home / f"run-{name}-{seed}"
            if not model.exists():
                write_checkpoint(name, model, seed=seed)
            if not (run / "result.json").exists():
                run_of(name, model, run, "-k", "2", "--suite", "mixed", "--max-tokens", "96", "--logprobs", "5",
                       "--score", "all", *asked)  # fmt: skip
            arms = read_capture(run / "cpu-base.jsonl"), read_capture(run / "cpu-mtp.jsonl")
            trial = Trial(run.name, seed, *arms, read_scores(run / "scores.jsonl"), Truth(), CompareOptions())
            for part, (view, seen) in itertools.product(in_parts(trial, parts), VIEWS.items()):
                result = judge(seen(part)).result
                found[view][str(result.verdict)] += 1
                if result.corrupt:
                    accused.add(part.name)
                    kinds = Counter(str(one.kind) for one in result.corrupt)
                    print(f"{part.name}, {view}: {dict(kinds)}", file=sys.stderr, flush=True)
    print(table(found))
    return len(accused)


def table(found: Mapping[str, Counter[str]]) -> str:
    """Verdicts by view, in Markdown."""
    lines = ["| view | runs | PASS | INCONCLUSIVE | DIVERGED |", "|---|---|---|---|---|"]
    for view, counts in found.items():
        each = [counts.total(), *(counts[one] for one in ("PASS", "INCONCLUSIVE", "DIVERGED"))]
        lines.append(f"| {view} | " + " | ".join(map(str, each)) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--out", type=Path, help="Where checkpoints and runs go. [default: a temporary directory]")
    parser.add_argument("--views", action="store_true", help="judge healthy arms with less and less known of them")
    parser.add_argument("--seeds", type=int, default=4, help="checkpoints of each family")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1024, help="with --views: completions of a run, at most")
    parser.add_argument("--asked", default="", help="with --views: more options of `parity run`")
    args = parser.parse_args()
    if unknown := set(args.families) - set(FAMILIES):
        parser.error(f"unknown family {min(unknown)}; known: {', '.join(FAMILIES)}")
    bad = 0
    if args.views:
        with tempfile.TemporaryDirectory() as temporary:
            seeds = range(args.first_seed, args.first_seed + args.seeds)
            return views([name for name in args.families if FAMILIES[name].not_on_cpu is None], seeds,
                         args.out or Path(temporary), shlex.split(args.asked), args.parts)  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        home = args.out or Path(temporary)
        print("| family | verdict | identical | drafts accepted | remark |\n|---|---|---|---|---|", flush=True)
        for name in args.families:
            model, run = home / name, home / f"run-{name}"
            if not model.exists():
                write_checkpoint(name, model)
            done = run_of(name, model, run, "-k", "1", "--suite", "smoke", "--max-tokens", "16")
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
