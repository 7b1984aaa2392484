"""What the settings of an engine say of the grammars of its requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

Json = Any

_EDGES = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")
"""Settings that move the edges of an engine's or a request's grammars (`vllm.sampling_params`)."""


def reasoning_parser(engine: Mapping[str, Json]) -> str | None:
    """The name of what lets a model think before the grammar begins, if anything does."""
    for name, value in engine.items():
        if name == "reasoning_parser" and value:
            return str(value)
        if isinstance(value, Mapping) and (found := reasoning_parser(value)):
            return found
    return None


def in_reasoning(engine: Mapping[str, Json]) -> bool:
    """Does the grammar hold for what a model thinks, too?"""
    return _has(engine, ("enable_in_reasoning",))


def has_edges(settings: Mapping[str, Json]) -> bool:
    """Do these settings change what a grammar takes?"""
    return _has(settings, _EDGES)


def _has(settings: Mapping[str, Json], names: Collection[str]) -> bool:
    """Is one of them on, however deep?"""
    for name, value in settings.items():
        if value and any(one in name for one in names):
            return True
        if isinstance(value, Mapping) and _has(value, names):
            return True
    return False
