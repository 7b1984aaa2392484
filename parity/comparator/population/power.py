"""How many completions show a fault of a given rate, and what a clean run excludes.

A completion is hit with chance `rate`, independently: the chance of at least one hit in n is 1 - (1 - rate)^n.
Where hits come together (a whole batch is garbled at once, or nothing is), n completions tell as much as
n / d independent ones; d is the overdispersion, also called the design effect (Kish 1965, Survey Sampling).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from parity.comparator.statistics import missed_rate_bound
from parity.errors import ParityError
from parity.messages import message


def requests_needed(rate: float, confidence: float = 0.95, overdispersion: float = 1.0) -> int:
    """Completions in which a fault of this rate shows at least once with this chance. Raises ParityError."""
    _check(rate, confidence, overdispersion)
    return math.ceil(math.log(1 - confidence) / math.log1p(-rate) * overdispersion)


def chance_to_see(rate: float, requests: int, overdispersion: float = 1.0) -> float:
    """The chance that a fault of this rate shows at least once in so many completions."""
    _check(rate, 0.5, overdispersion)
    return -math.expm1(requests / overdispersion * math.log1p(-rate))


def rate_excluded(requests: int, confidence: float = 0.95, overdispersion: float = 1.0) -> float:
    """The rate that so many clean completions exclude: any higher one would have shown (3/N at 95 %)."""
    _check(0.5, confidence, overdispersion)
    bound = missed_rate_bound(requests, confidence) if overdispersion == 1 else None
    if bound is None:
        return 1.0 if requests == 0 else -math.expm1(math.log(1 - confidence) * overdispersion / requests)
    return bound


def measured_overdispersion(hits: Sequence[int], sizes: Sequence[int]) -> float:
    """From hits per group of completions (a round, say): Pearson's chi-square over its degrees of freedom, at least 1.

    1 with fewer than two groups or hits: then nothing can be said about how hits come.
    """
    total, number = sum(sizes), sum(hits)
    groups = [(h, n) for h, n in zip(hits, sizes, strict=True) if n]
    if len(groups) < 2 or number < 2 or number == total:
        return 1.0
    share = number / total
    chi = sum((h - n * share) ** 2 / (n * share * (1 - share)) for h, n in groups)
    return max(1.0, chi / (len(groups) - 1))


def _check(rate: float, confidence: float, overdispersion: float) -> None:
    if not 0 < rate < 1:
        raise ParityError(
            message("comparator.rate", "the rate is {rate:g}", rate=rate),
            hint=message("comparator.give_share_between", "give a share between 0 and 1: 0.003 is 3 in 1,000"),
        )
    if not 0 < confidence < 1:
        raise ParityError(
            message("comparator.confidence", "the confidence is {confidence:g}", confidence=confidence),
            hint=message("comparator.give_share_between_such", "give a share between 0 and 1, such as 0.95"),
        )
    if not 1 <= overdispersion < 1e9:
        raise ParityError(
            message(
                "comparator.overdispersion", "the overdispersion is {overdispersion:g}", overdispersion=overdispersion
            ),
            hint=message("comparator.none_batch_hit", "1 is none; a batch of 64 hit as one is 64"),
        )
