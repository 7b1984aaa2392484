"""What can be proven where no reference speaks: neither scores nor logprobs say whether a difference is noise.

Structure alone proves little. A near-tie may leave a sentence out, say one again, or fall in with what another
request says, and agree with the baseline afterwards. Three things are beyond that: a length that cannot be right
(ends.py), a long span of another request in a run whose requests have nothing nearly as long in common, and a chunk
right after itself in a run whose baseline never says anything nearly as long twice within reach. (A sentence left out
is never beyond it: optional ones exist in any text.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from parity.comparator.detect.cases import Case
from parity.comparator.detect.events import Event
from parity.comparator.detect.leak import Donors, Leak, Query
from parity.comparator.streams.repeats import LONGEST_LAG, is_periodic
from parity.records import Capture, Completion, Kind, RaggedTokens
from parity.records.lazy import Index

SHORTEST_LEAK = 12
"""Tokens of another request that must stand at the divergence to count in a completion without scores."""

CERTAIN = 1e-6
"""Matches of such a span that may be expected by chance in the run."""

SHARED_SHARE = 0.5
"""No two requests of the baseline may share a span of this share of its length: what the model says to two requests
of its own accord it says to a third as well."""

TOKENS_PER_PLACE = 300
"""Tokens of a baseline without such a repeat for each unjudged completion, before a repeat counts as proof: by the rule
of three their rate is below 3 in that many tokens, so in 1 % of such runs a near-tie might make one."""

_SAMPLE = 300_000
"""Tokens of the baseline looked at for shared spans and repeats."""


RESUMED = 8
"""Tokens with which the victim's own text must continue after a span, at the very place where it would have been."""


def seeming_leaks(cases: Sequence[Case], donors: Donors, baseline: Capture) -> list[tuple[int, Leak, bool]]:
    """(index, leak, is it proven) for each completion that goes on, from where it parts, with what only one other
    request says.

    Proven: after the span the victim's own text goes on where it would have been without it. A phrase that a model
    says of its own accord, a refusal or a licence, stands in two requests too and in no third, but it does not give
    the text back at the token where it took it.

    `cases`: those that nothing judges, and that part at a known place.
    """
    queries = (Query(one.key, one.b.token_ids, at, at + 1, at, None, at) for one, at in _parting(cases))
    found = [
        (index, leak)
        for index, leak in enumerate(donors.search(queries))
        if leak is not None
        and leak.donor_part != "candidate completion"  # of two that nobody judged, either may be the donor
        and leak.start == cases[index].flip
        and leak.length >= SHORTEST_LEAK
        and leak.chance <= CERTAIN
        and leak.sharing == 1
        and is_periodic(cases[index].b.token_ids[leak.start : leak.start + leak.length]) is None
    ]
    if not found:
        return []
    lengths = sorted({max(SHORTEST_LEAK // 2, int(SHARED_SHARE * leak.length)) for _, leak in found})
    owners = _owners(baseline)
    # A span that is shared makes all shorter ones shared.
    free = next((size for size in lengths if not shares(baseline.tokens, owners, size)), None)
    return [
        (index, leak, _resumes(cases[index].a, cases[index].b, leak))
        for index, leak in found
        if free is not None and SHARED_SHARE * leak.length >= free
    ]


def _parting(cases: Iterable[Case]) -> Iterator[tuple[Case, int]]:
    """Each with the place where the candidate takes another branch."""
    for case in cases:
        assert case.flip is not None
        yield case, case.flip


def _resumes(a: Completion, b: Completion, leak: Leak) -> bool:
    end = leak.start + leak.length
    own, resumed = a.token_ids[end : end + RESUMED], b.token_ids[end : end + RESUMED]
    return len(own) == RESUMED and np.array_equal(own, resumed)


def repeated_in(baseline: Capture) -> Callable[[int], bool]:
    """For `proven_copy`: do that many tokens in a row stand again in it? Each size is looked for once."""
    return cache(lambda size: repeats(baseline.tokens.head(_SAMPLE), size))


def proven_copy(
    b: Completion, suspect: Event, baseline: Capture, places: int, is_repeated: Callable[[int], bool]
) -> bool:
    """Does this suspected duplication prove itself? `places`: completions that nothing judges; `is_repeated`: as
    `repeated_in` gives it."""
    size = suspect.length
    at = suspect.position
    if suspect.kind is not Kind.DUPLICATION or at < size or suspect.is_ambiguous:
        return False
    tokens = b.token_ids
    if not np.array_equal(tokens[at - size : at], tokens[at : at + size]):
        return False
    flat = baseline.tokens.head(_SAMPLE)
    return len(flat) >= TOKENS_PER_PLACE * places and not is_repeated(max(2, int(SHARED_SHARE * size)))


def repeats(flat: npt.NDArray[np.int64], size: int) -> bool:
    """Do `size` tokens in a row stand again at most LONGEST_LAG tokens later?"""
    for lag in range(1, min(LONGEST_LAG, len(flat) - size) + 1):
        same = np.flatnonzero(flat[lag:] == flat[:-lag])
        if len(same) >= size and bool((same[size - 1 :] - same[: len(same) - size + 1] == size - 1).any()):
            return True
    return False


def _owners(capture: Capture) -> npt.NDArray[np.int32]:
    if isinstance(capture.keys, Index):
        return capture.keys.numbers
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(key.request, len(numbers)) for key in capture.keys], dtype=np.int32)


def shares(column: RaggedTokens, owners: npt.NDArray[np.int32], size: int) -> bool:
    """Do two streams of different owners (shape (P,)) have `size` tokens in a row in common?"""
    flat, offsets = column.head(_SAMPLE), column.offsets
    count = len(flat) - size + 1
    if count <= 1:
        return False
    hashes = _window_hashes(flat, size)
    stream = np.searchsorted(offsets, np.arange(count), side="right") - 1
    inside = np.arange(count) + size <= offsets[stream + 1]
    hashes, owner = hashes[inside], owners[stream[inside]]
    order = np.argsort(hashes, kind="stable")
    hashes, owner = hashes[order], owner[order]
    return bool(((hashes[1:] == hashes[:-1]) & (owner[1:] != owner[:-1])).any())


def _window_hashes(flat: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each `size` tokens in a row, shape (T - size + 1,): windows of doubling length, two of which
    cover any size."""
    hashes = flat.astype(np.uint64) * _FACTOR
    width = 1
    while 2 * width <= size:
        hashes = _joined(hashes[: len(hashes) - width], hashes[width:])
        width *= 2
    return hashes if width == size else _joined(hashes[: len(flat) - size + 1], hashes[size - width :])


def _joined(left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = (left ^ (left >> np.uint64(29))) * _FACTOR + right
    mixed ^= mixed >> np.uint64(32)
    return mixed


_FACTOR = np.uint64(0x9E3779B97F4A7C15)
