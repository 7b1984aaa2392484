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
_MANY: Final = ("anyOf", "allOf", "prefixItems")
_PLAIN: Final = (
    "$id", "$ref", "type", "enum", "const", "required", "minItems", "maxItems", "minLength", "maxLength", "minimum",
    "maximum", "exclusiveMinimum", "exclusiveMaximum",
)  # fmt: skip
"""Keywords that are kept."""


def relaxed(schema: Json) -> Json:
    """The schema with what every grammar engine enforces, and no more."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Json] = {name: schema[name] for name in _PLAIN if name in schema}
    for name in _MAPS:
        if isinstance(schema.get(name), Mapping):
            found[name] = {key: relaxed(value) for key, value in schema[name].items()}
    for name in _ONE:
        if name in schema:
            found[name] = relaxed(schema[name])
    for name in _MANY:
        if isinstance(schema.get(name), list):
            found[name] = [relaxed(one) for one in schema[name]]
    if isinstance(schema.get("oneOf"), list):  # taken for anyOf where it cannot be expressed
        either = {"anyOf": [relaxed(one) for one in schema["oneOf"]]}
        found = {**found, **either} if "anyOf" not in found else {**found, "allOf": [*found.get("allOf", ()), either]}
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not patterns.is_ambiguous(pattern) and patterns.compiled(pattern) is not None:
        found["pattern"] = patterns.widened(pattern)
    if "patternProperties" in schema or "unevaluatedProperties" in schema:
        found.pop("additionalProperties", None)
    return found


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
        from referencing.exceptions import Unresolvable
    except ImportError:
        return None
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))
    except (Unresolvable, TypeError, ValueError, RecursionError, AttributeError, jsonschema.SchemaError):
        return None  # keywords with values of other types
