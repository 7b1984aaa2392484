"""Where a token stands in the decode step that made it, by the trace of a completion."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from parity.records import Completion, SpecTrace
from parity.records.steps import steps_of


def places_of(completion: Completion) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]] | None:
    """For each output token: its place in its decode step (0 = first), and whether the step before it, or its
    own, rejected a draft. Shapes (T,). None without a trace that fits the tokens.
    """
    trace, length = completion.spec, len(completion.token_ids)
    if trace is None or not _fits(trace, length):
        return None
    steps = steps_of(trace.accepted)
    missed = trace.accepted < trace.drafted
    before = np.concatenate([[False], missed[:-1]])[steps.step]
    rejected = before | (missed[steps.step] & ~steps.is_draft)
    rejected[0] = False
    return steps.place[:length], rejected[:length]


def place_in_step(completion: Completion) -> npt.NDArray[np.int64] | None:
    """The first of `places_of` alone, for runs of many tokens."""
    trace, length = completion.spec, len(completion.token_ids)
    return None if trace is None or not _fits(trace, length) else steps_of(trace.accepted).place[:length]


def drafts_at(completion: Completion) -> npt.NDArray[np.int64] | None:
    """The draft that was verified at each output token, -1 where none was, shape (T,). None where the trace does not
    name the drafts, or does not fit the tokens."""
    trace, length = completion.spec, len(completion.token_ids)
    if trace is None or trace.tokens is None or not _fits(trace, length) or len(trace.tokens) != trace.drafted.sum():
        return None
    steps = steps_of(trace.accepted, length)
    drafted, accepted = (np.append(one, 0)[steps.step] for one in (trace.drafted, trace.accepted))
    verified = (steps.step >= 0) & (steps.place < drafted) & (steps.place <= accepted)
    first = np.append(np.cumsum(trace.drafted) - trace.drafted, 0)[steps.step]
    found = np.full(length, -1, dtype=np.int64)
    found[: len(steps)][verified] = trace.tokens[(first + steps.place)[verified]]
    return found


def _fits(trace: SpecTrace, length: int) -> bool:
    if len(trace.accepted) != len(trace.drafted) or not len(trace.accepted):
        return False
    if (trace.accepted > trace.drafted).any():  # more than there were: it says nothing of the steps
        return False
    return 0 <= 1 + int(np.clip(trace.accepted, 0, length + 33).sum()) + len(trace.accepted) - length <= 32
