"""JSON schemas as grammar engines read them.

What an engine may legally leave unenforced is taken out (xgrammar 0.2.8 and llguidance 1.9 ignore or approximate it:
`vllm/v1/structured_output/backend_xgrammar.py`), so that a text that is refused here is refused by all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from parity.comparator.grammar import patterns

Json = Any

_MAPS: Final = ("properties", "$defs", "definitions")
_ONE: Final = ("additionalProperties", "items")
_SHARED: Final = ("$id", "$defs", "definitions")
"""Keywords that say nothing of a text themselves."""
_ALONE: Final = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
"""Of these xgrammar takes the first that stands in a schema, and no keyword beside it
(`SchemaParser::Parse`, cpp/json_schema_converter.cc)."""
_OF_ARRAYS: Final = ("prefixItems", "items", "minItems", "maxItems")
_OF_TYPES: Final = (
    "type", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
)  # fmt: skip
"""Keywords that xgrammar heeds where the schema names a type."""


def relaxed(schema: Json) -> Json:
    """The schema with what every grammar engine enforces, and no more."""
    if not isinstance(schema, Mapping):
        return schema
    shared = {name: _within(name, schema[name]) for name in _SHARED if name in schema}
    alone = next((name for name in _ALONE if name in schema), None)
    return {**shared, **(_of_keywords(schema) if alone is None else _of_one(alone, schema[alone]))}


def names_lengths(schema: Json) -> bool:
    """Has it strings of so many characters? xgrammar takes any character in them but quotes and ends of lines."""
    if isinstance(schema, Mapping):
        return not schema.keys().isdisjoint(("minLength", "maxLength")) or any(map(names_lengths, schema.values()))
    return any(map(names_lengths, schema)) if isinstance(schema, list) else False


def _within(name: str, value: Json) -> Json:
    """The value of a keyword, with the schemas in it relaxed."""
    if name in _MAPS and isinstance(value, Mapping):
        return {key: relaxed(one) for key, one in value.items()}
    if isinstance(value, list) and name in ("anyOf", "prefixItems"):
        return [relaxed(one) for one in value]
    return relaxed(value) if name in _ONE else value


def _of_one(name: str, value: Json) -> dict[str, Json]:
    if name == "oneOf":  # taken for anyOf where it cannot be expressed
        return {"anyOf": _within("anyOf", value)}
    if name == "allOf":  # of several xgrammar enforces none
        only = value[0] if isinstance(value, list) and len(value) == 1 else None
        return dict(relaxed(only)) if isinstance(only, Mapping) else {}
    return {name: _within(name, value)}


def _of_keywords(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Of a schema that stands for itself."""
    kept = ["properties", "additionalProperties"]
    if "patternProperties" in schema or "unevaluatedProperties" in schema:
        kept.remove("additionalProperties")
    has_type = "type" in schema
    kept += _OF_TYPES if has_type else ()
    kept += _OF_ARRAYS if has_type or "items" in schema or "prefixItems" in schema else ()
    found = {name: _within(name, schema[name]) for name in kept if name in schema}
    named, needed = schema.get("properties"), schema.get("required")
    if isinstance(named, Mapping) and isinstance(needed, list):  # xgrammar asks for no member that is not described
        found["required"] = [name for name in needed if isinstance(name, str) and name in named]
    pattern = schema.get("pattern")
    if "format" in schema or pattern is not None:  # xgrammar heeds the first of format, pattern and length
        found = {name: value for name, value in found.items() if name not in ("minLength", "maxLength")}
    if has_type and "format" not in schema and isinstance(pattern, str) and _is_plain(pattern):
        found["pattern"] = patterns.widened(pattern)
    return found


def _is_plain(pattern: str) -> bool:
    return not patterns.is_ambiguous(pattern) and patterns.compiled(pattern) is not None


def in_order(schema: Json, keys: Sequence[str]) -> Json:
    """The schema with members in the order of `keys`, the others after them: which one comes first is free."""
    rank = {key: place for place, key in enumerate(keys)}
    if isinstance(schema, Mapping):
        found = {name: in_order(value, keys) for name, value in schema.items()}
        if isinstance(schema.get("properties"), Mapping):
            members = found["properties"]
            found["properties"] = {name: members[name] for name in sorted(members, key=lambda n: rank.get(n, 1 << 30))}
        return found
    return [in_order(one, keys) for one in schema] if isinstance(schema, list) else schema


def allows(schema: Json, text: str) -> bool | None:
    """Is a whole JSON text valid? None without the package jsonschema, or where it cannot read the schema."""
    try:
        import jsonschema
        from jsonschema.exceptions import UnknownType
        from referencing.exceptions import Unresolvable
    except ImportError:
        return None
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))
    except (Unresolvable, UnknownType, TypeError, ValueError, RecursionError, AttributeError, jsonschema.SchemaError):
        return None  # keywords with values of other types
