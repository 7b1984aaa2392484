"""Draw tokens from the small checkpoints of `parity model tiny` on vLLM's CPU build, and see sound arms in all views.

    python benchmarks/tiny_drawn.py [--seeds 2] [--first-seed 0] [--only '0.7'] [--out DIRECTORY] [qwen3_next …]

Three arms `base` of each checkpoint: batches of 64 and of 6 requests with one noise, and batches of 6 with another.
64 prompts, 96 tokens, five logprobs listed, all scored by the third arm's engine, and what is suspicious once more
after other prompts, as `parity run` does. Each pair of arms is judged in each view of `worlds.seen_as`, none of which
may accuse. No `mtp`: the CPU build draws wrong tokens after a rejection (`reports/sampled-mtp-cpu`).

Prints a Markdown table; to stderr whom a view accuses, and why. With `--out` the same command goes on after a stop.
The exit code is the number of pairs in which somebody is accused. Three engine starts a checkpoint and way to draw.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from tiny_models import FAMILIES, run_of, table
from worlds import Truth
from worlds.seen_as import VIEWS
from worlds.trials import Trial, judge

from parity.capture import read_capture, read_scores
from parity.comparator import CompareOptions
from parity.pipeline.crossing import crossed
from parity.pipeline.directory import RunDirectory
from parity.records import Capture
from parity.tiny import write_checkpoint

DRAWS: dict[str, tuple[str, ...]] = {
    "1": ("--temperature", "1"),
    "0.7": ("--temperature", "0.7"),
    "1, top-p 0.9, top-k 40": ("--temperature", "1", "--top-p", "0.9", "--top-k", "40"),
    "0.7, three samples": ("--temperature", "0.7", "--n", "3"),
}
"""Options of `parity run`."""

ASKED = ("--suite", "mixed", "--max-tokens", "96", "--logprobs", "5", "--variants", "base", "--no-rehearse")

ARMS = {"wide": "replay/wide", "small": "replay/small", "other": "cpu/base"}
"""The arms of a trial, and their names in the run that scores them."""


def collect(family: str, model: Path, out: Path, draw: Sequence[str]) -> Path:
    """The run in which all three arms are scored; made where it is not there. Raises RuntimeError where one fails."""
    drawn, scored = out / "drawn", out / "scored"
    made = {name: drawn / f"cpu-base+seqs={size}.jsonl" for name, size in (("wide", 64), ("small", 6))}
    replays = [f"--replay={name}={path}" for name, path in made.items()]
    for where, options in (
        (drawn, ["--vary", "max_num_seqs=64,6", "--score", "none", *draw]),
        (scored, ["--max-num-seqs", "6", "--seed", "1", "--baseline", "cpu/base", *replays, *draw]),
    ):
        if not (where / "result.json").exists():
            done = run_of(family, model, where, *ASKED, *options)
            if not (where / "result.json").exists():
                raise RuntimeError(f"{where.parent.name}: exit code {done.returncode}: {done.stderr[-400:]}")
    return scored


def trials(run: Path, seed: int) -> Iterator[Trial]:
    """Each pair of the arms, as arms of one backend."""
    scores, arms = read_scores(run / "scores.jsonl"), dict[str, Capture]()
    for name, arm in ARMS.items():
        capture = read_capture(run / f"{arm.replace('/', '-')}.jsonl")
        header = replace(capture.header, arm=f"cpu/{name}", backend="cpu", variant=name)
        arms[name] = replace(capture, header=header)
    named = {was: f"cpu/{name}" for name, was in ARMS.items()}
    scores = {key._replace(arm=named[key.arm]): top for key, top in scores.items()}
    answers = {
        replace(one, arm=named[one.arm]): top
        for one, top in crossed(RunDirectory(run), frozenset(ARMS.values())).items()
    }
    for baseline, candidate in combinations(ARMS, 2):
        pair = arms[baseline], arms[candidate]
        names = {one.header.arm for one in pair}
        of_pair = {key: top for key, top in scores.items() if key.arm in names}
        asked = {one: top for one, top in answers.items() if one.arm in names}
        name = f"{run.parent.name}, {baseline} and {candidate}"
        yield Trial(name, seed, *pair, of_pair, Truth(), CompareOptions(), asked)


def judged(trial: Trial, found: dict[str, Counter[str]]) -> bool:
    """Does a view of it accuse? Verdicts are counted in `found`."""
    accuses = False
    for view, seen in VIEWS.items():
        result = judge(seen(trial)).result
        found[view][str(result.verdict)] += 1
        if result.corrupt:
            accuses = True
            kinds: dict[str, Any] = Counter(str(one.kind) for one in result.corrupt)
            print(f"{trial.name}, {view}: {dict(kinds)}", file=sys.stderr, flush=True)
    return accuses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=["qwen3_next", "deepseek_v3", "glm4_moe", "mimo"])
    parser.add_argument("--out", type=Path, help="Where checkpoints and runs go. [default: a temporary directory]")
    parser.add_argument("--seeds", type=int, default=2, help="checkpoints of each family")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="ways to draw that have this in their names")
    args = parser.parse_args()
    if unknown := set(args.families) - set(FAMILIES):
        parser.error(f"unknown family {min(unknown)}; known: {', '.join(FAMILIES)}")
    found: dict[str, Counter[str]] = {name: Counter() for name in VIEWS}
    accused = asked = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = args.out or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            for family in args.families:
                model = home / f"{family}-{seed}"
                if not model.exists():
                    write_checkpoint(family, model, seed=seed)
                for name, draw in DRAWS.items():
                    if args.only not in name:
                        continue
                    out = home / f"{family}-{seed}, {name}"
                    out.mkdir(exist_ok=True)
                    for trial in trials(collect(family, model, out, draw), seed):
                        accused += judged(trial, found)
                        asked += len(trial.crossed)
    print(table(found))
    print(f"\nquestions about strange rows, in all pairs: {asked}")
    return accused


if __name__ == "__main__":
    sys.exit(main())
