"""Contexts that a run holds more than once: rounds and copies of a request, and requests of one prompt.

An engine that is asked the same again answers with the same tokens, and often with the same rounding. What a token's
logprob shows after the same tokens is then no second measurement.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from parity.comparator.streams.pairing import Pairs
from parity.comparator.streams.sides import side_of
from parity.records import Completion, Key

CONTEXT = 4
"""Tokens, the chosen one among them, by which places are distinguished. Where all places counted, clean arms of small
models whose completions end in one loop, or come to one phrase, were accused: 16 completions of `parity model tiny
--arch qwen3_next` (vLLM 0.32 on CPU) chose one token after the same three, 2.2 nats below the best."""


def context_of(completion: Completion, at: int) -> tuple[bytes, bytes]:
    """What names the token at this place: it and those before it; of the first few the prompt as well."""
    begin = at + 1 - CONTEXT
    prompt = completion.prompt_token_ids.tobytes() if begin < 0 else b""
    return prompt, completion.token_ids[max(0, begin) : at + 1].tobytes()


def repeated_until(pairs: Pairs) -> Mapping[Key, int]:
    """For pairs that begin as another one of the same prompt does: how many tokens of both streams they share with it.

    Of all pairs that share a beginning one does not count as a repetition. Pairs that repeat nothing are left out.
    """
    rows, lengths = array("q"), array("q")
    for group in _of_one_prompt(pairs):
        for row, length in _shared(pairs, group):
            rows.append(row)
            lengths.append(length)
    found, shared = (np.array(one, dtype=np.int64) for one in (rows, lengths))
    order = np.argsort(found)
    return pairs.numbered(found[order], shared[order])


def _of_one_prompt(pairs: Pairs) -> Iterator[list[int]]:
    """The rows of each prompt that more than one pair has."""
    hashes = np.fromiter(map(hash, side_of(pairs.candidate).prompts()), dtype=np.int64, count=len(pairs.keys))
    order = np.argsort(hashes, kind="stable")
    same = np.concatenate([[False], hashes[order[1:]] == hashes[order[:-1]], [False]])
    begins, ends = np.flatnonzero(~same[:-1] & same[1:]), np.flatnonzero(same[:-1] & ~same[1:]) + 1
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        groups: dict[bytes, list[int]] = defaultdict(list)
        for row in order[begin:end].tolist():
            groups[pairs.candidate[row].prompt_token_ids.tobytes()].append(row)
        yield from (rows for rows in groups.values() if len(rows) > 1)


def _shared(pairs: Pairs, rows: list[int]) -> Iterator[tuple[int, int]]:
    """(row, tokens) of pairs of one prompt, in the order of their tokens: the longest beginning that is shared with an
    earlier one is that shared with the one right before."""
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
            yield rows[at], length
