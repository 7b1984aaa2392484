"""The keywords that click hands over, gathered into typed values."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def gathered(function: F, name: str, kind: type[Any]) -> F:
    """The function, which gets `name`, a dataclass of this kind, in place of the keywords that are its fields."""
    return gathered_by(function, name, kind, [each.name for each in fields(kind)])


def gathered_by(function: F, name: str, make: Callable[..., Any], keywords: Collection[str]) -> F:
    """The function, which gets `name`, made of these keywords, in their place."""

    @wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        rest = {one: value for one, value in given.items() if one not in keywords}
        return function(*arguments, **rest, **{name: make(**{one: given[one] for one in keywords})})

    return cast(F, call)
