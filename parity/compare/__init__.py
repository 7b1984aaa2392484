"""Compare two captures: pure functions, no files, no processes.

    result = compare(read_capture("base.jsonl"), read_capture("mtp.jsonl"), read_scores("scores.jsonl"))

The order of questions: was the same asked (verdict.py, pairs.py), is everything there (completeness.py), do the
tokens agree and are differing ones supported (greedy.py, structure.py, leak.py; sampled.py where sampling is
random), does the engine tell the truth about its output (integrity.py, stops.py), and what follows for the run
(population.py, verdict.py). docs/kinds.md defines every kind.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from parity.compare.run import compare
from parity.compare.triangulate import Suspect, triangulate
from parity.compare.types import CompareOptions, Comparison, CompletionClass
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


class _Callable(ModuleType):
    """`parity.compare(a, b)`: this package carries the name of the function of the Python interface (docs/api.md)."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return import_module("parity.api").compare(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
