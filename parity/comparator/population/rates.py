"""A run as a whole: rates with intervals, loops, the size of the noise, where in a decode step faults sit."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs

from parity.comparator.classes import counted
from parity.comparator.population.first_faults import first_faults, most_frequent_first
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.statistics import (
    FloatArray,
    fisher_more,
    mcnemar_more,
    sign_flip_more,
    wilson_interval,
)
from parity.comparator.stats import Drift, Loops, PositionInStep, Rate, Rates, Stats, Unsupported
from parity.comparator.streams.pairing import Pairs
from parity.comparator.streams.steps import places_of
from parity.comparator.types import CompletionClass, Spread, alone
from parity.messages import message
from parity.records import RUN, Completion, Key, RaggedTokens, Severity, TokenIds
from parity.records.many_findings import Placed

LOOP_WINDOW = 48
"""Tokens at the end of a completion looked at for a loop."""

SHORTEST_LOOP = 24
"""Tokens of a completion, below which none is called a loop."""

QUANTILES_OF = 200_000
"""Tokens, evenly spaced, whose quantiles are given for all."""

DRIFT_ALPHA, DRIFT_RATIO = 1e-3, 2.0
"""A mean gap counts as drifted from twice the baseline's on, if the test says so as well."""


def rates(classes: Mapping[Key, CompletionClass], findings: Iterable[Placed]) -> Rates:
    """Completions by class, and the rate of corrupt completions by kind with 95 % Wilson intervals."""
    corrupt = [one for one in findings if one.severity is Severity.CORRUPT]
    by_class = counted(classes)
    total = len(classes)
    judged = total - by_class["unjudged"] - by_class["missing"]
    by_kind: dict[str, set[Key]] = {}
    for one in corrupt:
        if one.request != RUN:
            by_kind.setdefault(str(one.kind), set()).add(one.key)
    of_run = Counter(str(one.kind) for one in corrupt if one.request == RUN)
    counts = {kind: len(keys & classes.keys()) or len(keys) for kind, keys in sorted(by_kind.items())}
    return Rates(
        completions=total,
        identical=by_class["identical"],
        near_tie=by_class["near_tie"],
        corrupt=by_class["corrupt"],
        unjudged=by_class["unjudged"],
        missing=by_class["missing"],
        sampled=by_class["sampled"],
        judged=judged,
        rates={
            kind: Rate(
                completions=count,
                rate=count / total if total else 0.0,
                interval_95=wilson_interval(count, total),
            )
            for kind, count in counts.items()
        },
        first_faults=first_faults(corrupt),
        of_run=dict(sorted(of_run.items())),
    )


def with_findings_of_run(stats: Stats, findings: Iterable[Placed]) -> Stats:
    """The numbers with more findings about the run as a whole, which change no completion's class."""
    more = Counter(str(one.kind) for one in findings if one.severity is Severity.CORRUPT)
    return msgspec.structs.replace(
        stats,
        of_run=dict(sorted((Counter(stats.of_run) + more).items())),
        first_faults=most_frequent_first(Counter(stats.first_faults) + more),
    )


def recounted(stats: Stats, classes: Mapping[Key, CompletionClass], findings: Iterable[Placed]) -> Stats:
    """The numbers of a comparison to which findings were added, or whose classes changed. What a run without a fault
    could have missed is said of none that has one."""
    findings = tuple(findings)
    counted = rates(classes, findings)
    corrupt = {one.key for one in findings if one.severity is Severity.CORRUPT}
    still = tuple(one for one in stats.faults_at if Key(one.request, one.round, one.sample) in corrupt)
    found = msgspec.structs.replace(stats, **msgspec.structs.asdict(counted), faults_at=still)
    return msgspec.structs.replace(found, missed=(), fault_rate_not_excluded=None) if counted.corrupt else found


