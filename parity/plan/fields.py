"""Reading JSON objects field by field, each mistake naming the file and the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from parity.errors import ParityError, said_by
from parity.messages import Message, message
from parity.records import Json

_MISSING: Final = object()


class Fields:
    """A JSON object whose fields are taken one by one, each mistake naming file and field."""

    def __init__(self, value: Json, source: str, at: str) -> None:
        self.source, self.at = source, at
        if not isinstance(value, dict):
            raise ParityError(
                message(
                    "plan.must_json_object",
                    "{source}: {at} must be a JSON object, not {value}",
                    source=source,
                    at=at or "the file",
                    value=type(value).__name__,
                ),
                hint=message("plan.plan_file", "is it a plan file?"),
            )
        self.value: dict[str, Json] = value

    def error(self, name: str, problem: Message) -> ParityError:
        where = f"{self.at}.{name}" if self.at else name
        return ParityError(
            message(
                "plan.field_problem", "{source}: {field} {problem}", source=self.source, field=where, problem=problem
            ),
            hint=message("plan.correct_field_write", "correct the field, or write the plan again"),
        )

    def take(self, name: str, parse: Callable[[Json], Any], default: Any = _MISSING) -> Any:
        if name not in self.value:
            if default is _MISSING:
                raise self.error(name, message("plan.is_missing", "is missing"))
            return default
        try:
            return parse(self.value[name])
        except (TypeError, ValueError) as error:
            raise self.error(name, said_by(error)) from None

    def sub(self, name: str, default: Any = _MISSING) -> Fields:
        where = f"{self.at}.{name}" if self.at else name
        return Fields(self.take(name, lambda value: value, default), self.source, where)

    def items(self, name: str, default: Any = _MISSING) -> list[Fields]:
        value = self.take(name, json_list, default)
        return [Fields(item, self.source, f"{name}[{index}]") for index, item in enumerate(value)]


def _found(value: Json) -> str:
    return json.dumps(value)[:60]


def string(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(message("plan.must_string", "must be a string, not {value}", value=_found(value)))
    return value


def optional_string(value: Json) -> str | None:
    return None if value is None else string(value)


def whole_number(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(message("plan.must_whole_number", "must be a whole number, not {value}", value=_found(value)))
    return value


def optional_int(value: Json) -> int | None:
    return None if value is None else whole_number(value)


def number(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(message("plan.must_number", "must be a number, not {value}", value=_found(value)))
    return float(value)


def boolean(value: Json) -> bool:
    if not isinstance(value, bool):
        raise TypeError(message("plan.must_true_false", "must be true or false, not {value}", value=_found(value)))
    return value


def json_list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(message("plan.must_list", "must be a list, not {value}", value=_found(value)))
    return value


def whole_numbers(value: Json) -> tuple[int, ...]:
    return tuple(whole_number(item) for item in json_list(value))


def strings(value: Json) -> tuple[str, ...]:
    return tuple(string(item) for item in json_list(value))


def string_map(value: Json) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError(
            message("plan.must_string_map", "must be an object of strings, not {value}", value=_found(value))
        )
    return {name: string(item) for name, item in value.items()}
