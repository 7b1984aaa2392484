"""The noise floor of a run with rounds: how often the baseline differs from itself, and the candidate from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parity.comparator.statistics import mcnemar_more, wilson_interval
from parity.comparator.stats import Differing, NoiseFloor
from parity.comparator.streams.pairing import Pairs
from parity.messages import Message, message
from parity.records import Capture, Index, Key, rounds_of


def noise_floor(baseline: Capture, pairs: Pairs) -> NoiseFloor | None:
    """Greedy completions of the baseline that differ from its own first round, against the candidate's from the
    baseline's. None where the baseline was asked once.

    Rates with 95 % Wilson intervals. The p-value says whether the candidate differs from the baseline's first round in
    more requests than the baseline does itself (`_more_requests`); another kernel does without a fault, so it is
    reported and is no fault.
    """
    rounds = np.fromiter(rounds_of(baseline.keys), dtype=np.int64, count=len(baseline.keys))
    if not rounds.any():
        return None
    groups = _Groups(baseline.keys)
    rows = np.lexsort((rounds, groups.of_row))
    if baseline.aborted:
        rows = rows[[baseline.keys[row] not in baseline.aborted for row in rows.tolist()]]
    is_first = np.diff(groups.of_row[rows], prepend=-1) > 0
    firsts = np.full(len(groups), -1)
    firsts[groups.of_row[rows[is_first]]] = rows[is_first]
    later, stream = rows[~is_first], baseline.tokens.row
    if not len(later):
        return None
    both = zip(firsts[groups.of_row[later]].tolist(), later.tolist(), strict=True)
    differing = np.array([not np.array_equal(stream(first), stream(row)) for first, row in both], dtype=np.bool_)
    usable = pairs.same_prompt & pairs.whole()
    compared, parted = int(usable.sum()), int((usable & ~pairs.identical).sum())
    own = np.zeros(len(groups), dtype=np.bool_)
    own[groups.of_row[later[differing]]] = True
    return NoiseFloor(
        baseline_from_itself=_rate(int(differing.sum()), len(later)),
        candidate_from_baseline=_rate(parted, compared),
        p_candidate_differs_more=_more_requests(groups, firsts, rounds, own, baseline, pairs),
    )


class _Groups:
    """Completions of one request and sample, numbered."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys, self._names = keys, dict[tuple[str, int], int]()
        if isinstance(keys, Index):
            samples = keys.rounds_and_samples[:, 1].astype(np.int64)
            self._samples = int(samples.max(initial=0)) + 1
            self._codes, self.of_row = np.unique(
                keys.numbers.astype(np.int64) * self._samples + samples, return_inverse=True
            )
        else:
            numbers = (self._names.setdefault((key.request, key.sample), len(self._names)) for key in keys)
            self.of_row = np.fromiter(numbers, dtype=np.int64, count=len(keys))

    def __len__(self) -> int:
        return len(self._codes) if isinstance(self._keys, Index) else len(self._names)

    def of(self, key: Key) -> int | None:
        if not isinstance(self._keys, Index):
            return self._names.get((key.request, key.sample))
        number = self._keys.number(key.request)
        if number is None or key.sample >= self._samples:
            return None
        code = number * self._samples + key.sample
        at = int(np.searchsorted(self._codes, code))
        return at if at < len(self._codes) and self._codes[at] == code else None


def _more_requests(
    groups: _Groups,
    firsts: npt.NDArray[np.int64],
    rounds: npt.NDArray[np.int64],
    own: npt.NDArray[np.bool_],
    baseline: Capture,
    pairs: Pairs,
) -> float:
    """McNemar, exact, one-sided, over requests: in how many does a later round of the candidate, or of the baseline,
    differ from the baseline's first?

    Rounds of one request are no independent trials: a deterministic engine gives the same answer in all of them. Were
    the candidate another baseline, its later rounds would be as good as the baseline's own.

    `firsts`: the row of the first round of each group in the baseline, -1 where there is none; `rounds`: of its rows;
    `own`: the groups that differ from it later.
    """
    other, asked = np.zeros((2, len(groups)), dtype=np.bool_)
    for row, key in enumerate(pairs.keys):
        group = groups.of(key)
        if group is None or firsts[group] < 0 or key.round == rounds[firsts[group]]:
            continue
        if pairs.aborted and pairs.candidate[row].aborted:
            continue
        asked[group] = True
        first = baseline.tokens.row(int(firsts[group]))
        if not other[group] and not np.array_equal(first, pairs.candidate_tokens.row(row)):
            other[group] = True
    return mcnemar_more(int((other & ~own).sum()), int((own & asked & ~other).sum()))


def _rate(hits: int, total: int) -> Differing:
    return Differing(
        differing=hits,
        completions=total,
        rate=hits / total if total else 0.0,
        interval_95=wilson_interval(hits, total),
    )


def as_note(floor: NoiseFloor) -> Message:
    """The floor in one sentence."""
    own, other = floor.baseline_from_itself, floor.candidate_from_baseline
    return message(
        "population.noise_floor",
        "asked again, the baseline differs from itself in {own} of {own_total} completions; the candidate differs from "
        "it in {other} of {other_total} (p = {p_value:.2g}, by requests, that this is no more)",
        own=own.differing,
        own_total=own.completions,
        other=other.differing,
        other_total=other.completions,
        p_value=floor.p_candidate_differs_more,
    )