def loop_period(tokens: TokenIds) -> int | None:
    """The period of the loop a completion ends in (last LOOP_WINDOW tokens, period up to a third), or None."""
    tail = tokens[-LOOP_WINDOW:]
    if len(tail) < SHORTEST_LOOP:
        return None
    for lag in range(1, len(tail) // 3 + 1):
        if np.array_equal(tail[lag:], tail[:-lag]):
            return lag
    return None


_AT_ONCE = 4096
"""Streams of which the ends are looked at together."""


def loops(pairs: Pairs, ends: Collection[int] = ()) -> Loops:
    """Does the candidate end in loops more often than the baseline? McNemar exact over differing pairs.

    ends: tokens that parity has put at the end of texts that came without ids, and that do not end a loop.
    """
    rows = np.flatnonzero(~pairs.identical & pairs.same_prompt)
    if pairs.aborted:
        whole = [not (pairs.baseline[row].aborted or pairs.candidate[row].aborted) for row in rows.tolist()]
        rows = rows[np.array(whole, dtype=np.bool_)]
    if ends:
        both = (pairs.baseline, pairs.candidate)
        arms = ([_without_end(arm[row].token_ids, ends) for row in rows.tolist()] for arm in both)
        first, second = (np.array([loop_period(one) is not None for one in arm], dtype=np.bool_) for arm in arms)
    else:
        first, second = (ends_in_loop(side, rows) for side in (pairs.baseline_tokens, pairs.candidate_tokens))
    only_baseline, only_candidate = int((first & ~second).sum()), int((second & ~first).sum())
    return Loops(
        both=int((first & second).sum()),
        only_baseline=only_baseline,
        only_candidate=only_candidate,
        p_candidate_loops_more=mcnemar_more(only_candidate, only_baseline),
    )


def _without_end(tokens: TokenIds, ends: Collection[int]) -> TokenIds:
    return tokens[:-1] if len(tokens) and int(tokens[-1]) in ends else tokens


def ends_in_loop(column: RaggedTokens, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """`loop_period` of many streams of a column at once: does each of these rows end in a loop? Shape of `rows`."""
    result = np.zeros(len(rows), dtype=np.bool_)
    sizes = np.minimum(column.sizes[rows], LOOP_WINDOW)
    for size in set(sizes[sizes >= SHORTEST_LOOP].tolist()):
        same = np.flatnonzero(sizes == size)
        for some in (same[begin : begin + _AT_ONCE] for begin in range(0, len(same), _AT_ONCE)):
            result[some] = _looping(column.ends(rows[some], size))
    return result


def _looping(tails: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of these ends, shape (N, size), are loops?"""
    result = np.zeros(len(tails), dtype=np.bool_)
    for lag in range(1, tails.shape[1] // 3 + 1):
        some = np.flatnonzero(tails[:, -1] == tails[:, -1 - lag])  # the others are none
        result[some] |= (tails[some, lag:] == tails[some, :-lag]).all(axis=1)
    return result


ABOUT = message("spread.numerics", "numerics of the arms")

DRIFT_AT_ONCE = 1 << 12
"""Completions whose gaps are looked at together."""


def drift(
    baseline_gaps: Mapping[Key, FloatArray],
    candidate_gaps: Mapping[Key, FloatArray],
    keys: Sequence[Key],
    spread: Spread = alone,
) -> Drift | None:
    """Is the candidate's mean gap larger than the baseline's, though no token crosses the tolerance?

    Both arms' completions scored by the same reference; paired by completion, one-sided sign-flip test; keys: of all
    pairs. None without scores on both sides.
    """

    def work(begin: int) -> _PartOfGaps:
        return _part_of_gaps(baseline_gaps, candidate_gaps, keys[begin : begin + DRIFT_AT_ONCE])

    means = array("d"), array("d")
    quantiles = _Thinned(), _Thinned()
    for some in spread(range(0, len(keys), DRIFT_AT_ONCE), work, ABOUT):
        for column, more in zip(means, some.means, strict=True):
            column.extend(more)
        for of_arm, gaps in zip(quantiles, some.gaps, strict=True):
            of_arm.add(gaps)
    left, right = map(np.array, means)
    if len(left) < 8:
        return None
    p_value = sign_flip_more(right - left)
    ratio = float(right.mean() / left.mean()) if left.mean() > 0 else None
    return Drift(
        completions=len(left),
        baseline_mean_gap=float(left.mean()),
        candidate_mean_gap=float(right.mean()),
        ratio=ratio,
        p_value=p_value,
        baseline_quantiles=_quantiles(quantiles[0]),
        candidate_quantiles=_quantiles(quantiles[1]),
        drifted=bool(p_value < DRIFT_ALPHA and (ratio is None or ratio >= DRIFT_RATIO)),
    )


def no_more_than(found: Drift, fresh: Drift | None) -> Drift:
    """The drift as far as the tokens that stand after tokens of their own show it too. None: there are too few."""
    if fresh is not None and (fresh.ratio is None or fresh.ratio >= DRIFT_RATIO):
        p_value = max(found.p_value, fresh.p_value)
    else:
        p_value = 1.0
    return structs.replace(found, p_value=p_value, drifted=found.drifted and p_value < DRIFT_ALPHA)


class _PartOfGaps(NamedTuple):
    """Of some pairs, the baseline's and the candidate's: mean gaps where both are known, and all gaps, nats."""

    means: tuple[array[float], array[float]]
    gaps: tuple[FloatArray, FloatArray]


def _part_of_gaps(
    baseline_gaps: Mapping[Key, FloatArray], candidate_gaps: Mapping[Key, FloatArray], keys: Sequence[Key]
) -> _PartOfGaps:
    means = array("d"), array("d")
    known: tuple[list[FloatArray], list[FloatArray]] = [], []
    for key in keys:
        both = []
        for of_arm, all_of_arm in zip((baseline_gaps, candidate_gaps), known, strict=True):
            if (gaps := of_arm.get(key)) is not None and len(finite := gaps[np.isfinite(gaps)]):
                all_of_arm.append(finite)
                both.append(float(finite.mean()))
        if len(both) == len(means):
            for column, mean in zip(means, both, strict=True):
                column.append(mean)
    baseline, candidate = (np.concatenate(one) if one else np.empty(0) for one in known)
    return _PartOfGaps(means, (baseline, candidate))


def _quantiles(gaps: _Thinned) -> dict[str, float]:
    names = ("0.5", "0.9", "0.99", "0.999", "1")
    some, largest = np.array(gaps.kept), gaps.largest
    if not len(some):
        return {}
    found = {
        name: round(float(one), 5)
        for name, one in zip(names, np.quantile(some, [float(name) for name in names]), strict=True)
    }
    return found | {"1": round(largest, 5)}


class _Thinned:
    """Values, every one, or every second, fourth, ... where they are very many; and the largest of all."""

    def __init__(self) -> None:
        self.kept, self.largest = array("d"), -math.inf
        self._every, self._skip = 1, 0

    def add(self, values: FloatArray) -> None:
        self.largest = max(self.largest, float(values.max(initial=-math.inf)))
        self.kept.frombytes(values[self._skip :: self._every].tobytes())
        self._skip = (self._skip - len(values)) % self._every
        while len(self.kept) >= 2 * QUANTILES_OF:
            self._skip += self._every * (len(self.kept) % 2)
            self.kept, self._every = self.kept[::2], 2 * self._every


def position_in_step(
    completions: Mapping[Key, Completion], gaps: Mapping[Key, TokenGaps], tolerance: float
) -> PositionInStep | None:
    """Unsupported tokens by their place in the decode step, and after a rejected draft against elsewhere. `gaps`: of
    these completions, and maybe of others."""
    per_place: dict[int, list[int]] = {}
    counts = {True: [0, 0], False: [0, 0]}
    for key, view in gaps.items():
        one = completions.get(key)
        steps = None if one is None else places_of(one)
        if steps is None:
            continue
        places, after_rejection = steps
        bad = view.unsupported(tolerance)
        for place in np.unique(places).tolist():
            here = places == place
            entry = per_place.setdefault(int(place), [0, 0])
            entry[0] += int(here.sum())
            entry[1] += int((here & bad).sum())
        for side in (True, False):
            counts[side][0] += int((after_rejection == side).sum())
            counts[side][1] += int(((after_rejection == side) & bad).sum())
    if not per_place:
        return None
    after, elsewhere = (Unsupported(tokens=counts[side][0], unsupported=counts[side][1]) for side in (True, False))
    return PositionInStep(
        by_place={str(place): Unsupported(tokens=n, unsupported=k) for place, (n, k) in sorted(per_place.items())},
        after_rejection=after,
        elsewhere=elsewhere,
        p_more_after_rejection=fisher_more(after.unsupported, after.tokens, elsewhere.unsupported, elsewhere.tokens),
    )
