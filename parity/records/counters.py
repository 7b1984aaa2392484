"""What an engine counted, as it may be believed: counters come from other hosts and other writers.

A counter is shown and judged with arithmetic, so one that is no number must not get as far as that. What is not as it
should be is left out, and then nothing is claimed of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

from parity.records import Json

LARGEST: Final = 2**53
"""The largest whole number that JSON readers agree on."""
DEEPEST: Final = 6
"""Lists and objects inside each other; ours have three (counters of replicas)."""
LONGEST: Final = 100_000
"""Entries of one list or object. What was not scored is listed, an entry for each completion."""

_NUMBERS: Final = frozenset(
    {
        "steps", "arrivals_while_decoding", "aborted", "rows_joined", "rows_left", "rows_moved", "preemptions",
        "prefix_cache_hits", "tokens", "drafts", "draft_tokens", "accepted_tokens", "generation_tokens",
        "generate_seconds", "score_seconds", "engine_start_seconds", "tokens_per_second", "scored_tokens", "sequences",
        "resumed_completions", "replay_differences", "repeated_completions", "unscored", "top",
    }
)  # fmt: skip
_HISTOGRAMS: Final = frozenset({"batch_sizes"})
_ROWS: Final = frozenset({"accepted_per_pos"})


def sane(counters: Mapping[str, Json]) -> dict[str, Json]:
    """The counters without those that are not what their name says, and without what is too large or too deep."""
    return {name: value for name, value in counters.items() if _fits(name, value)}


def _fits(name: str, value: Json) -> bool:
    if name in _NUMBERS:
        return _is_count(value)
    if name in _HISTOGRAMS:
        return isinstance(value, Mapping) and all(_is_size(key) and _is_count(each) for key, each in value.items())
    if name in _ROWS:
        return isinstance(value, list) and len(value) <= LONGEST and all(map(_is_count, value))
    return _is_plain(value, DEEPEST)


def _is_count(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and isfinite(value) and 0 <= value <= LARGEST  # type: ignore[arg-type, operator]


def _is_size(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= 9


def _is_plain(value: object, depth: int) -> bool:
    if isinstance(value, bool | str) or value is None:
        return True
    if isinstance(value, int | float):
        return isfinite(value) and abs(value) <= LARGEST
    if depth == 0 or not isinstance(value, list | tuple | Mapping) or len(value) > LONGEST:
        return False
    inner = value.values() if isinstance(value, Mapping) else value
    return all(_is_plain(each, depth - 1) for each in inner)
