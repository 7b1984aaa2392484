"""The noise floor of a run with rounds: how often the baseline differs from itself, and the candidate from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set

import numpy as np

from parity.comparator.statistics import mcnemar_more, wilson_interval
from parity.comparator.stats import Differing, NoiseFloor
from parity.comparator.streams.pairing import Pairs
from parity.messages import Message, message
from parity.records import Capture


def noise_floor(baseline: Capture, pairs: Pairs) -> NoiseFloor | None:
    """Greedy completions of the baseline that differ from its own first round, against the candidate's from the
    baseline's. None where the baseline was asked once.

    Rates with 95 % Wilson intervals. The p-value says whether the candidate differs from the baseline's first round in
    more requests than the baseline does itself (`_more_requests`); another kernel does without a fault, so it is
    reported and is no fault.
    """
    if not any(key.round for key in baseline.keys):
        return None
    by_request: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for row, key in enumerate(baseline.keys):
        if key not in baseline.aborted:
            by_request[(key.request, key.sample)].append((key.round, row))
    rounds = {name: [row for _, row in sorted(same)] for name, same in by_request.items()}
    asked, stream = 0, baseline.tokens.row
    differing: dict[tuple[str, int], int] = {}
    for name, (first, *others) in rounds.items():
        asked += len(others)
        mine = stream(first)
        differing[name] = sum(not np.array_equal(mine, stream(row)) for row in others)
    if not asked:
        return None
    usable = pairs.same_prompt
    if pairs.aborted:
        ran = [not (a.aborted or b.aborted) for a, b in zip(pairs.baseline, pairs.candidate, strict=True)]
        usable = pairs.same_prompt & np.array(ran, dtype=np.bool_)
    compared, parted = int(usable.sum()), int((usable & ~pairs.identical).sum())
    return NoiseFloor(
        baseline_from_itself=_rate(sum(differing.values()), asked),
        candidate_from_baseline=_rate(parted, compared),
        p_candidate_differs_more=_more_requests(
            {name: same[0] for name, same in rounds.items()},
            {name for name, count in differing.items() if count},
            baseline,
            pairs,
        ),
    )


def _more_requests(
    firsts: Mapping[tuple[str, int], int], own: Set[tuple[str, int]], baseline: Capture, pairs: Pairs
) -> float:
    """McNemar, exact, one-sided, over requests: in how many does a later round of the candidate, or of the baseline,
    differ from the baseline's first?

    Rounds of one request are no independent trials: a deterministic engine gives the same answer in all of them. Were
    the candidate another baseline, its later rounds would be as good as the baseline's own.

    `firsts`: the row of the first round of each request in the baseline; `own`: those that differ from it later.
    """
    other: set[tuple[str, int]] = set()
    asked: set[tuple[str, int]] = set()
    for row, key in enumerate(pairs.keys):
        name = (key.request, key.sample)
        first = firsts.get(name)
        if first is None or key.round == baseline.keys[first].round:
            continue
        if pairs.aborted and pairs.candidate[row].aborted:
            continue
        asked.add(name)
        if name not in other and not np.array_equal(baseline.tokens.row(first), pairs.candidate_tokens.row(row)):
            other.add(name)
    return mcnemar_more(len(other - own), len((own & asked) - other))


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
