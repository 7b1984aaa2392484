"""Compare two captures: pure functions, no files, no processes.

    result = compare(read_capture("base.jsonl"), read_capture("mtp.jsonl"), read_scores("scores.jsonl"))

Down the floors (comparing.py): inputs (was the same asked?), reference (how good is each token?), streams (where do
they part?), detect (what is wrong there?), population (what holds for the run?), conclude (what follows?).
docs/kinds.md defines every kind.
"""

from __future__ import annotations

from parity.comparator.comparing import compare
from parity.comparator.conclude.triangulate import Suspect, suspect_of_run, triangulate
from parity.comparator.types import DEFAULT_ALPHA, PINNED, CompareOptions, Comparison, CompletionClass
from parity.records import DEFAULT_TOLERANCE

__all__ = [
    "DEFAULT_ALPHA",
    "DEFAULT_TOLERANCE",
    "PINNED",
    "CompareOptions",
    "Comparison",
    "CompletionClass",
    "Suspect",
    "compare",
    "suspect_of_run",
    "triangulate",
]
