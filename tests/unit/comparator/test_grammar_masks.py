"""Greedy requests under a grammar: what the engine chose from is known where all engines read the grammar alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from byte_tokens import Bytes, ids
from captures import capture, completion, header

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.grammar import Fate, Spec, fate, fate_of_end
from parity.comparator.inputs import grammar_masks
from parity.comparator.inputs.grammar_masks import without_refused
from parity.comparator.inputs.said import writer_of
from parity.records import Completion, Kind, ScoreKey, TopLogprobs, Verdict

pytest.importorskip("llguidance")

REGEX = {"regex": "[a-z]+ [a-z]+( [a-z]+)*[.!]"}
SAID, OTHER = ids("the cat sat."), ids("the cat ran.")
PARTS = 8
"""Where `OTHER` says "r" for "s"."""
A, R, S, X = (ids(one)[0] for one in "arsx")


def said(tokens: list[int], request: str = "p0") -> Completion:
    return completion(tokens, request, text=Bytes()(tokens))


def judged(
    there: Sequence[Sequence[float]],
    asked: Any = REGEX,
    *,
    baseline: list[int] = SAID,
    candidate: list[int] = OTHER,
    engine: dict[str, Any] | None = None,
    place: int = PARTS,
    **more: Any,
) -> Comparison:
    """The candidate parts where the score lists these (token, logprob); elsewhere its token is the best."""
    drafts = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
    sampling = {"max_tokens": len(candidate), "structured_outputs": asked, **more}
    rest = [said(ids("some words."), f"o{n}") for n in range(6)]
    base = capture(header("cpu/base", engine=engine or {}, **sampling), *rest, said(baseline))
    other = capture(header("cpu/mtp", engine={**drafts, **(engine or {})}, **sampling), *rest, said(candidate))
    plain = [[[token, -0.1], [998, -4.0], [997, -5.0]] for token in candidate]
    known = TopLogprobs.from_json([*plain[:place], list(there), *plain[place + 1 :]])
    return compare(base, other, {ScoreKey("cpu/mtp", "p0", 0, 0): known}, CompareOptions(detokenize=Bytes()))


def test_the_best_token_that_the_grammar_leaves_is_supported() -> None:
    result = judged([[ids("7")[0], -0.1], [ids("\n")[0], -0.2], [R, -3.0], [S, -3.1]])
    assert (result.verdict, result.stats.near_tie) == (Verdict.PASS, 1)


def test_a_token_far_below_one_that_the_grammar_takes_is_a_fault() -> None:
    result = judged([[ids("7")[0], -0.1], [S, -0.5], [R, -4.0]])
    (found,) = result.corrupt
    assert (found.request, found.position, found.evidence.numbers.gap) == ("p0", PARTS, 3.5)


def test_a_list_that_ends_above_the_chosen_token_decides_nothing() -> None:
    """Of the tokens between them the grammar may take one."""
    result = judged([[ids("7")[0], -0.1], [ids("\n")[0], -0.2], [R, -9.0]])
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert "conclude.masked_in_part" in {one.id for one in result.reasons}
    assert "score_top" in {one.step.value for one in result.next_steps}


@pytest.mark.parametrize(
    ("better", "asked"),
    [
        (" ", {"json": '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'}),
        ("s", {"regex": "(?i)[a-z ]+[.!]"}),
        ("s", {**REGEX, "whitespace_pattern": "[ ]?"}),
        ("s", {"structural_tag": "{}"}),
    ],
)
def test_what_engines_read_differently_decides_nothing(better: str, asked: Any) -> None:
    texts = ('{"a": 1 }', '{"a": 12}') if "json" in asked else ("the cat sat.", "the cat ran.")
    baseline, candidate = map(ids, texts)
    place = next(at for at, (one, other) in enumerate(zip(baseline, candidate, strict=True)) if one != other)
    there = [[ids(better)[0], -0.1], [candidate[place], -4.0], [998, -5.0]]
    result = judged(there, asked, baseline=baseline, candidate=candidate, place=place)
    assert result.corrupt == []
    assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0.8},
        {"presence_penalty": 0.5},
        {"engine": {"structured_outputs_config": {"disable_any_whitespace": True}}},
        {"engine": {"reasoning_parser": "granite"}},
    ],
)
def test_where_more_than_the_grammar_shapes_the_choice_nobody_is_accused_by_it(more: dict[str, Any]) -> None:
    assert Kind.UNJUSTIFIED not in {one.kind for one in judged([[S, -0.5], [R, -4.0], [A, -5.0]], **more).corrupt}


def test_what_would_take_too_long_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_masks, "MOST_READ", 0)
    result = judged([[ids("7")[0], -0.1], [S, -0.5], [R, -4.0]])
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])


def test_a_long_text_is_asked_about_as_far_as_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(grammar_masks, "MOST_READ", 50_000)
    monkeypatch.setattr(grammar_masks, "fate", lambda *given: read.append(len(given[1]) + 1) or fate(*given))
    words = [ids("the cat " * 200 + end) for end in ("sat.", "ran.")]
    base, other = (
        capture(header(arm, max_tokens=2_000, structured_outputs=REGEX), said(one))
        for arm, one in zip(("cpu/base", "cpu/mtp"), words, strict=True)
    )
    lists = [[[ids("7")[0], -0.1], [token, -3.0], [998, -4.0]] for token in words[1]]
    scores = {ScoreKey("cpu/mtp", "p0", 0, 0): TopLogprobs.from_json(lists)}
    result = compare(base, other, scores, CompareOptions(detokenize=Bytes()))
    assert 50_000 <= sum(read) < 60_000
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])


def test_where_no_grammar_is_asked_for_the_scores_stay_where_they_are() -> None:
    """Those of a large run lie in a file."""
    arms = [capture(header(arm, max_tokens=20), said(SAID)) for arm in ("cpu/base", "cpu/mtp")]
    writers = writer_of(arms[0], arms[1], Bytes()), writer_of(arms[1], arms[0], Bytes())
    scores = {ScoreKey("cpu/mtp", "p0", 0, 0): TopLogprobs.from_json([[[one, -0.1]] for one in SAID])}
    assert without_refused(writers, scores)[0] is scores


def test_a_text_of_half_characters_is_asked_about_as_well() -> None:
    """Its tokens are no texts of their own, so that it is not put together from theirs."""
    baseline, candidate = ids("über alles."), ids("über allem.")
    at = next(place for place, (one, other) in enumerate(zip(baseline, candidate, strict=True)) if one != other)
    spec = {"regex": "[a-zü]+ [a-z]+[.!]"}
    drafts = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
    sampling = {"max_tokens": len(candidate), "structured_outputs": spec}
    base = capture(header("cpu/base", **sampling), said(baseline))
    other = capture(header("cpu/mtp", engine=drafts, **sampling), said(candidate))
    lists = [[[token, -0.1], [998, -4.0]] for token in candidate]
    lists[at] = [[ids("7")[0], -0.1], [baseline[at], -0.5], [candidate[at], -4.0]]
    scores = {ScoreKey("cpu/mtp", "p0", 0, 0): TopLogprobs.from_json(lists)}
    result = compare(base, other, scores, CompareOptions(detokenize=Bytes()))
    assert [one.position for one in result.corrupt] == [at]


OBJECT = (
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}, "n": {"type": "integer"}}, '
    '"required": ["name"]}'
)


@pytest.mark.parametrize(
    ("form", "given", "before", "now", "what"),
    [
        ("json", OBJECT, '{"name": "', '{"name": "a', Fate.TAKEN),
        ("json", OBJECT, '{"name": "', '{"name": "abcde', Fate.REFUSED),
        ("json", OBJECT, '{"name": "', '{"name": "\n', Fate.REFUSED),
        ("json", OBJECT, '{"name": "', '{"name": "\x07', Fate.OPEN),  # xgrammar takes it, where a length is asked for
        ("json", OBJECT, '{"name": "', '{"name": "é', Fate.OPEN),
        ("json", OBJECT, '{"name": "', '{"name": "\ufffd', Fate.OPEN),
        ("json", OBJECT, '{"name": "a"', '{"name": "a"\ufffd', Fate.REFUSED),
        ("json", OBJECT, '{"name": "a"', '{"name": "a",', Fate.TAKEN),
        ("json", OBJECT, '{"name": "a"', '{"name": "a" ', Fate.OPEN),  # with disable_any_whitespace there is none
        ("json", OBJECT, '{"name":\n"a"', '{"name":\n"a" ', Fate.TAKEN),  # once it takes some it takes all
        ("json", OBJECT, '{"name":\n"a', '{"name":\n"a\t', Fate.OPEN),
        ("json", OBJECT, '{"name": "a  b"', '{"name": "a  b" ', Fate.OPEN),
        ("json", OBJECT, '{"na', '{"nam', Fate.OPEN),  # what must come llguidance cuts into tokens in its own way
        ("json", OBJECT, '{"name": "a"', '{"name": "a"]', Fate.REFUSED),
        ("json", '{"type": "integer"}', "-", "-0", Fate.OPEN),  # which xgrammar refuses
        ("json", '{"type": "number"}', "1", "1e", Fate.OPEN),
        ("json", '{"type": "number"}', "1", "12", Fate.TAKEN),
        ("json", '{"type": "object", "properties": {"a": {}}}', "{", '{"b', Fate.OPEN),  # xgrammar names the members
        ("json", '{"type": "string", "format": "date"}', '"', '"2', Fate.OPEN),
        ("regex", r"\d{3}-[a-f]+", "12", "123", Fate.TAKEN),
        ("regex", r"\d{3}-[a-f]+", "123", "123-", Fate.OPEN),
        ("regex", r"\d{3}-[a-f]+", "123-", "123-g", Fate.REFUSED),
        ("regex", r"\d{3}-[a-f]+", "123-", "123-\ufffd", Fate.REFUSED),
        ("regex", r"\w+!", "a", "a\ufffd", Fate.OPEN),
        ("choice", '["red", "reddish", "blue"]', "", "re", Fate.TAKEN),
        ("choice", '["red", "reddish", "blue"]', "redd", "reddi", Fate.OPEN),
        ("choice", '["red", "reddish", "blue"]', "", "g", Fate.REFUSED),
        ("grammar", 'root ::= [a-z]+ "=" [0-9]+', "ab", "ab=", Fate.TAKEN),
        ("grammar", 'root ::= [a-z]+ "=" [0-9]+', "ab", "ab7", Fate.REFUSED),
        ("grammar", 'root ::= [a-z]+ "=" [0-9]+', "ab", "ab\ufffd", Fate.REFUSED),
    ],
)
def test_what_becomes_of_a_token(form: str, given: str, before: str, now: str, what: Fate) -> None:
    assert fate(Spec(form, given), before, now) is what


@pytest.mark.parametrize(
    ("form", "given", "before", "added"),
    [
        ("json", '{"type": "array", "items": {"type": "string"}}', '["', "a"),
        ("regex", "[a-z]+", "", "a"),
        ("grammar", "start: /[a-z]+/", "", "a"),
    ],
)
def test_long_texts_are_read_as_short_ones(form: str, given: str, before: str, added: str) -> None:
    text = before + "a" * 100_000
    assert fate(Spec(form, given), text, text + added) is Fate.TAKEN
    assert fate(Spec(form, given), text, text + "\n") is Fate.REFUSED


@pytest.mark.parametrize("given", ["[1, 2]", '{"red": 1}', "red", ""])
def test_choices_that_are_no_texts_say_nothing(given: str) -> None:
    assert fate(Spec("choice", given), "", "r") is Fate.OPEN
    assert fate_of_end(Spec("choice", given), "red") is Fate.OPEN


@pytest.mark.parametrize(
    ("form", "given", "text", "what"),
    [
        ("json", OBJECT, '{"name": "a"}', Fate.TAKEN),
        ("json", OBJECT, '{"name": "a"', Fate.REFUSED),
        ("regex", "[a-z]+", "ab", Fate.TAKEN),
        ("regex", "[a-z]+", "", Fate.REFUSED),
        ("choice", '["red", "reddish"]', "red", Fate.TAKEN),
        ("choice", '["red", "reddish"]', "redd", Fate.REFUSED),
        ("regex", "a.", "a\ufffd", Fate.OPEN),
    ],
)
def test_what_becomes_of_an_end(form: str, given: str, text: str, what: Fate) -> None:
    assert fate_of_end(Spec(form, given), text) is what
