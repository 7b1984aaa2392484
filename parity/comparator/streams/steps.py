"""Where a token stands in the decode step that made it, by the trace of a completion."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from parity.records import Completion
from parity.records.steps import steps_of


def places_of(completion: Completion) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]] | None:
    """For each output token: its place in its decode step (0 = first), and whether the step before it, or its
    own, rejected a draft. Shapes (T,). None without a trace that fits the tokens.
    """
    trace, length = completion.spec, len(completion.token_ids)
    if trace is None or len(trace.accepted) != len(trace.drafted) or not len(trace.accepted):
        return None
    counts = np.clip(trace.accepted, 0, length + 33)
    if not 0 <= 1 + int(counts.sum()) + len(counts) - length <= 32:
        return None
    steps = steps_of(trace.accepted)
    missed = trace.accepted < trace.drafted
    before = np.concatenate([[False], missed[:-1]])[steps.step]
    rejected = before | (missed[steps.step] & ~steps.is_draft)
    rejected[0] = False
    return steps.place[:length], rejected[:length]
