"""Frozen types from JSON objects: msgspec checks each value against its field's type, and each mistake names the file
and the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, partial
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from parity.errors import ParityError, said_by
from parity.messages import Message, message
from parity.records import Json

T = TypeVar("T")

_OBJECT: Final = message("plan.must_json_object", "must be a JSON object, not {value}")
_LIST: Final = message("plan.must_list", "must be a list, not {value}")
_MUST: Final[dict[Any, Message]] = {
    str: message("plan.must_string", "must be a string, not {value}"),
    int: message("plan.must_whole_number", "must be a whole number, not {value}"),
    float: message("plan.must_number", "must be a number, not {value}"),
    bool: message("plan.must_true_false", "must be true or false, not {value}"),
    tuple[int, int]: message("plan.two_whole_numbers", "must be two whole numbers, not {value}"),
}


class Wrong(ValueError):
    """What is wrong with a value, and `at` which place in it: `.requests[0].id`, or "" for the whole."""

    def __init__(self, problem: Message, at: str = "") -> None:
        super().__init__(problem)
        self.at = at


def read(kind: type[T], value: Json, source: str) -> T:
    """A frozen dataclass from a JSON object. Raises ParityError that names `source` and the field.

    A field is read by its type, or by the function in its metadata: `field(metadata={"read": parse})`, which raises
    TypeError or ValueError with a message, `Wrong` where only a part of the value is.
    """
    try:
        made: T = typed(kind, value)
    except Wrong as wrong:
        field = wrong.at.removeprefix(".") or message("plan.the_file", "the file")
        raise ParityError(
            message(
                "plan.field_problem", "{source}: {field} {problem}", source=source, field=field, problem=said_by(wrong)
            ),
            hint=message("plan.correct_field_write", "correct the field, or write the plan again")
            if wrong.at
            else message("plan.plan_file", "is it a plan file?"),
        ) from None
    return made


def typed(hint: Any, value: Json) -> Any:
    """A value of the type `hint`: a dataclass, or what `msgspec.convert` knows. Raises Wrong."""
    item, *more = get_args(hint) or (None,)
    if NoneType in more:
        return None if value is None else typed(item, value)
    if is_dataclass(hint):
        return _dataclass(hint, value)
    if not is_dataclass(item):
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError:
            pass  # which part of it is wrong is found below
    if more == [...] and isinstance(value, list):
        return tuple(_part(f"[{index}]", partial(typed, item), one) for index, one in enumerate(value))
    if get_origin(hint) is Mapping and isinstance(value, dict):
        return {name: _part(f".{name}", partial(typed, more[0]), one) for name, one in value.items()}
    must = _MUST.get(hint) or (_LIST if more == [...] else _OBJECT)
    raise Wrong(replace(must, parameters={"value": json.dumps(value, default=str)[:60]}))


def _dataclass(kind: Any, value: Json) -> Any:
    given = typed(Mapping[str, Any], value)
    hints, declared = _hints(kind), {each.name: each for each in fields(kind)}
    unknown = min(set(given) - set(declared), default=None)
    if unknown is not None:
        raise Wrong(message("plan.unknown_field", "is unknown (known: {known})", known=list(declared)), f".{unknown}")
    left_out = [
        name
        for name, each in declared.items()
        if name not in given and each.default is MISSING and each.default_factory is MISSING
    ]
    for name in left_out:
        if NoneType not in get_args(hints[name]):
            raise Wrong(message("plan.is_missing", "is missing"), f".{name}")
    readers = {name: declared[name].metadata.get("read") or partial(typed, hints[name]) for name in given}
    return kind(**dict.fromkeys(left_out), **{name: _part(f".{name}", readers[name], given[name]) for name in given})


def _part(at: str, parse: Callable[[Json], Any], value: Json) -> Any:
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        raise Wrong(said_by(error), at + (error.at if isinstance(error, Wrong) else "")) from None


_hints: Final = cache(get_type_hints)
