"""An option for each sampling parameter, made from its row, and the values that were given."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from parity.cli.speaking import Refused
from parity.errors import said_by
from parity.messages import message
from parity.records.sampling import Form, Parameter, Sampling, Value, asked


class Real(click.FloatRange):
    """A number within bounds; click takes "nan" for one that is within all of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            raise Refused(message("cli.not_number", "{value!r} is not a number", value=value), param, ctx)
        return number


class TokenIds(click.ParamType[tuple[int, ...]]):
    """Token ids separated by commas."""

    name = "id,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return tuple(int(one) for one in value.split(","))
        except ValueError:
            said = message("cli.not_token_ids", "{value!r} is not a list of token ids, such as 11,42", value=value)
            raise Refused(said, param, ctx) from None


class Bias(click.ParamType[tuple[int, float]]):
    """ID=NUMBER"""

    name = "id=number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        token, _, number = value.partition("=")
        try:
            return int(token), float(number)
        except ValueError:
            said = message("cli.not_bias", "{value!r} is not ID=NUMBER, such as 42=-5", value=value)
            raise Refused(said, param, ctx) from None


class WholeOrNone(click.IntRange):
    """A whole number within bounds, or none."""

    name = "integer|none"
    NONE: Final = "none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == self.NONE else super().convert(value, param, ctx)


class Grammar(click.ParamType[dict[str, Any]]):
    """KIND=VALUE: json=SCHEMA or json=@FILE, regex=…, choice=a,b, grammar=…"""

    name = "kind=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        kind, _, text = value.partition("=")
        try:
            if value.startswith("{"):  # a table of parity.toml
                return Form.GRAMMAR.read(json.loads(value))
            if text.startswith("@"):
                text = Path(text[1:]).read_text(encoding="utf-8")
            found: Any = text
            if kind == "json" or (kind == "choice" and text.startswith("[")):
                found = json.loads(text)
            elif kind == "choice":
                found = text.split(",")
            return Form.GRAMMAR.read({kind: found})
        except OSError as error:
            said = message("cli.cannot_read", "cannot read {path}: {said}", path=text[1:], said=str(error.strerror))
            raise Refused(said, param, ctx) from None
        except TypeError as error:
            said = message("cli.no_grammar", "{value!r}: {problem}", value=value, problem=said_by(error))
            raise Refused(said, param, ctx) from None
        except ValueError as error:
            said = message("cli.not_json", "{value!r} is not {kind}: {said}", value=value, kind=kind, said=str(error))
            raise Refused(said, param, ctx) from None


REPEATED: Final[Mapping[Form, tuple[Callable[[], click.ParamType[Any]], str]]] = {
    Form.TEXTS: (lambda: click.STRING, "TEXT"),
    Form.TOKENS: (TokenIds, "ID,…"),
    Form.BIAS: (Bias, "ID=NUMBER"),
}
"""Type and metavar of options that may be repeated."""


def sampling_options() -> list[Callable[[Any], Any]]:
    """The options, in the order of the table."""
    return [_option(row) for row in asked()]


def _option(row: Parameter) -> Callable[[Any], Any]:
    flag = f"--{row.name.replace('_', '-')}"
    if row.form is Form.FLAG and row.default:
        return click.option(f"{flag}/--no-{flag[2:]}", default=True, show_default=True, help=row.help)
    if row.form is Form.FLAG:
        return click.option(flag, is_flag=True, help=row.help)
    if row.form in REPEATED:
        made, metavar = REPEATED[row.form]
        return click.option(flag, type=made(), multiple=True, metavar=metavar, help=f"{row.help} Repeatable.")
    if row.form is Form.GRAMMAR:
        return click.option(flag, type=Grammar(), metavar="KIND=VALUE", help=row.help)
    kind: Any = Real if row.form is Form.NUMBER else click.IntRange
    bounded = row.least is not None or row.most is not None
    if row.usual is not None:
        kind = WholeOrNone
    number = kind(row.least, row.most, min_open=row.above_least) if bounded else click.INT
    return click.option(flag, type=number, default=row.default, show_default=row.default is not None, help=row.help)


def sampling_of(**options: Any) -> Sampling:
    """The parameters, from the values of the options above. Not checked yet."""
    return Sampling().having({row.name: _value(row, options[row.name]) for row in asked() if row.name in options})


def _value(row: Parameter, given: Any) -> Value:
    found: Value = None if given == WholeOrNone.NONE and row.usual is not None else given
    if row.form is Form.TOKENS:
        found = tuple(token for tokens in given for token in tokens)
    elif row.form is Form.BIAS:
        found = dict(given)
    return None if row.nullable and row.form in REPEATED and not found else found
