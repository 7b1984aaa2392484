"""JSON of others where an object is expected and anything may stand: headers, answers of servers, configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Any


def object_of(value: Json) -> Mapping[str, Any]:
    """The object; empty where something else stands."""
    return value if isinstance(value, Mapping) else {}


def texts_of(value: Json) -> dict[str, str]:
    """The object with its names and values as text; empty where something else stands."""
    return {str(name): str(one) for name, one in object_of(value).items()}
