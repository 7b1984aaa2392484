"""Two arms differ by a test that looks at both alike: which of them is not as asked?

Such a test sees a baseline whose answers end early just as it sees a candidate whose answers end late. What tells them
apart is what is known of one arm alone: its completions, its draws against the scores, how often it says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from parity.comparator.detect.pairs import Judged
from parity.comparator.population.drawn import is_off
from parity.comparator.stats import SamplingStats
from parity.comparator.streams.pairing import Pairs
from parity.records import Kind
from parity.records.many_findings import corrupt_of, heads

OF_TWO_ARMS: Final = frozenset({"likelihood", "surprisal", "length", "finish_reason", "loops", "wording"})
"""Tests of a drawn run that say that the arms differ, and not which of them is off; the others ask what the reference
says of the candidate."""

REPEATS: Final = 0.1
"""By so much the share of different samples of one request must be smaller in one arm, to be what the test `wording`
saw: it sees no less."""

FEW_LOOPS: Final = 0.001
"""p-value of the paired test for loops of greedy completions, below which the arms differ."""


def of_either(tests: SamplingStats, failed: Sequence[str], judged: Judged, pairs: Pairs) -> tuple[str, ...]:
    """Those of `failed` of which nothing says that they are the candidate's doing. `pairs`: what was drawn."""
    open_ones = [name for name in failed if name in OF_TWO_ARMS]
    if len(open_ones) < len(failed) or candidate_alone_is_corrupt(judged, pairs):
        return ()
    off = is_off(judged.draws)
    likelihood_is_its = off is not None and off == (False, True)
    its = {"likelihood", "surprisal"} if likelihood_is_its else set()
    distinct = tests.distinct_samples
    if distinct[0] is not None and distinct[1] is not None and distinct[0] - distinct[1] >= REPEATS:
        its.add("wording")
    return tuple(name for name in open_ones if name not in its)


def candidate_alone_is_corrupt(judged: Judged, pairs: Pairs) -> bool:
    """Is a completion of the candidate corrupt by itself, and none of the baseline's?"""
    drawn = judged.baseline_drawn, judged.baseline_logprobs
    baseline = (*drawn, judged.baseline_ends, judged.contradicted, judged.broken.baseline)
    if any(one in some for some in baseline if some for one in pairs.keys):
        return False
    keys = {one.key for one in heads(corrupt_of(judged.findings)) if one.kind is not Kind.INPUT_MISMATCH}
    return any(one in keys for one in pairs.keys) if keys else False
