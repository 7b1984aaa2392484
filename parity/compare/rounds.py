"""The noise floor of a run with rounds: how often the baseline differs from itself, and the candidate from it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from parity.compare.columns import Pairs
from parity.compare.statistics import fisher_more, wilson_interval
from parity.records import Capture, Completion, Json


def noise_floor(baseline: Capture, pairs: Pairs) -> dict[str, Json] | None:
    """Greedy completions of the baseline that differ from its own first round, against the candidate's from the
    baseline's. None where the baseline was asked once.

    Rates with 95 % Wilson intervals. The p-value (Fisher, one-sided) says whether the candidate differs more often
    than the baseline does from itself; another kernel does without a fault, so it is told and convicts nobody.
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
    return {
        "baseline_from_itself": _rate(differing, asked),
        "candidate_from_baseline": _rate(parted, compared),
        "p_candidate_differs_more": fisher_more(parted, compared, differing, asked),
    }


def _rate(hits: int, total: int) -> dict[str, Json]:
    return {
        "differing": hits,
        "completions": total,
        "rate": hits / total if total else 0.0,
        "interval_95": list(wilson_interval(hits, total)),
    }


def as_note(floor: dict[str, Json]) -> str:
    """The floor in one sentence."""
    own, other = floor["baseline_from_itself"], floor["candidate_from_baseline"]
    return (
        f"asked again, the baseline differs from itself in {own['differing']} of {own['completions']} completions; the "
        f"candidate differs from it in {other['differing']} of {other['completions']} "
        f"(p = {floor['p_candidate_differs_more']:.2g} that this is no more)"
    )
