"""The flags of `vllm serve` as a parser of our own: nothing of vLLM is imported.

What each takes is data (`flags.json`, made by tools/make_serve_table.py from a newest release); engine arguments that
other releases had are known by the table of signatures, and their values are read as they look.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import json
import re
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, NoReturn

from parity.errors import ParityError
from parity.messages import Message, message
from parity.records.engine_settings import indispensable_settings
from parity_backends.vllm.worker.arguments import names_at
from parity_backends.vllm.worker.table import VLLM_NAMES

ANY = "any"
"""A flag of another release, of which only the name is known."""

OF_THE_SERVER = frozenset({"model", "served_model_name", "hf_token", "enable_log_requests"})
"""Fields of the engine's arguments that say nothing about how it computes, and a secret."""

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""As vLLM reads them (`human_readable_int`, utils/argparse_utils.py, 0.32)."""

_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])")


@functools.cache
def table() -> Mapping[str, Any]:
    """`short`: names by short flag; `engine` and `server`: names by what they take."""
    text = resources.files("parity_backends.vllm.serve").joinpath("flags.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


@functools.cache
def kinds(part: str) -> Mapping[str, str]:
    """What each flag of `engine` or of `server` takes."""
    return {name: kind for kind, names in table()[part].items() for name in names.split()}


def is_aside(name: str) -> bool:
    """Whether a flag is left out of an arm: it is about the server, or an arm cannot be compared with another value."""
    return name in kinds("server") or name in OF_THE_SERVER or name in indispensable_settings()


class Parser(argparse.ArgumentParser):
    """argparse that raises ParityError."""

    def error(self, message_: str) -> NoReturn:
        raise refused(message_)


def refused(said: Message | str) -> ParityError:
    return ParityError(
        message("serve.refused", "`vllm serve` would not take this: {said}", said=said),
        hint=message("serve.copy", "hand over the command as it stands in your script, in one pair of quotation marks"),
    )


@functools.cache
def parser() -> Parser:
    """With every flag that is known; a value that is not given is not in the result."""
    made = Parser(prog="vllm serve", add_help=False, argument_default=argparse.SUPPRESS)
    made.add_argument("model_tag", nargs="?")
    shorts: dict[str, list[str]] = {}
    for short, name in table()["short"].items():
        shorts.setdefault(name, []).append(short)
    known = {**kinds("server"), **kinds("engine")}
    for name in sorted(names_at(VLLM_NAMES["LLM"], None) - known.keys()):
        known[name] = ANY
    for name, kind in known.items():
        options: dict[str, Any] = dict(_TAKES[kind])
        made.add_argument(*shorts.get(name, ()), "--" + name.replace("_", "-"), dest=name, **options)
    return made


def unknown(flag: str) -> ParityError:
    """For a flag that no release has."""
    name = flag.partition("=")[0]
    known = [option for action in parser()._actions for option in action.option_strings]
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=1)
    said = message("serve.unknown", "`vllm serve` has no flag {flag}, in no release that is known", flag=name)
    if near:
        said = message("serve.meant", "{problem}; did you mean {near}?", problem=said, near=near[0])
    return ParityError(
        said,
        hint=message(
            "serve.newer", "correct it; a flag newer than this parity goes into --engine NAME=VALUE, for every arm"
        ),
    )


# ------------------------------------------------------------------ values


def _optional(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        return None if text in ("", "None") else read(text)

    value.__name__ = read.__name__.strip("_").replace("_", " ")  # argparse says "invalid whole number value: …"
    return value


def _whole_number(text: str) -> int:
    if text == "auto":  # of max_model_len: as much as fits
        return -1
    human = _HUMAN.fullmatch(text)
    return int(float(human.group(1)) * _SUFFIXES[human.group(2)]) if human else int(text)


def _number(text: str) -> float:
    return float(text)


def _json(text: str) -> Any:
    return json.loads(text)


def _text(text: str) -> Any:
    return json.loads(text) if re.fullmatch(r"(?s)\s*{.*}\s*", text) else text


def _any(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _one(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


_TAKES: Mapping[str, Mapping[str, Any]] = {
    "switch": {"action": argparse.BooleanOptionalAction},
    "int": {"type": _optional(_whole_number)},
    "float": {"type": _optional(_number)},
    "json": {"type": _optional(_json)},
    "text": {"type": _optional(_text)},
    "list": {"type": _one, "nargs": "+"},
    ANY: {"type": _optional(_any), "nargs": "?", "const": True},
}
