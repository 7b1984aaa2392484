"""The part `habits` of benchmarks/wide.py: who is accused where servers have several habits at once?

Random sets of the habits of `tests/server_habits.py`, two (`--pairs`) and three (`--triples`) of them, on clean arms of
small worlds and of the planted set, and on one planted fault; greedy and drawn, scored or not, with and without the
tokenizer, by a server or by somebody's script, at one arm or both. Which sets a server can have, and in which order it
does things, is data: `tests/habit_sets.py`. Each attempt is drawn from its number alone.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter

from habit_sets import Attempt, answer, attempts

BROKE = "traceback"
EVERY = 100
"""Attempts after which it is said how far it is."""


def habits(pairs: int, triples: int, first: int) -> int:
    """Prints who was accused; how many attempts that were."""
    bad = 0
    for name, count, size in (("pairs", pairs, 2), ("triples", triples, 3)):
        verdicts: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        for number, one in enumerate(attempts(first, count, size), 1):
            verdict, found = _tried(one)
            verdicts[verdict] += 1
            kinds.update(found)
            if found:
                bad += 1
                print(f"{', '.join(found)}: {one}", flush=True)
            if number % EVERY == 0:
                print(f"{time.strftime('%H:%M:%S')} {number} of {count} {name}", file=sys.stderr, flush=True)
        told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        wrong = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "nobody"
        print(f"{count} {name}, from {first} on: {told}; wrongly accused: {wrong}", flush=True)
    return bad


def _tried(one: Attempt) -> tuple[str, list[str]]:
    """(the verdict, kinds of findings that nobody should have)."""
    try:
        found = answer(one)
    except Exception:  # noqa: BLE001 - the next attempt is another one
        traceback.print_exc()
        return BROKE, [BROKE]
    return str(found.verdict), [*found.accused, *(["PASS of a fault"] if found.missed else [])]
