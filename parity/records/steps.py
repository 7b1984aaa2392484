"""Which decode step made each output token, from the acceptance trace of its completion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PREFILL = -1
"""`TokenSteps.step` of the first output token: the prefill makes it, no decode step does."""


@dataclass(frozen=True, slots=True)
class TokenSteps:
    """Arrays of shape (T,), one entry per output token that the trace covers."""

    step: npt.NDArray[np.int64]
    """Decode step that made the token, from 0; PREFILL for the first one."""
    place: npt.NDArray[np.int64]
    """Its place among the tokens of its step, from 0."""
    is_draft: npt.NDArray[np.bool_]
    """It is an accepted draft token; the last token of a step was sampled, and so was the prefill's."""

    def __len__(self) -> int:
        return len(self.step)


def steps_of(accepted: Sequence[int] | npt.NDArray[np.int64], length: int | None = None) -> TokenSteps:
    """The steps of the first `length` tokens (all that the trace covers, without it).

    `accepted`: draft tokens accepted in each decode step (`SpecTrace.accepted`), shape (S,). The prefill makes token 0,
    then every step makes its accepted drafts and one more.
    """
    counts = np.maximum(np.asarray(accepted, dtype=np.int64), 0)
    if length is not None:  # what a trace says beyond the tokens that there are makes no step
        counts = np.minimum(counts, length)
        counts = counts[: int(np.searchsorted(np.cumsum(counts + 1), length)) + 1]
    sizes = np.concatenate([[1], counts + 1])
    step = np.repeat(np.arange(PREFILL, len(counts)), sizes)
    place = np.arange(len(step)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_draft = place < np.repeat(sizes - 1, sizes)
    return TokenSteps(step[:length], place[:length], is_draft[:length])
