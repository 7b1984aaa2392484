"""How deep JSON of others may be: what is read deeper than some 250 lists and objects cannot be written again."""

from __future__ import annotations

from typing import Any, Final

DEEPEST: Final = 32
"""Lists and objects inside each other in a worker's header; vLLM's configuration has five."""
DEEPEST_PLAN: Final = 96
"""In a plan, which may hold JSON schemas."""


def is_shallow(value: Any, depth: int = DEEPEST) -> bool:
    """Whether no more than `depth` lists and objects lie in each other."""
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(is_shallow(one, depth - 1) for one in inner)
