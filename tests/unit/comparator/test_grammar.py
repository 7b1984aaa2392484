"""Texts, and beginnings of texts, against the grammars that a request may ask for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparator.grammar import Answer, Spec, automaton, ebnf, goes_on, json_text, judge, spec_of

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "ages": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "kind": {"enum": ["a", "b"]},
    },
    "required": ["name", "ages"],
    "additionalProperties": False,
}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
people = st.fixed_dictionaries(
    {"name": st.text(max_size=5), "ages": st.lists(st.integers(0, 10**6), max_size=3)},
    optional={"kind": st.sampled_from("ab")},
)
styles = st.fixed_dictionaries({"ensure_ascii": st.booleans(), "indent": st.sampled_from([None, 0, 2])})


def reads(text: str) -> bool:
    try:
        json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return True


@settings(deadline=None)
@given(values, styles)
def test_a_json_text_is_whole_and_each_beginning_of_it_is_one(value: Any, style: dict[str, Any]) -> None:
    text = json.dumps(value, **style)
    found = json_text.scan(text)
    assert (found.at, found.is_whole) == (None, True)
    assert len(found.plain) == len(found.places)
    assert [end for end in range(len(text)) if json_text.scan(text[:end]).at is not None] == []


@settings(deadline=None)
@given(st.text('{}[]",:01-.e tfn\\u\n', max_size=12))
def test_any_text_is_json_where_python_says_so(text: str) -> None:
    found = json_text.scan(text)
    assert found.is_whole == (found.at is None and reads(text))
    if found.at is not None:
        assert not reads(text)
        assert json_text.scan(text[: found.at]).at is None


@settings(deadline=None)
@given(people, styles, st.permutations(["name", "ages", "kind"]), st.data())
def test_what_a_schema_allows_follows_however_it_is_written(
    person: dict[str, Any], style: dict[str, Any], order: list[str], data: st.DataObject
) -> None:
    text = json.dumps({name: person[name] for name in order if name in person}, **style)
    spec = Spec("json", json.dumps(SCHEMA))
    assert judge(spec, text, whole=True) == Answer()
    assert judge(spec, text[: data.draw(st.integers(0, len(text)))], whole=False).at is None


@pytest.mark.parametrize(
    ("text", "whole", "at"),
    [
        ('{"name": 1', False, 9),
        ('{"name": "abcdef', False, 15),
        ('{"nane"', False, 4),
        ('{"name": "\x7f', False, None),
        ('{"name":"a","ages":[1,-', False, 22),
        ('{"name":"a","ages":[]}x', False, 22),
        ('{"name":"a"}', True, 11),
        ('{"name":"a","ages":[1]', True, 22),
        ("Sure: {}", False, 0),
        ('{"name":"a","ages":[],"kind":"c"}', True, 30),
    ],
)
def test_where_a_text_leaves_its_schema(text: str, whole: bool, at: int | None) -> None:
    assert judge(Spec("json", json.dumps(SCHEMA)), text, whole=whole).at == at


def test_two_objects_may_have_their_members_in_two_orders() -> None:
    spec = Spec("json", json.dumps({"type": "array", "items": SCHEMA}))
    text = '[{"ages": [], "name": ""}, {"name": "", "ages": []}]'
    assert [end for end in range(len(text)) if judge(spec, text[:end], whole=False).at is not None] == []


NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["v"],
    "additionalProperties": False,
}
JOINED = [
    {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name], "additionalProperties": True}
    for name in "ab"
]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, '{"v": 1, "kids": [{"kids": [], "v": 2}]}'),
        ({"allOf": JOINED[1:]}, '{"b": 2, "a": 1}'),
    ],
    ids=["another order inside", "in one part"],
)
def test_the_beginning_of_what_follows_does_too(schema: dict[str, Any], text: str) -> None:
    spec = Spec("json", json.dumps(schema))
    assert judge(spec, text, whole=True) == Answer()
    assert [end for end in range(len(text)) if judge(spec, text[:end], whole=False).at is not None] == []
    wrong = text.replace("2", "true")
    assert judge(spec, wrong, whole=True).at is not None


def test_a_number_may_be_written_with_an_exponent() -> None:
    spec = Spec("json", '{"type": "array", "items": {"type": "number", "minimum": 0}}')
    for text in ("[1e", "[1e-", "[1e-7, 3", "[1e-7, 3]"):
        assert judge(spec, text, whole=text.endswith("]")).at is None


def test_what_engines_need_not_enforce_is_no_violation() -> None:
    loose = {"oneOf": [{"type": "integer"}, {"type": "number"}], "multipleOf": 2, "not": {"const": 3}}
    assert judge(Spec("json", json.dumps(loose)), "3", whole=True) == Answer()
    patterns = {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}
    assert judge(Spec("json", json.dumps(patterns)), '{"ab": 1}', whole=True) == Answer()


NAMED = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"minimum": 3}, "0"),
        ({"maxLength": 1}, '"ab"'),
        ({"pattern": "^a$"}, '"b"'),
        ({"minItems": 2}, "[1]"),
        ({"required": ["a"]}, "{}"),
        ({**NAMED, "required": ["b"]}, '{"a": 1}'),
        ({"enum": [1, "x"], "type": "integer"}, '"x"'),
        ({"enum": ["ab"], "maxLength": 1}, '"ab"'),
        ({**NAMED, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, '{"a": "x"}'),
        ({"oneOf": [{"type": "string"}], "maxLength": 1}, '"ab"'),
        ({"allOf": JOINED}, "3"),
        ({"allOf": [NAMED], "required": ["a"]}, "{}"),
        ({"$ref": "#/$defs/S", "maxLength": 1, "$defs": {"S": {"type": "string"}}}, '"ab"'),
        ({"$ref": "#/$defs/S", "$defs": {"S": {"minimum": 3}}}, "0"),
        ({"type": "string", "pattern": "^a+$", "minLength": 2}, '"a"'),
        ({"type": "string", "format": "date", "maxLength": 1}, '"2020-01-01"'),
        ({"type": "string", "maxLength": 3}, '"\t\x01"'),
        ({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}, '{"a": "\t"}'),
        ({"type": "object", "properties": {"é": {"type": "integer"}}}, '{"\\u00e9": "x"}'),
    ],
)
def test_what_one_engine_leaves_out_of_a_schema_is_no_violation(schema: dict[str, Any], text: str) -> None:
    """xgrammar 0.2.8 heeds one of the keywords that stand for a whole schema, and those of a type where it is named;
    llguidance takes a name with an escape for one that is not described."""
    spec = Spec("json", json.dumps(schema))
    assert [end for end in range(len(text)) if judge(spec, text[:end], whole=False).at is not None] == []
    assert judge(spec, text, whole=True).at is None


@pytest.mark.parametrize(
    ("schema", "text", "at"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "x"}', 6),
        ({**NAMED, "required": ["a", "b"]}, "{}", 1),
        ({"items": {"type": "integer"}, "maxItems": 1}, "[1, 2]", 2),
        ({"anyOf": [{"type": "string", "maxLength": 1}], "minimum": 3}, '"ab"', 2),
        ({"allOf": [{"$ref": "#/$defs/S"}], "$defs": {"S": {"type": "string"}}}, "1", 0),
        ({"type": "string", "maxLength": 3}, '"\n"', 1),
        ({"type": "string"}, '"\t"', 1),
    ],
)
def test_what_every_engine_enforces_of_such_a_schema_is_one(schema: dict[str, Any], text: str, at: int) -> None:
    spec = Spec("json", json.dumps(schema))
    assert min(end for end in range(len(text) + 1) if judge(spec, text[:end], whole=False).at is not None) > at
    assert judge(spec, text, whole=True).at is not None


def test_nothing_may_follow_where_one_engine_takes_nothing_more() -> None:
    one_digit = {"allOf": [{"type": "integer"}, {"minimum": 1, "maximum": 5}]}
    assert goes_on(Spec("json", json.dumps(one_digit)), "5") is False
    assert goes_on(Spec("json", json.dumps({"type": "integer"})), "5") is True


def test_a_type_that_there_is_not_leaves_a_text_open() -> None:
    assert judge(Spec("json", '{"type": "any"}'), "1", whole=True).is_open


@pytest.mark.parametrize(
    ("form", "given", "text", "whole", "at"),
    [
        ("regex", "[0-9]{3}", "123", True, None),
        ("regex", "[0-9]{3}", "12", False, None),
        ("regex", "[0-9]{3}", "12", True, 2),
        ("regex", "[0-9]{3}", "12a", False, 2),
        ("regex", "^a.b$", "a\nb", True, None),
        ("regex", "^a.b$", "a\nb", False, None),
        ("choice", '["yes", "no"]', "yes", True, None),
        ("choice", '["yes", "no"]', "ye", False, None),
        ("choice", '["yes", "no"]', "ye", True, 2),
        ("choice", '["yes", "no"]', "yo", False, 1),
        ("grammar", 'root ::= "a"+ ("," "b"){1,2}', "aa,b", True, None),
        ("grammar", 'root ::= "a"+ ("," "b"){1,2}', "aa,b,", True, 5),
        ("grammar", 'root ::= "a"+ ("," "b"){1,2}', "aa,b,b,", False, 6),
        ("grammar", 'root ::= [a-z]+ "end"', "bend", True, None),
        ("grammar", 'start: "a" "b"', "ab", True, None),
        ("grammar", 'start: "a" "b"', "b", False, 0),
    ],
)
def test_forms(form: str, given: str, text: str, whole: bool, at: int | None) -> None:
    assert judge(Spec(form, given), text, whole=whole) == Answer(at)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\W+", "é"),
        (r"[^\w]x", "éx"),
        (r"\D", "\u0664"),
        (r"[\W\d]+", "é1"),
        (r"[\s\S]*", "é\n"),
        (r"[^\s]", "\u3000"),
        (r"\S\]", "\u2003]"),
        (r"\w+", "é"),
        (r"\d", "\u0664"),
        (r"[^\W\d_]+", "é"),
        (r"[a-z&&[^b]]+", "b]"),
        (r"[[:alpha:]]", "a]"),
    ],
)
def test_what_one_engine_takes_for_a_class_is_no_violation(pattern: str, text: str) -> None:
    """xgrammar: `\\w` is ASCII, so é is none, and no class stands within another."""
    assert judge(Spec("regex", pattern), text, whole=True).at is None
    assert judge(Spec("regex", pattern), text, whole=False).at is None
    member = {"type": "object", "properties": {"a": {"type": "string", "pattern": f"^{pattern}$"}}}
    assert judge(Spec("json", json.dumps(member)), json.dumps({"a": text}), whole=True).at is None


@pytest.mark.parametrize(
    ("pattern", "text", "at"),
    [
        (r"\W+", "-a", 1),
        (r"[^\w]x", "ax", 0),
        (r"[\W\d]+", "1a", 1),
        (r"\\W", "\\V", 1),
        (r"\[\W\]", "[a", 1),
        (r"[^]\d]", "]", 0),
    ],
)
def test_what_no_engine_takes_for_a_class_is_one(pattern: str, text: str, at: int) -> None:
    assert judge(Spec("regex", pattern), text, whole=False).at == at


def test_a_bracket_within_a_class_is_read_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert judge(Spec("regex", r"\[[^[\]]+\]"), "[ab]", whole=True) == Answer()
    assert judge(Spec("json", '{"type": "string", "pattern": "[[{]"}'), '"["', whole=True).at is None
    assert [str(one.message) for one in recwarn] == []


@pytest.mark.parametrize(
    ("form", "given"),
    [("json", "no schema"), ("regex", "(?=a)["), ("choice", "7"), ("grammar", "a ::= b"), ("structural_tag", "x")],
)
def test_what_cannot_be_read_is_open(form: str, given: str) -> None:
    assert judge(Spec(form, given), "{}", whole=False).is_open


def test_without_llguidance_a_whole_text_is_checked_and_a_beginning_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "_library", lambda: None)
    spec = Spec("json", json.dumps(SCHEMA))
    assert judge(spec, '{"name": 1, "ages": []}', whole=True).at is not None
    assert judge(spec, '{"ages": [], "name": ""}', whole=True) == Answer()
    assert judge(spec, '{"name": 1', whole=False) == Answer(is_open=True)
    assert judge(spec, "no", whole=False).at == 1
    assert judge(Spec("regex", "[0-9]+"), "1a", whole=True).at is not None
    assert judge(Spec("regex", "[0-9]+"), "1", whole=False).is_open
    assert judge(Spec("grammar", 'start: "a"'), "b", whole=True).is_open


SAME = [
    ("[a-c]*b", 'root ::= [a-c]* "b"'),
    ("(a|bc){1,3}d?", 'root ::= x{1,3} "d"?\nx ::= "a" | "b" "c" # two'),
    ("((ab)*c)+", 'root ::= (("a" "b")* "c")+'),
    ("a?a?a?b", 'root ::= a a a "b"\na ::= "a"?'),
    (r"[^a\-]{2}", r"root ::= [^a\-]{2}"),
]


@settings(deadline=None)
@given(st.sampled_from(SAME), st.text("abcd-", max_size=8))
def test_a_grammar_and_the_regular_expression_that_means_the_same(same: tuple[str, str], text: str) -> None:
    pattern, grammar = same
    found = ebnf.walk(grammar, text)
    assert found is not None
    assert found.is_whole == bool(re.fullmatch(pattern, text))
    begins = automaton.walk("regex", pattern, text)
    assert begins is not None
    assert found.at == begins.at


def test_a_grammar_that_recurs_everywhere() -> None:
    grammar = 'root ::= sum\nsum ::= sum "+" sum | "(" sum ")" | n\nn ::= [0-9] | ""'
    for text in ("1+(2+3)", "+", "", "((1)"):
        found = ebnf.walk(grammar, text)
        assert found is not None
        assert found.at is None
    assert ebnf.walk(grammar, "1)") == ebnf.Walk(1, False)


@settings(deadline=None)
@given(st.text('root ::="[]()|*+?{}1,\n\\x', max_size=30), st.text("ab", max_size=4))
def test_any_text_as_a_grammar_ends_in_an_answer(grammar: str, text: str) -> None:
    found = ebnf.walk("root ::= " + grammar, text)
    assert found is None or found.at is None or 0 <= found.at < len(text)


@pytest.mark.parametrize(
    ("sampling", "form"),
    [
        ({}, None),
        ({"structured_outputs": None}, None),
        ({"structured_outputs": {"choice": ["a"]}}, "choice"),
        ({"structured_outputs": {"json": {"type": "object"}, "regex": None}}, "json"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structural_tag?"),
        ({"structured_outputs": {"regex": ["a"]}}, "regex?"),
        ({"guided_decoding": {"json_object": True}}, "json"),
        ({"response_format": {"type": "json_object"}}, "json"),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}}, "json"),
    ],
)
def test_what_a_request_may_call_it(sampling: dict[str, Any], form: str | None) -> None:
    found = spec_of(sampling)
    assert (None if found is None else found.form) == form
