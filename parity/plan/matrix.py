"""Axes over engine settings: `--vary max_num_seqs=1,32` makes an arm for each value.

The arms of a run are the product of all axes. An arm's name says which of them it is, in the order in which
the axes were given: `cpu/k=3+seqs=32`. The same axes give the same names, so runs can be compared by name.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from parity.errors import ParityError
from parity.messages import Message, message
from parity.plan.parts import Arm
from parity.records import Json
from parity.records.engine_settings import cudagraph_mode, setting_called

SPECULATION: Final = "num_speculative_tokens"
"""This axis decides between `base` (0) and `mtp` (1 and more); no other reaches into the speculative settings."""

ENVIRONMENT: Final = "env."
"""An axis of this prefix is over an environment variable of the engine, not over one of its arguments."""

_FIXED: Final = ("model", "speculative_config")
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
MAX_ARMS: Final = 256
"""More arms than this are a slip of the finger: each is an engine start."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting and the values it takes. `name` is the engine's argument, dots lead into nested ones."""

    name: str
    values: tuple[Json, ...]

    @property
    def short(self) -> str:
        """As arms call it."""
        plain = self.name.removeprefix(ENVIRONMENT)
        row = setting_called(plain)
        return (row.short if row else "") or _UNSAFE.sub("_", plain.rpartition(".")[2])

    def label(self, value: Json) -> str:
        """`seqs=32`: safe in file names, command lines and lists separated by commas."""
        return f"{self.short}={_word(value)}"


def _word(value: Json) -> str:
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str):
        word = _UNSAFE.sub("_", value).strip("_")
        if word:
            return word
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def parse_axis(text: str) -> Axis:
    """From `NAME=V1,V2,…`; values are JSON or else text; one JSON list stands for the values in it.

    Raises ValueError with the part that is wrong.
    """
    name, found, given = text.partition("=")
    name = name.strip()
    if not found or not given.strip():
        raise ValueError(message("plan.not_an_axis", "{text!r} is not NAME=VALUE,VALUE,…", text=text))
    name = _argument(name)
    axis = Axis(name, tuple(_axis_values(name, given, text)))
    labels = [axis.label(value) for value in axis.values]
    repeated = [label for label in labels if labels.count(label) > 1]
    if repeated:
        raise ValueError(
            message("plan.value_twice", "{text!r} gives {repeated} twice", text=text, repeated=repeated[0])
        )
    return axis


def _argument(name: str) -> str:
    """The engine argument, or the path into one, that an axis named so varies. Raises ValueError."""
    row = setting_called(name)
    if row is not None and name != row.asked:
        name = row.name
    if not _PATH.fullmatch(name):
        raise ValueError(
            message(
                "plan.not_an_argument",
                "{name!r} is not the name of an engine argument (dots lead into nested ones)",
                name=name,
            )
        )
    if name.split(".")[0] in _FIXED:
        raise ValueError(
            message(
                "plan.cannot_vary",
                "{name} cannot be varied: use {speculation}, or --model in runs of their own",
                name=name,
                speculation=SPECULATION,
            )
        )
    return name


def _axis_values(name: str, given: str, text: str) -> list[Json]:
    """Raises ValueError."""
    whole = _json(given)
    values = whole if isinstance(whole, list) else [_json(part) for part in given.split(",")]
    if not values or any(isinstance(value, str) and not value.strip() for value in values):
        raise ValueError(message("plan.empty_value", "{text!r} holds an empty value", text=text))
    if name == SPECULATION and any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in values):
        raise ValueError(
            message(
                "plan.speculation_whole",
                "{speculation} takes whole numbers, 0 for no speculation",
                speculation=SPECULATION,
            )
        )
    if name.startswith(ENVIRONMENT):
        return [value if isinstance(value, str) else json.dumps(value) for value in values]
    return values


