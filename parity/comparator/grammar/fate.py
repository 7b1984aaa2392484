"""May a text that follows a grammar go on in a given way? What every engine answers, and what engines answer otherwise.

xgrammar and llguidance read a grammar differently at its edges: whitespace, escapes, exponents, members that a schema
does not name, keywords that one of them ignores (`vllm/v1/structured_output/backend_xgrammar.py`, v0.32.0). There the
answer is open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from parity.comparator.grammar import automaton, ebnf, json_text
from parity.comparator.grammar.judge import FOLLOWS, Spec, choices_of, judge, may_be_ascii_alone

Json = Any


class Fate(Enum):
    """What grammar engines do with a token."""

    TAKEN = auto()
    """All of them take it."""
    REFUSED = auto()
    """None does."""
    OPEN = auto()
    """Not known, or not the same everywhere."""


def fate(spec: Spec, before: str, now: str) -> Fate:
    """Of a token that makes `now` of the text `before`, which has followed the grammar so far."""
    whole = now.rstrip(_HALF)
    if before.endswith(_HALF) or not now.startswith(before):
        return Fate.OPEN
    if whole == before:  # no character yet, but the first byte of one
        return Fate.REFUSED if len(now) > len(whole) and may_be_ascii_alone(spec, before) else Fate.OPEN
    now = whole
    if _refuses(spec, before, now[len(before)]) or judge(spec, now, whole=False).at is not None:
        return Fate.REFUSED
    is_read_alike = _is_usual(spec, before, now[len(before) :]) and _leaves_a_choice(spec, before)
    return Fate.TAKEN if is_read_alike and _is_taken(spec, now) else Fate.OPEN


def fate_of_end(spec: Spec, text: str) -> Fate:
    """Of an end after this text."""
    if text.endswith(_HALF):
        return Fate.OPEN
    said = judge(spec, text, whole=True)
    if said.at is not None:
        return Fate.REFUSED
    return Fate.TAKEN if said == FOLLOWS and (not text or _is_taken(spec, text)) else Fate.OPEN


@lru_cache(maxsize=512)
def _refuses(spec: Spec, before: str, char: str) -> bool:
    """Can no text go on with this character? Of many tokens few begin with another one."""
    return judge(spec, before + char, whole=False).at is not None


def _is_taken(spec: Spec, text: str) -> bool:
    """Does every engine take this beginning of a text?"""
    strict = _strict(spec)
    if strict is None:
        return False
    if spec.form not in ("json", "regex"):
        return judge(spec, text, whole=False) == FOLLOWS
    walked = automaton.walk(spec.form, strict, text)
    return walked is not None and walked.at is None


def _leaves_a_choice(spec: Spec, text: str) -> bool:
    """May several characters follow? Where one alone may, llguidance takes its own way to cut what must come into
    tokens, and no other (`LLMatcher.compute_ff_tokens`)."""
    if spec.form == "choice":
        choices = choices_of(spec.given) or ()
        return len({one[len(text) :][:1] for one in choices if one.startswith(text)}) > 1
    strict = _strict(spec)
    if strict is None or (spec.form == "grammar" and ebnf.is_ebnf(strict)):
        return strict is not None  # of llguidance's forms that is none
    walked = automaton.walk(spec.form, strict, text)
    return walked is not None and not walked.is_forced


def _is_usual(spec: Spec, before: str, added: str) -> bool:
    """Are these characters read alike by all engines, where a grammar has them?"""
    if spec.form != "json":
        return added.isascii() and added.isprintable()
    if not added.isascii() or "\\" in before[-1:] + added:
        return False
    inside, last = json_text.scan(before, takes_controls=True).is_in_string, before[-1:]
    for char in added:
        if char in json_text.SPACE and not inside:
            is_usual = _has_free_space(before)
        else:
            is_usual = char.isprintable() and (inside or (char not in "eE+" and last + char != "-0"))
        if not is_usual:
            return False
        inside, last = inside ^ (char == '"'), char
    return True


@lru_cache(maxsize=64)
def _has_free_space(text: str) -> bool:
    """Has an engine taken whitespace between the words of this JSON that is not the blank after a comma or a colon?
    Then it takes all (`any_whitespace`, `whitespace_flexible`)."""
    return bool(_FREE_SPACE.search(_STRINGS.sub('""', text)))


_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)', re.DOTALL)
_FREE_SPACE: Final = re.compile(r"[\t\r\n]|[^,:] |  ")

_HALF: Final = "\ufffd"
"""What stands for bytes that make no character yet."""

_PLAIN_REGEX: Final = re.compile(
    r"(?:\[\^?(?:\\[dws.\-\]\\/]|[^\[\]\\&~])+\]"  # a class of characters
    r"|\\[dws.\-\[\](){}*+?|/\\]"  # an escape
    r"|\((?!\?)|\(\?:"  # the beginning of a group
    r"|[^\[\\(^$])*"
)
"""Without anchors, flags, classes within classes and what looks around."""

_KEYWORDS: Final = frozenset(
    {
        "$defs", "$ref", "$schema", "additionalProperties", "anyOf", "const", "default", "definitions", "description",
        "enum", "examples", "items", "maxItems", "maxLength", "minItems", "minLength", "properties", "required",
        "title", "type",
    }
)  # fmt: skip
"""Keywords that engines read alike. A range of numbers is none: xgrammar writes it as so many digits."""


@lru_cache(maxsize=512)
def _strict(spec: Spec) -> str | None:
    """What no engine reads more narrowly: a schema with the members that it names and no other, as xgrammar reads it
    unless it says more. None where there is something that engines read differently."""
    if spec.has_edges:
        return None
    if spec.form == "regex":
        return spec.given if _PLAIN_REGEX.fullmatch(spec.given) else None
    if spec.form == "grammar":
        return None if "%" in spec.given else spec.given  # Lark's directives
    if spec.form != "json":
        return spec.given if spec.form == "choice" else None
    try:
        return json.dumps(_closed(json.loads(spec.given)))
    except (ValueError, RecursionError):
        return None


def _closed(schema: Json) -> Json:
    """Raises ValueError for a keyword that is not among `_KEYWORDS`."""
    if not isinstance(schema, Mapping):
        return schema
    if schema.keys() - _KEYWORDS:
        raise ValueError("a keyword that engines read differently")
    found = dict(schema)
    for name in ("properties", "$defs", "definitions"):
        if isinstance(schema.get(name), Mapping):
            found[name] = {key: _closed(value) for key, value in schema[name].items()}
    for name in ("items", "additionalProperties"):
        if name in schema:
            found[name] = _closed(schema[name])
    if isinstance(schema.get("anyOf"), list):
        found["anyOf"] = [_closed(one) for one in schema["anyOf"]]
    if isinstance(schema.get("properties"), Mapping):
        found.setdefault("type", "object")
    if found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found
