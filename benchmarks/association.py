"""How often `parity why` puts the true condition first, on recorded steps of a real engine.

    python benchmarks/association.py FILE.steps… [--draws 100] [--null 1000]

Faults are drawn among the row-steps in which a condition holds, 3, 5 and 10 of them; then among all row-steps, where
any corrected p below 0.001 is a false alarm. Columns: the condition's share of the row-steps, then for each number of
faults how often it came first (or was among those that the data cannot tell from the first), and how often with a
corrected p below 0.001.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

from parity.capture.steps import read_steps
from parity.explain.association import associate
from parity.explain.ledger import Ledger, Mask
from parity.explain.predicates import asked_of

CONDITIONS = ("moved", "moved before", "mixed", "position % 16 == 0", "all accepted", "rejected", "slot reused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--null", type=int, default=1000)
    args = parser.parse_args()
    masks: list[dict[str, Mask]] = []
    emits: list[Mask] = []
    for file in args.files:
        for steps in read_steps(file):
            ledger = Ledger(steps)
            masks.append(asked_of(ledger))
            emits.append(ledger.emitted > 0)
    conditions = {name: np.concatenate([one[name] for one in masks]) for name in masks[0]}
    among = np.concatenate(emits)
    print(f"{len(among)} row-steps, {int(among.sum())} emit, {len(conditions)} conditions")
    for name in CONDITIONS:
        able = np.flatnonzero(conditions[name] & among).tolist()
        line = f"{name:20s} {len(able) / among.sum():6.1%}"
        for count in (3, 5, 10):
            first = sure = 0
            for seed in range(args.draws if len(able) >= count else 0):
                faults = np.array(sorted(random.Random(seed).sample(able, count)))
                found = associate(conditions, faults, among)
                first += (name,) in (found.ranked[0].names, *found.ranked[0].same)
                sure += found.sure
            line += f"   {count:2d}: {first / args.draws:4.0%} {sure / args.draws:4.0%}"
        print(line, flush=True)
    able = np.flatnonzero(among).tolist()
    draws = (np.array(sorted(random.Random(seed).sample(able, 5))) for seed in range(args.null))
    alarms = sum(associate(conditions, faults, among).sure for faults in draws)
    print(f"random faults: {alarms} alarms in {args.null} draws of 5")


if __name__ == "__main__":
    main()
