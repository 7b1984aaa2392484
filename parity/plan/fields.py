"""Frozen types from JSON objects and TOML tables: msgspec checks each value against its field's type, and each mistake
names the file and the field.

A type is a dataclass or a `msgspec.Struct`. A field is read by its type, or by a function of its own:

    tolerance: Annotated[float | str, Read(parse_tolerance)]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from parity.errors import ParityError, said_by
from parity.messages import Message, message
from parity.records import Json

T = TypeVar("T")

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OBJECT: Final = message("plan.must_json_object", "must be a JSON object, not {value}")
_LIST: Final = message("plan.must_list", "must be a list, not {value}")
_MUST: Final[dict[Any, Message]] = {
    str: message("plan.must_string", "must be a string, not {value}"),
    int: message("plan.must_whole_number", "must be a whole number, not {value}"),
    float: message("plan.must_number", "must be a number, not {value}"),
    bool: message("plan.must_true_false", "must be true or false, not {value}"),
    tuple[int, int]: message("plan.two_whole_numbers", "must be two whole numbers, not {value}"),
}


@dataclass(frozen=True, eq=False)
class Hint:
    """What to write instead of a value that is not of its field's type."""

    hint: Message


@dataclass(frozen=True, eq=False)
class Read:
    """How a field is read: `parse` raises TypeError or ValueError with a message, `Wrong` where only a part of the
    value is wrong. `hint` says what to write instead."""

    parse: Callable[[Json], Any]
    hint: Message | None = None


class Wrong(ValueError):
    """What is wrong with a value, and `at` which place in it: `.requests[0].id`, or "" for the whole."""

    def __init__(self, problem: Message, at: str = "", hint: Message | None = None) -> None:
        super().__init__(problem)
        self.at = at
        self.hint = hint

    @property
    def field(self) -> str:
        return self.at.removeprefix(".")


def read(kind: type[T], value: Json, source: str) -> T:
    """A frozen type from a JSON object. Raises ParityError that names `source` and the field."""
    try:
        made: T = typed(kind, value)
    except Wrong as wrong:
        field = wrong.field or message("plan.the_file", "the file")
        raise ParityError(
            message(
                "plan.field_problem", "{source}: {field} {problem}", source=source, field=field, problem=said_by(wrong)
            ),
            hint=message("plan.correct_field_write", "correct the field, or write the plan again")
            if wrong.at
            else message("plan.plan_file", "is it a plan file?"),
        ) from None
    return made


def read_table(kind: type[T], table: Json, where: str, *, write: Message, hint: Message, **fixed: Any) -> T:
    """A frozen type from a table of a configuration file, which `where` names: "parity.toml: [policy]".

    write: what to do where it is no table. hint: what to do about a value, unless its field has a hint of its own.
    fixed: fields that do not stand in the table.

    Raises ParityError.
    """
    if not isinstance(table, dict):
        raise ParityError(message("plan.must_table_2", "{where} must be a table", where=where), hint=write)
    cached: Any = kind  # mypy takes no type[T] for a Hashable
    known = [name for name, each in _declared(cached).items() if each.attribute not in fixed]
    unknown = min(set(table) - set(known), default=None)
    if unknown is not None:
        raise ParityError(
            message("plan.no_setting", "{where} has no setting {unknown!r}", where=where, unknown=unknown),
            hint=message("plan.known", "known: {sections}", sections=known),
        )
    try:
        made: T = _made(kind, table, fixed)
    except Wrong as wrong:
        raise ParityError(
            message(
                "plan.host_setting", "{where}: {key} {problem}", where=where, key=wrong.field, problem=said_by(wrong)
            ),
            hint=wrong.hint or hint,
        ) from None
    return made


def typed(hint: Any, value: Json) -> Any:
    """A value of the type `hint`: a frozen type, or what `msgspec.convert` knows. Raises Wrong."""
    item, *more = get_args(hint) or (None,)
    if get_origin(hint) is Annotated:
        own = next((each for each in more if isinstance(each, Read)), None)
        return _of_constraints(hint, more, value) if own is None else _part("", own.hint, own.parse, value)
    if NoneType in more:
        return None if value is None else typed(item, value)
    if _is_object(hint):
        return _made(hint, typed(Mapping[str, Any], value), {})
    if not _is_object(item):
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError:
            pass  # which part of it is wrong is found below
    if more == [...] and isinstance(value, list):
        return tuple(_part(f"[{index}]", None, partial(typed, item), one) for index, one in enumerate(value))
    if get_origin(hint) is Mapping and isinstance(value, dict):
        return {name: _part(f".{name}", None, partial(typed, more[0]), one) for name, one in value.items()}
    must = _MUST.get(hint) or (_LIST if more == [...] else _OBJECT)
    raise Wrong(replace(must, parameters={"value": json.dumps(value, default=str)[:60]}))


def _of_constraints(hint: Any, marks: Sequence[Any], value: Json) -> Any:
    """A value of a type with `msgspec.Meta`, and what to write instead of one that is not."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        instead = next((each.hint for each in marks if isinstance(each, Hint)), None)
        raise Wrong(is_value(value), hint=instead) from None


def variables(value: Json) -> dict[str, str]:
    """Environment variables from a table of NAME = VALUE. Raises TypeError, ValueError."""
    if not isinstance(value, dict):
        raise TypeError(message("plan.must_environment", "must be a table of NAME = VALUE"))
    out: dict[str, str] = {}
    for name, item in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(
                message("plan.no_variable_name", "names {name!r}, which cannot be an environment variable", name=name)
            )
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise TypeError(message("plan.variable_text_number", "{name} must be text or a number", name=name))
        if "\0" in str(item):
            raise ValueError(message("plan.variable_nul", "{name} holds a NUL character", name=name))
        out[name] = str(item)
    return out


def is_value(value: Json) -> Message:
    return message("plan.is_value", "is {value}", value=json.dumps(value, default=str)[:60])


def _is_object(hint: Any) -> bool:
    return is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))


class _Field(NamedTuple):
    attribute: str
    hint: Any
    required: bool


@cache
def _declared(kind: Any) -> dict[str, _Field]:
    """The fields of a type by their names in the file."""
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        return {
            each.name: _Field(each.name, hints[each.name], each.default is MISSING and each.default_factory is MISSING)
            for each in fields(kind)
        }
    return {
        each.encode_name: _Field(each.name, hints[each.name], each.required) for each in msgspec.structs.fields(kind)
    }


def _made(kind: Any, given: Mapping[str, Json], fixed: Mapping[str, Any]) -> Any:
    declared = _declared(kind)
    unknown = min(set(given) - set(declared), default=None)
    if unknown is not None:
        raise Wrong(message("plan.unknown_field", "is unknown (known: {known})", known=list(declared)), f".{unknown}")
    values = dict(fixed)
    for name, each in declared.items():
        if name in given:
            values[each.attribute] = _part(f".{name}", None, partial(typed, each.hint), given[name])
        elif each.required and each.attribute not in fixed:
            if NoneType not in get_args(each.hint):
                raise Wrong(message("plan.is_missing", "is missing"), f".{name}")
            values[each.attribute] = None
    return kind(**values)


def _part(at: str, hint: Message | None, parse: Callable[[Json], Any], value: Json) -> Any:
    try:
        return parse(value)
    except Wrong as wrong:
        raise Wrong(said_by(wrong), at + wrong.at, wrong.hint or hint) from None
    except (TypeError, ValueError) as error:
        raise Wrong(said_by(error), at, hint) from None
