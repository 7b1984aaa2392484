"""The noise floor of a run with rounds: how often the baseline differs from itself, and the candidate from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from parity.comparator.statistics import mcnemar_more, wilson_interval
from parity.comparator.stats import Differing, NoiseFloor
from parity.comparator.streams.pairing import Pairs
from parity.messages import Message, message
from parity.records import Capture, Completion


def noise_floor(baseline: Capture, pairs: Pairs) -> NoiseFloor | None:
    """Greedy completions of the baseline that differ from its own first round, against the candidate's from the
    baseline's. None where the baseline was asked once.

    Rates with 95 % Wilson intervals. The p-value says whether the candidate differs from the baseline's first round in
    more requests than the baseline does itself (`_more_requests`); another kernel does without a fault, so it is
    reported and is no fault.
    """
    if not any(key.round for key in baseline.completions):
        return None
    rounds: dict[tuple[str, int], list[Completion]] = defaultdict(list)
    for key, completion in baseline.completions.items():
        if not completion.aborted:
            rounds[(key.request, key.sample)].append(completion)
    asked = differing = 0
    for same in rounds.values():
        first, *others = sorted(same, key=lambda one: one.key.round)
        asked += len(others)
        differing += sum(not np.array_equal(first.token_ids, one.token_ids) for one in others)
    if not asked:
        return None
    ran = [not (a.aborted or b.aborted) for a, b in zip(pairs.baseline, pairs.candidate, strict=True)]
    usable = pairs.same_prompt & np.array(ran, dtype=np.bool_)
    compared, parted = int(usable.sum()), int((usable & ~pairs.identical).sum())
    return NoiseFloor(
        baseline_from_itself=_rate(differing, asked),
        candidate_from_baseline=_rate(parted, compared),
        p_candidate_differs_more=_more_requests(rounds, pairs),
    )


def _more_requests(rounds: Mapping[tuple[str, int], list[Completion]], pairs: Pairs) -> float:
    """McNemar, exact, one-sided, over requests: in how many does a later round of the candidate, or of the baseline,
    differ from the baseline's first?

    Rounds of one request are no independent trials: a deterministic engine gives the same answer in all of them. Were
    the candidate another baseline, its later rounds would be as good as the baseline's own.
    """
    firsts = {name: min(same, key=lambda one: one.key.round) for name, same in rounds.items()}
    own = {
        name
        for name, same in rounds.items()
        if any(not np.array_equal(firsts[name].token_ids, one.token_ids) for one in same)
    }
    other: set[tuple[str, int]] = set()
    asked: set[tuple[str, int]] = set()
    for completion in pairs.candidate:
        name = (completion.key.request, completion.key.sample)
        first = firsts.get(name)
        if first is None or completion.aborted or completion.key.round == first.key.round:
            continue
        asked.add(name)
        if not np.array_equal(first.token_ids, completion.token_ids):
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
