"""Delta debugging: the smallest part of a list that still does it.

ddmin of A. Zeller and R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Trans. Software
Engineering 28(2), 2002, with complements tried only where subsets cannot already have said it. Home-made: picire, the
library for this, had its last release in 2021, and shrinkray reduces bytes; what is hard here (when is a shot that did
not fail an answer?) is in the oracle, not in these lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

Test = Callable[[list[T]], bool]
"""Does this part still do it? What cannot be tried counts as no (Zeller's "unresolved")."""


def ddmin(items: Sequence[T], fails: Test[T]) -> list[T]:
    """A part of `items`, in their order, that still fails and loses that with any single item taken out.

    `items` as a whole is taken to fail and is not tried; nor is the empty list. 1-minimal where `fails` is
    deterministic and always answers; with an oracle that errs, as good as the oracle. `fails` is not asked twice
    about the same part.
    """
    asked: dict[tuple[int, ...], bool] = {}

    def still(part: list[int]) -> bool:
        key = tuple(part)
        if key not in asked:
            asked[key] = fails([items[index] for index in part])
        return asked[key]

    left = list(range(len(items)))
    pieces = 2
    while len(left) > 1:
        pieces = min(pieces, len(left))
        chunks = _split(left, pieces)
        smaller = next((chunk for chunk in chunks if still(chunk)), None)
        if smaller is not None:
            left, pieces = smaller, 2
            continue
        if pieces > 2:  # with two pieces the complements are the subsets again
            rests = ([index for index in left if index not in set(chunk)] for chunk in chunks)
            smaller = next((rest for rest in rests if still(rest)), None)
            if smaller is not None:
                left, pieces = smaller, max(pieces - 1, 2)
                continue
        if pieces == len(left):
            break
        pieces *= 2
    return [items[index] for index in left]


def _split(items: list[int], pieces: int) -> list[list[int]]:
    """Into `pieces` runs whose lengths differ by at most one."""
    size, extra = divmod(len(items), pieces)
    chunks, start = [], 0
    for number in range(pieces):
        end = start + size + (number < extra)
        chunks.append(items[start:end])
        start = end
    return chunks
