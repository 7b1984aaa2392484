"""Penalties that an arm does not keep to: how many completions it takes to find that, and false alarms.

    python benchmarks/penalties.py [--seeds 0,1] [--lists 5,20] [--tokens 64] [--most 64]

The engine in numpy of tests/worlds (bf16 rounding, batches of other shapes) makes a baseline and an arm with another
shape of batches. Columns: the fewest completions, of 4, 8, 16, …, in which the verdict is DIVERGED for an arm that
ignores its penalties and for one that counts two tokens late (as one that speculates may), by at least half of the
seeds; and, with as many completions as there are, corrupt findings of an arm that keeps to them, and its verdicts.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from worlds.choosing import Lapse
from worlds.faults import Fault
from worlds.model import FLAT
from worlds.world import BASE, World, speculating

from parity.comparator import compare
from parity.records import Capture, Scores, Verdict

ASKED: Sequence[dict[str, float]] = (
    *({"repetition_penalty": value} for value in (1.05, 1.1, 1.2, 1.5)),
    *({"presence_penalty": value} for value in (0.1, 0.5, 1.0, 2.0)),
    *({"frequency_penalty": value} for value in (0.1, 0.5, 1.0, 2.0)),
    {"repetition_penalty": 1.1, "presence_penalty": 0.3, "frequency_penalty": 0.2},
)


def first(capture: Capture, count: int) -> Capture:
    """The capture of the first `count` completions alone."""
    return replace(capture, completions=dict(list(capture.completions.items())[:count]))


def needed(a: Capture, b: Capture, scores: Scores, most: int) -> int | None:
    """The fewest completions, doubling, in which the arm is found."""
    count = 4
    while count <= most:
        if compare(first(a, count), first(b, count), scores).verdict is Verdict.DIVERGED:
            return count
        count *= 2
    return None


def middle(found: Sequence[int | None]) -> str:
    """What at least half of the seeds need."""
    ordered = sorted(found, key=lambda one: one if one is not None else 1 << 30)
    value = ordered[(len(ordered) - 1) // 2]
    return "–" if value is None else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--lists", default="5,20")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--most", type=int, default=64)
    options = parser.parse_args()
    tops = [int(one) for one in options.lists.split(",")]
    print(f"{'penalty':44s} list  ignored   late  accused  tokens  verdicts of the clean arm")
    for asked in ASKED:
        ran: dict[int, dict[str, list[Any]]] = {top: {"ignored": [], "late": [], "clean": []} for top in tops}
        tokens = 0
        for seed in map(int, options.seeds.split(",")):
            world = World(seed, FLAT)
            rules = {"max_tokens": options.tokens, "ignore_eos": True, **asked}
            requests, arm = world.requests(options.most), speculating(2)
            baseline = world.run(requests, BASE, **rules).capture
            lapses = {"ignored": Lapse(values=dict.fromkeys(asked)), "late": Lapse(late=2)}
            arms = {
                name: world.run(
                    requests, arm, fault=Fault(name, "", "rules", (), lapse=lapse, share=1.0), **rules
                ).capture
                for name, lapse in lapses.items()
            }
            clean = world.run(requests, arm, **rules).capture
            tokens += len(clean.tokens.flat)
            for top in tops:
                for name, made in arms.items():
                    scores = world.score(baseline, made, top=top)
                    ran[top][name].append(needed(baseline, made, scores, options.most))
                ran[top]["clean"].append(compare(baseline, clean, world.score(baseline, clean, top=top)))
        for top in tops:
            found = ran[top]
            accused = sum(len(one.corrupt) for one in found["clean"])
            verdicts = dict(Counter(str(one.verdict) for one in found["clean"]))
            name = " ".join(f"{name}={value:g}" for name, value in asked.items()).replace("_penalty", "")
            late, ignored = middle(found["late"]), middle(found["ignored"])
            print(f"{name:44s} {top:4d} {ignored:>8s} {late:>6s} {accused:8d} {tokens:7d}  {verdicts}", flush=True)


if __name__ == "__main__":
    main()