def _json(text: str) -> Json:
    text = text.strip()
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def check_axes(axes: Sequence[Axis], overrides: Mapping[str, Json]) -> None:
    """Raises ParityError where two axes, or an axis and a setting for all arms, concern the same thing."""
    for axis in axes:
        if sum(other.name == axis.name for other in axes) > 1:
            raise ParityError(
                message("plan.vary_names_twice", "--vary names {axis} twice", axis=axis.name),
                hint=message("plan.give_all_values", "give all its values in one --vary"),
            )
        if sum(other.short == axis.short for other in axes) > 1:
            raise ParityError(
                message(
                    "plan.two_axes_would",
                    "two axes would both be called {short!r} in the names of arms",
                    short=axis.short,
                ),
                hint=message(
                    "plan.vary_one_them", "vary one of them here, and set the other with --engine in runs of their own"
                ),
            )
        if axis.name in overrides:
            raise ParityError(
                message("plan.set_every_arm", "{axis} is set for every arm and varied as well", axis=axis.name),
                hint=message("plan.drop_one_engine", "drop one of --engine and --vary"),
            )
    arms = 1
    for axis in axes:
        arms *= len(axis.values)
    if arms > MAX_ARMS:
        raise ParityError(
            message(
                "plan.axes_make_combinations",
                "the axes make {arms} combinations, more than {max_arms}",
                arms=arms,
                max_arms=MAX_ARMS,
            ),
            hint=message("plan.vary_fewer_things", "vary fewer things in one run"),
        )


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of the axes: their settings, and its part of an arm's name."""

    settings: tuple[tuple[Axis, Json], ...] = ()

    @property
    def num_speculative_tokens(self) -> int | None:
        """The value on the axis of speculation; None without that axis."""
        return next((int(value) for axis, value in self.settings if axis.name == SPECULATION), None)

    def label(self, prefix: str = "") -> str:
        """`mtp+seqs=32`; without prefix and axes the empty string."""
        return "+".join([*([prefix] if prefix else []), *(axis.label(value) for axis, value in self.settings)])

    def without(self, name: str) -> Point:
        return Point(tuple((axis, value) for axis, value in self.settings if axis.name != name))


def points(axes: Sequence[Axis]) -> list[Point]:
    """The product of the axes, the last one changing fastest; one empty point without axes."""
    return [
        Point(tuple(zip(axes, values, strict=True))) for values in itertools.product(*(axis.values for axis in axes))
    ]


def apply(arm: Arm, point: Point) -> Arm:
    """The arm with a point's settings; speculation is not touched, the adapter has set it.

    A CUDA graph mode other than NONE needs `enforce_eager` off, so it is turned off with it.
    """
    engine = dict(arm.engine)
    env = dict(arm.env)
    for axis, value in point.settings:
        if axis.name == SPECULATION:
            continue
        if axis.name.startswith(ENVIRONMENT):
            env[axis.name.removeprefix(ENVIRONMENT)] = str(value)
            continue
        set_nested(engine, axis.name, value)
        if axis.name == "compilation_config.cudagraph_mode" and value != "NONE":
            engine["enforce_eager"] = False
    for axis, value in point.settings:  # an axis of its own has the last word
        if axis.name == "enforce_eager":
            engine["enforce_eager"] = value
    return replace(arm, engine=engine, env=env)


def set_nested(engine: dict[str, Json], path: str, value: Json) -> None:
    """Set `a.b.c` in nested mappings, copying what is changed. Raises ParityError where `a` is no mapping."""
    head, dot, rest = path.partition(".")
    if not dot:
        engine[head] = value
        return
    inner = engine.get(head)
    if inner is not None and not isinstance(inner, Mapping):
        raise ParityError(
            message(
                "plan.cannot_varied_not",
                "{path} cannot be varied: {head} is {inner!r}, not a mapping",
                path=path,
                head=head,
                inner=inner,
            ),
            hint=message("plan.vary_itself", "vary {head} itself", head=head),
        )
    nested = dict(inner or {})
    set_nested(nested, rest, value)
    engine[head] = nested


def contradiction(engine: Mapping[str, Json]) -> Message | None:
    """Why no engine could start with these settings, whatever the hardware; None where one could."""
    mode = cudagraph_mode(engine)
    if engine.get("enforce_eager") and mode not in (None, "NONE"):
        return message(
            "plan.no_graphs_eager",
            "enforce_eager=true captures no CUDA graphs, so cudagraph_mode={mode} would be NONE",
            mode=str(mode),
        )
    return None
