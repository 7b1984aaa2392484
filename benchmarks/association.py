"""How often `parity why` puts the true condition first, on recorded steps of a real engine.

    python benchmarks/step_captures.py FOLDER --first-seed 100
    python benchmarks/association.py FOLDER/*/*/mtp.steps [--draws 100] [--null 1000] [--faults 3 5 10]

Faults are drawn among the row-steps in which a condition holds, 3, 5 and 10 of them, each in a completion of its
own; what comes after a fault in its completion is left out, as `parity why` does. Then the same with two conditions
that must both hold, with two causes that share the faults, and among all row-steps, where any corrected p below
0.001 is a false alarm.

Columns: the condition's share of the row-steps, then for each number of faults how often it alone came first / how
often it came first or was named with the first / with how many others on average / how often with a corrected p
below 0.001. Of two that must both hold, at last the same with as many faults as it takes until the two explain them
better than the likelier half alone (`faults_for_both`): where the other half nearly always holds, that is many.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.capture.steps import Ints, read_steps
from parity.explain.association import SURE, Associated, associate
from parity.explain.hypotheses import PRIOR, Form
from parity.explain.ledger import Ledger, Mask
from parity.explain.predicates import asked_of, prior_of

CONDITIONS = ("moved", "moved before", "mixed", "position % 16 == 0", "all accepted", "rejected", "first decode",
              "taken over", "preempted", "slot reused")  # fmt: skip
BOTH = (("moved", "mixed"), ("all accepted", "position % 16 == 0"), ("rejected", "mixed"), ("moved", "all accepted"))
TWO = (("moved", "position % 16 == 0"), ("mixed", "first decode"), ("new", "position % 16 == 0"))


@dataclass(frozen=True)
class Steps:
    """Row-steps of all files: their conditions, which of them emit, and the completion of each."""

    conditions: dict[str, Mask]
    emits: Mask
    request: Ints

    def able(self, mask: Mask) -> list[int]:
        found: list[int] = np.flatnonzero(mask & self.emits).tolist()
        return found

    def associated(self, faults: Sequence[int]) -> Associated:
        """As `parity why`: up to the first fault of each completion."""
        limit = np.full(int(self.request.max()) + 1, len(self.emits))
        for at in faults:
            limit[self.request[at]] = min(at, limit[self.request[at]])
        among = self.emits & (np.arange(len(self.emits)) <= limit[self.request])
        return associate(self.conditions, np.array(sorted(faults)), among)


def read(files: Sequence[Path]) -> Steps:
    masks: list[dict[str, Mask]] = []
    emits, requests, offset = [], [], 0
    for file in files:
        for steps in read_steps(file):
            ledger = Ledger(steps)
            masks.append(asked_of(ledger))
            emits.append(ledger.emitted > 0)
            requests.append(ledger.request + offset)
            offset += int(ledger.request.max()) + 1
    names = [name for name in masks[0] if all(name in one for one in masks)]
    joined = {name: np.concatenate([one[name] for one in masks]) for name in names}
    return Steps(joined, np.concatenate(emits), np.concatenate(requests))


def drawn(steps: Steps, able: Sequence[int], count: int, seed: int | str) -> list[int] | None:
    """`count` of them, each of another completion; None where there are too few."""
    found: dict[int, int] = {}
    order = list(able)
    random.Random(seed).shuffle(order)
    for at in order:
        found.setdefault(int(steps.request[at]), at)
        if len(found) == count:
            return sorted(found.values())
    return None


def tried(steps: Steps, truth: tuple[str, ...], parts: Sequence[Mask], counts: Sequence[int], draws: int) -> None:
    """One line: faults shared among `parts` (one of them unless there are two causes)."""
    whole = np.logical_or.reduce(parts)
    able = [steps.able(part) for part in parts]
    line = f"{' '.join(truth):36s} {len(steps.able(whole)) / steps.emits.sum():6.1%}"
    for count in counts:
        alone = named = others = sure = done = 0
        for seed in range(draws):
            faults: list[int] | None = []
            for at, some in enumerate(able):
                share = count // len(able) + (at < count % len(able))
                taken = {int(steps.request[one]) for one in faults or ()}
                more = drawn(
                    steps, [one for one in some if int(steps.request[one]) not in taken], share, f"{seed}:{at}"
                )
                faults = None if more is None or faults is None else [*faults, *more]
            if faults is None:
                continue
            best = (found := steps.associated(faults)).ranked[0]
            done += 1
            alone += set(best.names) == set(truth)
            if any(set(names) == set(truth) for names in (best.names, *best.same)):
                named += 1
                others += len(best.same)
            sure += found.sure
        if done:
            line += f" | {count:2d}: {alone / done:4.0%} {named / done:4.0%} {others / max(1, named):4.1f}"
            line += f" {sure / done:4.0%}"
        else:
            line += f" | {count:2d}: too few"
    print(line, flush=True)


def faults_for_both(steps: Steps, pair: tuple[str, ...]) -> int:
    """The least number of faults, all where both hold, that two conditions explain better than the rarer one alone.

    Each fault speaks for the two by how much rarer they are together (the ratio of the shares); the two paid for the
    choice among all pairs (`parity.explain.hypotheses.PRIOR`)."""
    priors = [prior_of(name) for name in steps.conditions]
    total, squares = sum(priors), sum(one * one for one in priors)
    pairs = (total * total - squares) / 2
    one, other = (prior_of(name) for name in pair)
    alone = min((len(steps.able(steps.conditions[name])), prior_of(name)) for name in pair)
    both = len(steps.able(steps.conditions[pair[0]] & steps.conditions[pair[1]]))
    cost = math.log(PRIOR[Form.ONE] * alone[1] / total) - math.log(PRIOR[Form.BOTH] * one * other / pairs)
    return 1 + math.floor(cost / math.log(alone[0] / both))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--null", type=int, default=1000)
    parser.add_argument("--faults", type=int, nargs="+", default=[3, 5, 10])
    args = parser.parse_args()
    steps = read(args.files)
    masks = steps.conditions
    print(f"{len(steps.emits)} row-steps, {int(steps.emits.sum())} emit, {len(masks)} conditions")
    for name in CONDITIONS:
        tried(steps, (name,), [masks[name]], args.faults, args.draws)
    print("both:")
    for pair in BOTH:
        takes = faults_for_both(steps, pair)
        tried(steps, pair, [masks[pair[0]] & masks[pair[1]]], sorted({*args.faults, takes, 2 * takes}), args.draws)
    print("two causes:")
    for pair in TWO:
        tried(steps, pair, [masks[name] for name in pair], [one for one in args.faults if one >= 5], args.draws)
    for count in args.faults:
        draws = (drawn(steps, steps.able(steps.emits), count, f"null:{seed}") for seed in range(args.null))
        found = [steps.associated(faults) for faults in draws if faults is not None]
        alarms = sum(any(each.adjusted < SURE for each in one.ranked) for one in found)
        print(f"random faults, {count}: {alarms} alarms in {len(found)} draws")


if __name__ == "__main__":
    main()
