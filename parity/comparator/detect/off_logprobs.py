"""Logprobs of the chosen tokens, by the engine itself and by somebody else: where are they not the same?"""

from __future__ import annotations

import numpy as np

from parity.comparator.reference.gaps import BoolArray, FloatArray
from parity.comparator.reference.own_logprobs import LIKELY
from parity.records import Completion

LOGPROB_TOLERANCE = 0.5
"""Nats between an engine's own logprob of its token and the score. vLLM's tests use 0.5 (`logprob_atol`,
tests/v1/e2e/general/async_scheduling_utils.py), clean runs there stay below 0.38."""

MANY = 3
"""Positions that are off where the baseline has no scores, and HEADROOM times as many as are usual (between the arms'
own logprobs, or in the candidate's other scored completions), which a completion must exceed."""


def of_chosen(completion: Completion, until: int) -> tuple[BoolArray, FloatArray]:
    """Is the chosen token listed, and its own logprob; shape (until,)."""
    assert completion.logprobs is not None
    ids, values = completion.logprobs.ids[:until], completion.logprobs.values[:until]
    is_chosen = ids == completion.token_ids[:until, None]
    chosen = np.where(is_chosen, values, -np.inf).max(axis=1) if ids.shape[1] else np.full(until, np.nan)
    return is_chosen.any(axis=1), chosen


def are_likely(chosen: FloatArray, expected: FloatArray) -> BoolArray:
    """Positions at which two logprobs of one token can be compared."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.maximum(chosen, expected) > LIKELY) & np.isfinite(expected))


def are_off(chosen: FloatArray, expected: FloatArray) -> BoolArray:
    """Those of them at which they are not the same."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(chosen - expected) > LOGPROB_TOLERANCE) & are_likely(chosen, expected))


def apart(chosen: FloatArray, expected: FloatArray) -> FloatArray:
    """Nats by which they lie above."""
    with np.errstate(invalid="ignore"):  # two tokens without probability
        return np.asarray(chosen - expected)
