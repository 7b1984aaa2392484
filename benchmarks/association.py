"""How often `parity why` puts the true condition first, on recorded steps of a real engine.

    python benchmarks/step_captures.py FOLDER --first-seed 100
    python benchmarks/association.py FOLDER/*/*/mtp.steps [--draws 100] [--null 1000] [--faults 3 5 10] [--limit]

Faults are drawn among the row-steps in which a condition holds, 3, 5 and 10 of them, each in a completion of its
own; what comes after a fault in its completion is left out, as `parity why` does. Then the same with two conditions
that must both hold, with two causes that share the faults, and among all row-steps, where any corrected p below
0.001 is a false alarm. `--limit` instead: how often any rule could name the true one of the single conditions, at
the worst of them (`limit`).

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
from parity.explain.hypotheses import PRIOR, Floats, Form
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


@dataclass(frozen=True)
class Drawn:
    """Faults drawn under each condition that the row-steps can tell from the others."""

    names: list[str]
    truth: Ints
    """Of each draw the condition that it was drawn under."""
    faults: list[list[int]]
    likelihood: Floats
    """Of each draw under each condition, in proportion, shape (draws, conditions)."""


def drawn_under_each(steps: Steps, count: int, draws: int) -> Drawn:
    names: list[str] = []
    able: list[list[int]] = []
    seen: set[bytes] = set()
    for name, mask in steps.conditions.items():
        rows = steps.able(mask)
        key = (mask & steps.emits).tobytes()
        if key in seen or len(rows) == int(steps.emits.sum()) or len(set(steps.request[rows].tolist())) < count:
            continue
        seen.add(key)
        names.append(name)
        able.append(rows)
    masks, sizes = np.array([steps.conditions[name] for name in names]), np.array([len(rows) for rows in able])
    truth, faults = [], []
    for at, rows in enumerate(able):
        for seed in range(draws):
            some = drawn(steps, rows, count, f"{seed}:0")
            assert some is not None
            truth.append(at)
            faults.append(some)
    inside = np.array([masks[:, some].all(axis=1) for some in faults])
    return Drawn(names, np.array(truth), faults, np.where(inside, (sizes.min() / sizes) ** count, 0.0))


def limit(found: Drawn, most: float, rounds: int = 300) -> tuple[float, dict[str, float]]:
    """No rule that names `most` conditions on average has the true one among them more often than this, whichever of
    the conditions is true; and the prior under which that is so.

    A rule's rate at its worst condition is no more than its rate over any prior, and no rule does better over a prior
    than to name what is likeliest then (Wald 1950, Statistical Decision Functions: least favourable priors). Such a
    prior is looked for by raising what is named least. Pairs of conditions, of which nothing is drawn here, would make
    it harder."""
    count = len(found.names)
    prior, best, worst = np.full(count, 1 / count), 1.0, np.full(count, 1 / count)
    per = np.bincount(found.truth, minlength=count)
    for _ in range(rounds):
        posterior = found.likelihood * prior
        posterior /= posterior.sum(axis=1, keepdims=True)
        weight = np.repeat((prior / per)[found.truth], count)
        order = np.argsort(-posterior.ravel(), kind="stable")
        named = np.zeros(posterior.size, dtype=bool)
        named[order[: 1 + int(np.searchsorted(np.cumsum(weight[order]), most))]] = True
        hit = named.reshape(posterior.shape)[np.arange(len(found.truth)), found.truth]
        rates = np.bincount(found.truth, weights=hit, minlength=count) / per
        rate = float((rates * prior).sum())
        if rate < best:
            best, worst = rate, prior
        prior = prior * np.exp(rate - rates)
        prior = prior / prior.sum()
    return best, {found.names[at]: float(worst[at]) for at in np.argsort(-worst)[:5]}


def limits(steps: Steps, count: int, draws: int) -> None:
    """`limit` beside what `parity why` does."""
    found = drawn_under_each(steps, count, draws)
    first, named, together = (np.zeros(len(found.names)) for _ in range(3))
    for truth, faults in zip(found.truth.tolist(), found.faults, strict=True):
        best = steps.associated(faults).ranked[0]
        names = [set(one) for one in (best.names, *best.same)]
        first[truth] += names[0] == {found.names[truth]}
        named[truth] += {found.names[truth]} in names
        together[truth] += len(names)
    print(f"{count} faults, {len(found.names)} conditions, {draws} draws of each")
    for what, values in (("first", first), ("first or named with it", named)):
        worst = [f"{found.names[at]} {values[at] / draws:.0%}" for at in np.argsort(values)[:5]]
        print(f"{what}: {values.mean() / draws:.1%} on average; least: {', '.join(worst)}")
    many = float(together.mean() / draws)
    print(f"conditions named: {many:.2f} on average")
    for most in (1.0, many):
        print(
            f"no rule that names {most:.2f} on average is right in more than {limit(found, most, 1)[0]:.1%} on average"
        )
    for most in (1.0, 1.5, 2.0):
        rate, prior = limit(found, most)
        hard = ", ".join(f"{name} {share:.2f}" for name, share in prior.items())
        print(f"no rule that names {most:g} on average is right in more than {rate:.1%} at each (prior: {hard})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--null", type=int, default=1000)
    parser.add_argument("--faults", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--limit", action="store_true", help="what no rule can do, beside what is done")
    args = parser.parse_args()
    steps = read(args.files)
    if args.limit:
        for count in args.faults:
            limits(steps, count, args.draws)
        return
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
