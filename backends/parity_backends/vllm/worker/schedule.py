"""When each request of a round joins, and which are aborted: from the plan's churn and the round's number."""

from __future__ import annotations

import math
import random
from typing import Any, Optional

from parity_backends.worker.asked import Churn


class Join:
    """One request's part in a round: its place in the plan, its batch, when it joins, after how many tokens it goes."""

    def __init__(self, index: int, batch: int, at: float) -> None:
        self.index = index
        self.batch = batch
        self.at = at
        """Steps (or seconds) since the batch began."""
        self.abort_after: Optional[int] = None


def round_schedule(churn: Churn, names: list[str], round_: int) -> list[Join]:
    """Who joins when, in the order of joining; the same for the same churn, names and round, everywhere.

    `churn` is the plan's object of that name (parity/plan/churn.py says what each setting means); an empty one
    gives all requests at once in the plan's order.
    """
    seed = churn.get("seed", 0)
    order = list(range(len(names)))
    needle = names.index(churn["needle"]) if churn.get("needle") in names else None
    if churn.get("shuffle") or (needle is not None and round_ > 0):
        shuffle(order, draws(seed, round_, "order"))
    if needle is not None and round_ == 0:
        order.remove(needle)
        batches = [[needle], *cut(order, churn.get("batch_sizes"), draws(seed, round_, "batches"))]
    else:
        batches = cut(order, churn.get("batch_sizes"), draws(seed, round_, "batches"))
    arrivals = draws(seed, round_, "arrivals")
    joins = []
    for number, batch in enumerate(batches):
        at = 0.0
        for place, index in enumerate(batch):
            if place and churn.get("arrival") == "fixed":
                at += churn["every"]
            elif place and churn.get("arrival") == "poisson":
                at += -math.log(1.0 - arrivals.random()) * churn["every"]
            joins.append(Join(index, number, at))
    choose_aborts(churn, joins, needle, draws(seed, round_, "aborts"))
    return joins


def choose_aborts(churn: Churn, joins: list[Join], needle: Optional[int], draw: random.Random) -> None:
    share = churn.get("abort_share", 0.0)
    free = [join for join in joins if join.index != needle]
    if not share or not free:
        return
    low, high = churn.get("abort_after", (1, 32))
    shuffle(free, draw)
    for join in free[: max(1, round(share * len(free)))]:
        join.abort_after = low + int(draw.random() * (high - low + 1))


def draws(seed: int, round_: int, what: str) -> random.Random:
    """A generator of its own for each question, so that asking one more leaves the others as they were.

    Only `.random()` of it is used: the other methods changed between Python versions.
    """
    return random.Random("%s/%s/%s" % (seed, round_, what))


def shuffle(items: list[Any], draw: random.Random) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = int(draw.random() * (last + 1))
        items[last], items[other] = items[other], items[last]


def cut(order: list[int], sizes: Any, draw: random.Random) -> list[list[int]]:
    """`order` in pieces of random size (the last may be smaller); one piece where no sizes are given."""
    if not sizes:
        return [order] if order else []
    low, high = sizes
    pieces = []
    while order:
        size = low + int(draw.random() * (high - low + 1))
        pieces.append(order[:size])
        order = order[size:]
    return pieces
