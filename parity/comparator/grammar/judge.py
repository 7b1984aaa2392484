"""One answer for all that a request may ask a completion to follow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from parity.comparator.grammar import automaton, ebnf, json_text, patterns, schema
from parity.comparator.grammar.engines import has_edges
from parity.records.objects import object_of
from parity.records.parameter import GRAMMARS

Json = Any
Form = Literal["json", "regex", "choice", "grammar"]


class Spec(Struct, frozen=True):
    """What a completion must follow."""

    form: Form | str
    """A form that is none of these cannot be checked."""
    given: str
    """A JSON schema, a regular expression, a JSON list of choices, or a grammar (EBNF, Lark)."""
    has_edges: bool = False
    """The request moved its edges (`engines.has_edges`)."""


class Answer(Struct, frozen=True):
    """`at`: the first character that cannot stand there, its length where the text ends too early; None: it follows,
    as far as `is_open` says."""

    at: int | None = None
    is_open: bool = False
    """It follows as far as is known: not all of the grammar could be looked at."""


FOLLOWS = Answer()
OPEN = Answer(is_open=True)


def spec_of(sampling: Mapping[str, Json]) -> Spec | None:
    """From sampling parameters, of vLLM's and OpenAI's names; None where nothing is asked."""
    for name in ("structured_outputs", "guided_decoding"):
        if found := object_of(sampling.get(name)):
            return _of_structured(found)
    asked = object_of(sampling.get("response_format"))
    if asked.get("type") in ("json_object", "json_schema"):
        wanted = object_of(asked.get("json_schema")).get("schema")
        return Spec("json", json.dumps(wanted if isinstance(wanted, Mapping) else {"type": "object"}))
    return None


def _of_structured(found: Mapping[str, Json]) -> Spec | None:
    for form in GRAMMARS:
        value = found.get(form)
        if value and isinstance(value, GRAMMARS[form]):
            given = value if isinstance(value, str) else json.dumps(value)
            return Spec(form, given, has_edges({name: one for name, one in found.items() if name != form}))
    if found.get("json_object"):
        return Spec("json", '{"type": "object"}', has_edges(found))
    other = [name for name, value in found.items() if value]
    return Spec(f"{other[0]}?", "") if other else None


def judge(spec: Spec, text: str, *, whole: bool) -> Answer:
    """Does a text follow? `whole`: it has come to its end; else more might have come."""
    judged = {"json": _json, "regex": _regex, "choice": _choice, "grammar": _grammar}.get(spec.form)
    return OPEN if judged is None else judged(spec.given, text, whole)


def goes_on(spec: Spec, text: str) -> bool | None:
    """Can anything but the end follow on a text that follows so far? None: not known."""
    if spec.form == "choice":
        choices = choices_of(spec.given)
        return None if choices is None else any(one.startswith(text) and one != text for one in choices)
    walked: automaton.Walk | ebnf.Walk | None
    if spec.form == "json":
        wanted = _schema(spec.given)
        scan = _scan(wanted, text)
        if scan.is_whole and not scan.plain[-1:].isdigit():
            return False  # but for whitespace, which no engine allows there
        walked = None if wanted is None else automaton.walk("json", _ordered(wanted, scan.keys), scan.plain)
        strict = automaton.walk("json", spec.given, scan.plain)
        if strict is not None and strict.is_over:
            return False  # to an engine that enforces more
    elif spec.form == "regex":
        walked = _along(spec.given, text)
    elif spec.form == "grammar":
        walked = _walked(spec.given, text)
    else:
        walked = None
    return None if walked is None else not walked.is_over


def may_be_ascii_alone(spec: Spec, text: str) -> bool:
    """Is it known that no character but those of ASCII can follow on a text that follows so far?"""
    if spec.form == "json":
        said = json_text.scan(text, takes_controls=True)
        return said.at is None and not said.is_in_string
    if spec.form == "regex":
        walked = _along(spec.given, text)
        return walked is not None and walked.is_ascii and not patterns.is_ambiguous(spec.given)
    if spec.form not in ("choice", "grammar"):
        return False
    return spec.given.isascii() and not any(one in spec.given for one in ("\\u", "\\x", "\\U", "[^", "%", "/"))


def choices_of(given: str) -> list[str] | None:
    """None where these are no texts."""
    try:
        choices = json.loads(given)
    except ValueError:
        return None
    return choices if isinstance(choices, list) and all(isinstance(one, str) for one in choices) else None


def _choice(given: str, text: str, whole: bool) -> Answer:
    choices = choices_of(given)
    if choices is None:
        return OPEN
    if text in choices if whole else any(one.startswith(text) for one in choices):
        return FOLLOWS
    shared = max(_shared(one, text) for one in choices)
    return Answer(shared)


def _shared(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(one), len(other)))


def _regex(given: str, text: str, whole: bool) -> Answer:
    walked = _along(given, text)
    if walked is not None:
        if walked.at is None and (walked.is_whole or not whole):
            return FOLLOWS
        return OPEN if patterns.is_ambiguous(given) else Answer(len(text) if walked.at is None else walked.at)
    compiled = patterns.compiled(patterns.widened(given))
    if not whole or compiled is None:
        return OPEN  # of another dialect
    return FOLLOWS if compiled.fullmatch(text) else Answer(len(text))


def _along(given: str, text: str) -> automaton.Walk | None:
    """Engines take `.` for any character, and anchors for nothing."""
    plain = given.removeprefix("^")
    if plain.endswith("$") and not plain.endswith("\\$"):
        plain = plain[:-1]
    return automaton.walk("regex", f"(?s:{patterns.widened(plain)})", text)


def _walked(given: str, text: str) -> automaton.Walk | ebnf.Walk | None:
    return ebnf.walk(given, text) if ebnf.is_ebnf(given) else automaton.walk("grammar", given, text)


def _grammar(given: str, text: str, whole: bool) -> Answer:
    walked = _walked(given, text)
    if walked is None:
        return OPEN
    if walked.at is not None:
        return Answer(walked.at)
    return FOLLOWS if walked.is_whole or not whole else Answer(len(text))


def _json(given: str, text: str, whole: bool) -> Answer:
    wanted = _schema(given)
    scan = _scan(wanted, text)
    if scan.at is not None:
        return Answer(scan.at)
    if whole and not scan.is_whole:
        return Answer(len(text))
    if wanted is None:
        return OPEN
    if scan.is_whole and schema.allows(wanted, scan.plain):
        return FOLLOWS
    if _may_be_meant(wanted, scan):
        return FOLLOWS
    if scan.has_escaped_key:
        return OPEN
    ordered = _ordered(wanted, scan.keys)
    walked = automaton.walk("json", ordered, scan.plain)
    if scan.is_whole and whole:
        return _whole_json(wanted, text, scan, walked)
    if walked is None:
        return OPEN
    if walked.at is None:
        return FOLLOWS
    # Members in an order that the schema has not: which of them may still come is not computed.
    is_free = ordered != json.dumps(wanted) or scan.has_disorder or _begins_again(scan) or _extra(wanted, scan)
    is_free = is_free or any(_waits(wanted, keys) for keys in scan.open_keys)
    return OPEN if is_free or scan.has_exponent else Answer(scan.place(walked.at, len(text)))


def _scan(wanted: Json, text: str) -> json_text.Scan:
    return json_text.scan(text, takes_controls=schema.names_lengths(wanted))


def _may_be_meant(wanted: Json, scan: json_text.Scan) -> bool:
    """Ends a text in the middle of a name that makes it follow? Any member that begins so may be meant, before those
    that the schema has first."""
    half, keys = scan.half_key, scan.keys
    if half is None:
        return False
    meant = [name for name in sorted(_members(wanted) - set(keys)) if name.startswith(half)]
    walks = [automaton.walk("json", _ordered(wanted, (*keys, name)), scan.plain) for name in meant]
    return any(one is not None and one.at is None for one in walks)


def _begins_again(scan: json_text.Scan) -> bool:
    return scan.half_key is not None and any(key.startswith(scan.half_key) for key in scan.keys)


def _whole_json(wanted: Json, text: str, scan: json_text.Scan, walked: automaton.Walk | None) -> Answer:
    """Of a text that is whole and must be."""
    if walked is None:
        return OPEN if schema.allows(wanted, scan.plain) is None else Answer(len(text))
    if walked.at is None and walked.is_whole:
        return FOLLOWS
    return Answer(len(text) if walked.at is None else scan.place(walked.at, len(text)))


def _ordered(wanted: Json, keys: tuple[str, ...]) -> str:
    return json.dumps(schema.in_order(wanted, keys))


def _extra(wanted: Json, scan: json_text.Scan) -> bool:
    """Does a text name members that the schema does not name and may allow?"""
    named = set(scan.keys) <= _members(wanted) and scan.half_key is None
    return not named and not _closed(wanted)


def _waits(wanted: Json, keys: Sequence[str]) -> bool:
    """Might an object with these members be one that the schema has in another order: needs it some before them?"""
    if isinstance(wanted, Mapping):
        members, needed = list(object_of(wanted.get("properties"))), wanted.get("required")
        places = [members.index(key) for key in keys if key in members]
        before = set(members[: max(places, default=0)]) - set(keys)
        is_needed = isinstance(needed, list) and any(one in before for one in needed)
        return is_needed or any(_waits(one, keys) for one in wanted.values())
    return any(_waits(one, keys) for one in wanted) if isinstance(wanted, list) else False


def _closed(wanted: Json) -> bool:
    """Do all objects have the members that are named, and no other?"""
    if isinstance(wanted, Mapping):
        named = isinstance(wanted.get("properties"), Mapping)
        is_object = named or wanted.get("type") == "object"
        return not (is_object and wanted.get("additionalProperties") is not False) and all(
            _closed(one) for one in wanted.values()
        )
    return all(_closed(one) for one in wanted) if isinstance(wanted, list) else True


def _members(wanted: Json) -> set[str]:
    if isinstance(wanted, Mapping):
        own = set(object_of(wanted.get("properties")))
        return own.union(*(_members(one) for one in wanted.values())) if wanted else own
    return set().union(*(_members(one) for one in wanted)) if isinstance(wanted, list) and wanted else set()


@lru_cache(maxsize=512)
def _schema(given: str) -> Json:
    """The schema as engines enforce it; None for one that is none."""
    try:
        return schema.relaxed(json.loads(given))
    except (ValueError, RecursionError):
        return None
