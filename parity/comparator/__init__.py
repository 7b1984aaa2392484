"""Compare two captures: pure functions, no files, no processes.

    result = compare(read_capture("base.jsonl"), read_capture("mtp.jsonl"), read_scores("scores.jsonl"))

The order of questions: was the same asked (verdict.py, pairs.py), is everything there (completeness.py), do the
tokens agree and are differing ones supported (greedy.py, structure.py, leak.py; sampled.py where sampling is
random), does the engine tell the truth about its output (integrity.py, stops.py), and what follows for the run
(population.py, verdict.py). docs/kinds.md defines every kind.
"""

from __future__ import annotations

from parity.comparator.comparing import compare
from parity.comparator.conclude.triangulate import Suspect, triangulate
from parity.comparator.types import CompareOptions, Comparison, CompletionClass
from parity.records import DEFAULT_TOLERANCE

__all__ = [
    "DEFAULT_TOLERANCE",
    "CompareOptions",
    "Comparison",
    "CompletionClass",
    "Suspect",
    "compare",
    "triangulate",
]
