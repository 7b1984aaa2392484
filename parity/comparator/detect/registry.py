"""The detectors of a greedy run, in the order in which they are asked. A new kind is a row in
parity/records/kind_rows.py and a detector here."""

from __future__ import annotations

from typing import Final

from parity.comparator.detect import (
    broken,
    divergences,
    ends,
    invalid_tokens,
    logprobs,
    near_ties,
    other_penalties,
    overlaps,
    penalties,
    row_leaks,
    single_logprobs,
    texts,
)
from parity.comparator.detect.cases import Detector

BEFORE: Final = (
    broken.DETECTOR,
    invalid_tokens.DETECTOR,
    divergences.DETECTOR,
    row_leaks.TAKEN,
    ends.DETECTOR,
    row_leaks.DETECTOR,
    penalties.DETECTOR,
)
AFTER: Final = (
    overlaps.DETECTOR,
    near_ties.DOUBTFUL,
    other_penalties.DETECTOR,
    logprobs.DETECTOR,
    texts.DETECTOR,
    single_logprobs.DETECTOR,
    near_ties.DETECTOR,
)
_more: list[Detector] = []


def detectors() -> tuple[Detector, ...]:
    """All detectors. Those that were registered come before it is decided which of several explanations stands."""
    return *BEFORE, *_more, *AFTER


def register(detector: Detector) -> None:
    _more.append(detector)


def forget(detector: Detector) -> None:
    """Undo `register`."""
    _more.remove(detector)
