"""Are drafts among drawn tokens accepted more often than at their probability?

A drafter that proposes its best token has it accepted with the probability p that the target gives it (Leviathan,
Kalman, Matias 2023), so 1/p for each accepted draft and 0 for each rejected one is 1 on average, whichever tokens were
proposed. What a rejected draft was need not be known: only how many there were. Each is an e-value, and so is their
product, at any share that is staked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.comparator.detect.drawn_places import Outcomes
from parity.comparator.reference.temperature import ENOUGH, most_likely
from parity.comparator.streams.steps import places_of
from parity.records import Capture, Completion, Header
from parity.records.engine_settings import speculative_settings
from parity.records.steps import steps_of

STAKES = (0.01, 0.03, 0.1, 0.3, 0.9)
"""Share of what is won so far that is staked on a draft."""

FEWEST = 64
"""Drafts below which nothing is said."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """p_value: that drafts are accepted at their probability. drafts: looked at; accepted: of these; worth: how many
    drafts the accepted ones stand for by their probabilities."""

    p_value: float
    drafts: int
    accepted: int
    worth: float


def accepted_drafts(arm: Capture, drawn: Outcomes, left_out: Collection[object]) -> Accepted | None:
    """Of the completions `drawn` of an arm but for those that are left out. None where the engine's drafts are drawn
    themselves, or accepted by another rule, or no trace says what became of them."""
    if not proposes_its_best(arm.header):
        return None
    won, drafts, taken, worth = np.zeros(len(STAKES)), 0, 0, 0.0
    stakes = np.array(STAKES)[:, None]
    for (temperature, cut), many in drawn.items():
        for one in many:
            trial = None if one.key in left_out else trials(arm.completions[one.key])
            if trial is None or not len(one.draws) or one.draws.logs.shape[1] < 2:
                continue
            outcome = trial[one.places]
            asked = outcome >= 0
            chance = np.exp(np.minimum(0.0, most_likely(one.draws.where(asked), temperature, cut) + ENOUGH))
            gained = np.where(outcome[asked] > 0, 1.0 / chance, 0.0)
            won += np.log(1.0 + stakes * (gained - 1.0)).sum(axis=1)
            drafts, taken, worth = drafts + len(gained), taken + int((gained > 0).sum()), worth + float(gained.sum())
    if drafts < FEWEST:
        return None
    most = float(won.max())
    log_won = most + float(np.log(np.exp(won - most).mean()))
    return Accepted(float(np.exp(min(0.0, -log_won))), drafts, taken, worth)


def proposes_its_best(header: Header) -> bool:
    """Whether the engine's drafts are the drafter's best tokens, each accepted at its own probability. vLLM 0.32.0,
    vllm/config/speculative.py: `draft_sample_method` and `rejection_sample_method`; releases without these do so."""
    settings = speculative_settings(header.engine)
    return (
        bool(settings)
        and settings.get("draft_sample_method") in (None, "greedy")
        and settings.get("rejection_sample_method") in (None, "standard", "strict")
    )


def trials(one: Completion) -> npt.NDArray[np.int64] | None:
    """Of each output token: 1 where it is a draft that was accepted, 0 where one was rejected in its place, -1 where
    none was proposed; shape (T,). None without a trace that fits the tokens."""
    if one.spec is None or places_of(one) is None:
        return None
    length = len(one.token_ids)
    steps = steps_of(one.spec.accepted, length)
    short = np.concatenate([one.spec.accepted < one.spec.drafted, [False]])[steps.step]
    found = np.where(steps.is_draft, 1, np.where(short & (steps.step >= 0), 0, -1)).astype(np.int64)
    return np.concatenate([found, np.full(length - len(found), -1)])
