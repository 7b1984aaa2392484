"""Contexts that a run holds more than once: rounds and copies of a request, and requests of one prompt.

An engine that is asked the same again answers with the same tokens, and often with the same rounding. What a token's
logprob shows after the same tokens is then no second measurement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from parity.comparator.streams.pairing import Pairs
from parity.comparator.streams.sides import side_of
from parity.records import Key


def repeated_until(pairs: Pairs) -> Mapping[Key, int]:
    """For pairs that begin as another one of the same prompt does: how many tokens of both streams they share with it.

    Of all pairs that share a beginning one does not count as a repetition. Pairs that repeat nothing are left out.
    """
    groups: dict[bytes, list[int]] = defaultdict(list)
    for row in _of_repeated_prompts(pairs):
        groups[pairs.candidate[row].prompt_token_ids.tobytes()].append(row)
    found: dict[Key, int] = {}
    for rows in groups.values():
        if len(rows) > 1:
            found.update(_shared(pairs, rows))
    return found


def _of_repeated_prompts(pairs: Pairs) -> list[int]:
    """The rows whose prompt is another's as well, and a few more: those of one hash."""
    hashes = np.fromiter(map(hash, side_of(pairs.candidate).prompts()), dtype=np.int64, count=len(pairs.keys))
    order = np.argsort(hashes, kind="stable")
    same = hashes[order[1:]] == hashes[order[:-1]]
    found: list[int] = np.unique(np.concatenate([order[1:][same], order[:-1][same]])).tolist()
    return found


def _shared(pairs: Pairs, rows: list[int]) -> Iterator[tuple[Key, int]]:
    """Pairs of one prompt in the order of their tokens: the longest beginning that is shared with an earlier one is
    that shared with the one right before."""
    longest = max(max(len(pairs.baseline[row].token_ids), len(pairs.candidate[row].token_ids)) for row in rows)
    if not longest:
        return
    both = np.full((len(rows), longest, 2), -1, dtype=np.int64)
    for at, row in enumerate(rows):
        for side, one in enumerate((pairs.baseline[row], pairs.candidate[row])):
            both[at, : len(one.token_ids), side] = one.token_ids
    order = sorted(range(len(rows)), key=lambda at: both[at].tobytes())
    ordered = both[order]
    different = (ordered[1:] != ordered[:-1]).any(axis=2)
    shared = np.where(different.any(axis=1), different.argmax(axis=1), longest)
    for at, length in zip(order[1:], shared.tolist(), strict=True):
        if length:
            yield pairs.keys[rows[at]], length
