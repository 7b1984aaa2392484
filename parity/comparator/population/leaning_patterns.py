"""Which ids lean: every n-th, or those of one shard of the vocabulary? Either says where in an engine to look.

Each rank of an output layer has a stretch of ids (vllm/model_executor/layers/vocab_parallel_embedding.py, vLLM 0.32:
the vocabulary padded to 64, the same number for each), and weights that are packed or quantised have what is wrong
come back every so many ids. Of the tokens that stand in both halves of the completions some lean to one side by more
than chance. Are they those of one pattern, more than of any other tokens? Fisher's exact test over tokens, times the
patterns that were asked: which tokens lean is one draw for the whole run, and a frequent one counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.population.leaning import MOST_NAMES, Learned
from parity.comparator.statistics import fisher_more
from parity.comparator.stats import LeaningPattern

MODULI: Final = range(2, 65)
"""Every so many ids."""

SHARDS: Final = (2, 4, 8, 16, 32)
"""Ranks that a vocabulary is split over."""

PADDED: Final = 64
"""vLLM's DEFAULT_VOCAB_PADDING_SIZE."""

IN_EACH: Final = 1
"""Places of a token in each half of the completions: of rare ones few lean, but they are many."""

LEAST: Final = 4
"""Tokens of a pattern."""

MOST_OF_IT: Final = 0.5
"""Share of these that must lean."""

ERRORS: Final = 3.0
"""Standard errors from which on a token leans, to the same side in both halves."""

MOST_OF_THEM: Final = 0.5
"""Share of the tokens that lean to that side which must be of the pattern: where half of all ids lean, those that stand
in many places show it first."""

SURE: Final = 0.001
"""Chance, adjusted for all patterns, of as many in one of them."""

APART: Final = 3.0
"""Times as far as all others that they lean, where these lean to the same side: what makes all lean is no matter of
ids."""

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class _Pattern(Struct, frozen=True):
    by: str
    of: int
    number: int
    p_value: float


def leaning_pattern(learned: Learned, variance: float, vocab_size: int | None) -> LeaningPattern | None:
    """The ids that lean; None where they have nothing in common. learned: by id; variance: of the difference of the
    arms' residuals at one place."""
    sums, seen = (one.values[:, :MOST_NAMES] for one in (learned.sums, learned.seen))
    ids = np.flatnonzero((seen >= IN_EACH).all(axis=0))
    sums, seen = sums[:, ids], seen[:, ids]
    errors = sums.sum(axis=0) / np.sqrt(seen.sum(axis=0) * max(variance, 1e-12))
    same_side = np.sign(sums[0]) == np.sign(sums[1])
    asked, found = 0, list[_Pattern]()
    for sign in (1.0, -1.0):
        leans = same_side & (sign * errors >= ERRORS)
        kinds = [("modulo", of) for of in MODULI] + [("shard", of) for of in SHARDS if vocab_size]
        for by, of in kinds:
            labels = _labels(by, of, ids, vocab_size)
            asked += int((np.bincount(labels, minlength=of) >= LEAST).sum())
            found += _of_kind(by, of, labels, leans)
    best = min(found, key=lambda one: one.p_value, default=None)
    if best is None or best.p_value * asked >= SURE:
        return None
    within = _labels(best.by, best.of, ids, vocab_size) == best.number
    inside, others = (float(sums[:, some].sum() / max(1.0, seen[:, some].sum())) for some in (within, ~within))
    if inside * others > 0 and abs(inside) < APART * abs(others):
        return None
    return LeaningPattern(
        by=best.by,
        of=best.of,
        number=best.number,
        tokens=int(within.sum()),
        nats=inside,
        others=others,
        p_value=best.p_value * asked,
    )


def _of_kind(by: str, of: int, labels: Ints, leans: Bools) -> Iterator[_Pattern]:
    """Patterns of which most tokens lean, with the chance of as many."""
    count, hits = np.bincount(labels, minlength=of), np.bincount(labels, leans, of)
    enough = (count >= LEAST) & (hits >= MOST_OF_IT * count) & (hits >= max(1.0, MOST_OF_THEM * leans.sum()))
    for number in np.flatnonzero(enough).tolist():
        here, total = int(hits[number]), int(count[number])
        chance = fisher_more(here, total, int(leans.sum()) - here, len(leans) - total)
        yield _Pattern(by, of, number, chance)


def _labels(by: str, of: int, ids: Ints, vocab_size: int | None) -> Ints:
    """Which class of the pattern's kind each id is in."""
    if by == "modulo":
        return ids % of
    padded = -(-(vocab_size or 1) // PADDED) * PADDED
    return np.minimum(ids // -(-padded // of), of - 1)
