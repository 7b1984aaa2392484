"""The request's own rules: who broke one is named, whatever the scores say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byte_tokens import SPECIAL, Bytes, ids
from captures import EOS, capture, completion, header, score, scores, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.detect.forbidden import MOST_NAMED
from parity.comparator.inputs.said import first_match
from parity.records import Completion, Key, Kind, TopLogprobs, Verdict
from parity.records.next_steps import Step

LIMIT = 40
FULL_STOP = 256 + ord(".")
P0 = Key("p0", 0, 0)


TOKENIZER = Bytes()
WITH, WITHOUT = CompareOptions(detokenize=TOKENIZER), CompareOptions()


def cut(tokens: list[int], **own: Any) -> Completion:
    """Cut by max_tokens: filled up with its last token."""
    full = tokens + [tokens[-1]] * (LIMIT - len(tokens))
    return replace(completion(full, text=TOKENIZER(full)), sampling=own)


def ended(tokens: list[int], reason: int | str | None = None, text: str | None = None, **own: Any) -> Completion:
    """Ended by "stop"."""
    said = TOKENIZER(tokens) if text is None else text
    return replace(completion(tokens, finish="stop", stop=reason, text=said), sampling=own)


def compared(a: Completion, b: Completion, options: CompareOptions = WITH, **sampling: Any) -> Comparison:
    """Among requests in which nothing is wrong."""
    others = [completion([*ids(f"number {n}"), EOS], f"o{n}", finish="stop", text=f"number {n}") for n in range(6)]
    if sampling.get("temperature"):
        others = [replace(one, sampling={"temperature": 0.0}) for one in others]
    engine = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
    asked = {"max_tokens": LIMIT, **sampling}
    return compare(
        capture("cpu/base", *others, a, **asked),
        capture(header("cpu/mtp", engine=engine, **asked), *others, b),
        options=options,
    )


ALLOWED = {"allowed_token_ids": ids("abc")}
BAD = {"bad_words": ["world", "x"]}
LEAST = {"min_tokens": 8}
IGNORES = {"ignore_eos": True}
STOPS = {"stop": ["END", "FIN"]}
INCLUDES = {**STOPS, "include_stop_str_in_output": True}
ENDS_AT = {"stop_token_ids": [FULL_STOP]}
CHOICE = {"structured_outputs": {"choice": ["yes", "no"]}}
JSON = {"structured_outputs": {"json": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}

RIGHT = {
    "allowed": cut(ids("abcabc"), **ALLOWED),
    "bad": cut(ids("hello worle"), **BAD),
    "least": ended([*ids("abcdefgh"), EOS], **LEAST),
    "ignores": cut([*ids("abcd"), EOS, *ids("efgh")], **IGNORES),
    "stops": ended(ids("one two END"), "END", "one two ", **STOPS),
    "includes": ended(ids("one two END"), "END", "one two END", **INCLUDES),
    "early stop string": ended(ids("END one END"), "END", "END one ", min_tokens=4, **STOPS),
    "ends at": ended(ids("abc."), FULL_STOP, "abc", **ENDS_AT),
    "choice": ended([*ids("yes"), EOS], **CHOICE),
    "choice cut": replace(cut(ids("ye"), **CHOICE), token_ids=cut(ids("ye")).token_ids[:2], text="ye", aborted=True),
    "json": ended([*ids('{ "b": [], "a":\n1}'), EOS], **JSON),
}
"""By rule, a completion that keeps it."""

WRONG: dict[str, tuple[str, Completion, Kind, int]] = {
    "not allowed": ("allowed", cut(ids("abxabc"), **ALLOWED), Kind.FORBIDDEN_TOKEN, 2),
    "an EOS that is not allowed": ("allowed", ended([*ids("ab"), EOS], **ALLOWED), Kind.FORBIDDEN_TOKEN, 2),
    "a bad word": ("bad", cut(ids("hello world"), **BAD), Kind.FORBIDDEN_TOKEN, 10),
    "a bad word of one token": ("bad", cut(ids("hexlo"), **BAD), Kind.FORBIDDEN_TOKEN, 2),
    "an end before min_tokens": ("least", ended([*ids("abcd"), EOS], **LEAST), Kind.EARLY_STOP, 4),
    "an end one token before": ("least", ended([*ids("abcdefg"), EOS], **LEAST), Kind.EARLY_STOP, 7),
    "an EOS passed before min_tokens": (
        "least", cut([*ids("abc"), EOS, *ids("defgh")], **LEAST), Kind.FORBIDDEN_TOKEN, 3,
    ),
    "an end at an EOS to ignore": ("ignores", ended([*ids("abcd"), EOS], **IGNORES), Kind.EARLY_STOP, 4),
    "an end that names the EOS to ignore": (
        "ignores", ended([*ids("abcd"), EOS], EOS, "abcd", **IGNORES), Kind.EARLY_STOP, 4,
    ),
    "a stop string left": ("stops", ended(ids("one two END"), "END", "one two END", **STOPS), Kind.TEXT_MISMATCH, 8),
    "text missing": ("stops", ended(ids("one two END"), "END", "one t", **STOPS), Kind.TEXT_MISMATCH, 5),
    "text after": ("stops", ended(ids("one two END"), "END", "one two END x", **STOPS), Kind.TEXT_MISMATCH, 8),
    "gone on": ("stops", cut(ids("one two END three"), **STOPS), Kind.OVERRUN, 11),
    "gone on, text cut": (
        "stops", replace(cut(ids("one two END three")), text="one two ", sampling=STOPS), Kind.OVERRUN, 11,
    ),
    "no stop string": ("stops", ended(ids("one two EN"), "END", "one two ", **STOPS), Kind.EARLY_STOP, 10),
    "stop string not included": (
        "includes", ended(ids("one two END"), "END", "one two ", **INCLUDES), Kind.TEXT_MISMATCH, 8,
    ),
    "stop token left": ("ends at", ended(ids("abc."), FULL_STOP, "abc.", **ENDS_AT), Kind.TEXT_MISMATCH, 3),
    "no choice": ("choice", ended([*ids("nay"), EOS], **CHOICE), Kind.GRAMMAR_VIOLATION, 1),
    "half a choice": ("choice", ended([*ids("ye"), EOS], **CHOICE), Kind.GRAMMAR_VIOLATION, 2),
    "more than a choice": ("choice", cut(ids("yess"), **CHOICE), Kind.GRAMMAR_VIOLATION, 3),
    "a special token": ("choice", ended([*ids("y"), SPECIAL, *ids("es"), EOS], **CHOICE), Kind.GRAMMAR_VIOLATION, 1),
    "JSON of another type": ("json", ended([*ids('{"a":"1"}'), EOS], **JSON), Kind.GRAMMAR_VIOLATION, 5),
    "no JSON": ("json", ended([*ids('{"a":1,}'), EOS], **JSON), Kind.GRAMMAR_VIOLATION, 7),
    "JSON without a member": ("json", ended([*ids("{}"), EOS], **JSON), Kind.GRAMMAR_VIOLATION, 1),
}  # fmt: skip
"""What is broken: the rule, how, and the finding."""


@pytest.mark.parametrize("options", [WITH, WITHOUT], ids=["tokenizer", "none"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_rule_that_is_kept_is_no_finding(name: str, options: CompareOptions) -> None:
    result = compared(RIGHT[name], RIGHT[name], options)
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", WRONG)
def test_the_candidate_that_breaks_a_rule_is_accused(name: str, temperature: float) -> None:
    rule, wrong, kind, position = WRONG[name]
    result = compared(RIGHT[rule], wrong, temperature=temperature)
    assert result.verdict is Verdict.DIVERGED
    assert [(one.key, one.kind, one.position) for one in result.corrupt] == [(P0, kind, position)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", WRONG)
def test_the_baseline_that_breaks_a_rule_is_named(name: str, temperature: float) -> None:
    rule, wrong, _, _ = WRONG[name]
    result = compared(wrong, RIGHT[rule], temperature=temperature)
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert any("the baseline itself breaks a rule" in reason and "p0" in reason for reason in texts(result.reasons))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", WRONG)
def test_what_both_break_alike_is_said_and_nobody_is_accused(name: str, temperature: float) -> None:
    wrong = WRONG[name][1]
    result = compared(wrong, wrong, temperature=temperature)
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert any("in both arms" in reason and "p0" in reason for reason in texts(result.reasons))


@pytest.mark.parametrize("name", ["not allowed", "a bad word", "an end before min_tokens"])
def test_scores_that_support_a_forbidden_token_excuse_nobody(name: str) -> None:
    rule, wrong, kind, position = WRONG[name]
    others = [completion(ids(f"number {n}" * 4), f"o{n}", text=f"number {n}" * 4) for n in range(6)]
    arms = [capture(arm, *others, one) for arm, one in (("cpu/base", RIGHT[rule]), ("cpu/mtp", wrong))]
    result = compare(*arms, scores("cpu/mtp", p0=score(wrong.token_ids.tolist())), WITH)
    assert [(one.key, one.kind, one.position) for one in result.corrupt] == [(P0, kind, position)]
    assert not any("baseline" in reason for reason in texts(result.reasons))


@pytest.mark.parametrize("name", ["a stop string left", "gone on", "stop string not included", "no choice", "no JSON"])
def test_without_a_tokenizer_the_text_alone_proves(name: str) -> None:
    rule, wrong, kind, _ = WRONG[name]
    result = compared(RIGHT[rule], wrong, WITHOUT)
    assert {one.kind for one in result.corrupt} == {kind}
    assert compared(wrong, RIGHT[rule], WITHOUT).corrupt == []


def test_a_stop_string_before_min_tokens_is_said_to_be_too_early() -> None:
    wrong = ended(ids("END"), "END", "", min_tokens=4, **STOPS)
    found = compared(RIGHT["early stop string"], wrong).corrupt
    assert [(one.kind, one.evidence.why.id) for one in found] == [(Kind.EARLY_STOP, "early_stop.stop_string_too_early")]


def test_bad_words_without_a_tokenizer_are_said_to_be_unknown() -> None:
    result = compared(RIGHT["bad"], RIGHT["bad"], WITHOUT)
    assert any("bad_words" in reason and "--model" in reason for reason in texts(result.reasons))


def test_the_rules_of_the_whole_run_hold_for_each_request() -> None:
    result = compared(cut(ids("abcd")), cut(ids("abxd")), bad_words=["x"])
    assert [(one.kind, one.position) for one in result.corrupt] == [(Kind.FORBIDDEN_TOKEN, 2)]


def test_a_rule_that_the_baseline_breaks_throughout_is_none_of_the_engines() -> None:
    wrong = [replace(cut(ids("abxabc"), **ALLOWED), key=Key(f"w{n}", 0, 0)) for n in range(4)]
    right = [replace(RIGHT["allowed"], key=one.key) for one in wrong]
    base = capture("cpu/base", *wrong[:2], *right[2:], max_tokens=LIMIT)
    result = compare(base, capture("cpu/mtp", *right[:2], *wrong[2:], max_tokens=LIMIT))
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])


def test_rules_that_leave_nothing_to_choose_are_nobodys_fault() -> None:
    own = {"allowed_token_ids": ids("x"), "bad_words": ["x"]}
    assert compared(cut(ids("xxx"), **own), cut(ids("xxx"), **own)).verdict is Verdict.PASS
    both = {"allowed_token_ids": [EOS], "min_tokens": 2}
    said = cut(ids("ab"), **both)
    result = compared(said, said)
    assert [one for one in result.corrupt if one.position is not None and one.position < 2] == []


def test_a_grammar_that_min_tokens_outlasts_is_nobodys_fault() -> None:
    said = ended([*ids("yesno"), EOS], **CHOICE, min_tokens=5)
    assert compared(said, said).verdict is Verdict.PASS


FORMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "choice": ({"choice": ["no", "none"]}, "none", "no"),
    "json": ({"json": {"type": "object"}}, "{}", ""),
    "a number": ({"json": {"type": "integer", "maximum": 99}}, "12", "1"),
    "regex": ({"regex": "ab?"}, "ab", "a"),
    "Lark": ({"grammar": 'start: "a" "b"?'}, "ab", "a"),
    "EBNF": ({"grammar": 'root ::= "a" "b"?'}, "ab", "a"),
}
"""A grammar, a text of it that nothing can follow, and one that something can."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [WITH, WITHOUT], ids=["with", "without"])
def test_an_end_that_is_all_a_grammar_leaves_is_let_through_before_min_tokens(
    form: str, options: CompareOptions
) -> None:
    given, over, more = FORMS[form]
    asked = {"structured_outputs": given, "min_tokens": 8}
    base = cut(ids("ab"), **asked)
    early, late = (replace(ended([*ids(text), EOS], **asked), text=text) for text in (more, over))
    right = compared(late, late, options)
    assert (right.verdict, right.reasons[0].id) == (Verdict.PASS, "conclude.passed")
    if more:
        wrong = compared(early, early, options)
        assert "conclude.both_broke" in {one.id for one in wrong.reasons}
        assert [one.kind for one in compared(base, early, options).corrupt] == [Kind.EARLY_STOP]


MORE_RULES: dict[str, dict[str, Any]] = {
    "bad words": {"bad_words": ["maybe", "q"]},
    "allowed tokens": {"allowed_token_ids": ids("xyesn")},
    "min_tokens": {"min_tokens": 3},
}


@pytest.mark.parametrize("rule", MORE_RULES)
def test_a_grammar_counts_beside_other_rules_that_leave_it_a_token(rule: str) -> None:
    wrong = cut(ids("xes"), **CHOICE, **MORE_RULES[rule])
    right = ended([*ids("yes"), EOS], **CHOICE, **MORE_RULES[rule])
    found = compared(right, wrong).corrupt
    assert (found[0].kind, found[0].position) == (Kind.GRAMMAR_VIOLATION, 0)


@pytest.mark.parametrize(
    "rule",
    [
        {"bad_words": ["y", "n"]},
        {"allowed_token_ids": ids("x")},
        {"bad_words": ["y"], "allowed_token_ids": ids("xy")},
    ],
    ids=str,
)
def test_a_grammar_that_other_rules_leave_nothing_is_left_open(rule: dict[str, Any]) -> None:
    wrong = cut(ids("x"), **CHOICE, **rule)
    assert [one for one in compared(wrong, wrong).corrupt if one.kind is Kind.GRAMMAR_VIOLATION] == []
    assert "conclude.both_broke" not in {one.id for one in compared(wrong, wrong).reasons}


def test_tokens_of_the_same_step_after_a_stop_string_are_normal() -> None:
    longer = ended(ids("one two ENDxy"), "END", "one two ", **STOPS)
    for options in (WITH, WITHOUT):
        result = compared(RIGHT["stops"], longer, options)
        assert (result.verdict, result.stats.identical) == (Verdict.PASS, 7)
    more = ended(ids("one two ENDxyz"), "END", "one two ", **STOPS)
    assert [one.kind for one in compared(RIGHT["stops"], more).corrupt] == [Kind.OVERRUN]


def test_a_server_that_leaves_all_stop_strings_in_its_texts_has_a_habit() -> None:
    right = [replace(RIGHT["stops"], key=Key(f"s{n}", 0, 0)) for n in range(5)]
    left = [replace(one, text="one two END") for one in right]
    base = capture("cpu/base", *right, max_tokens=LIMIT)
    for options in (WITH, WITHOUT):
        served = capture("server/x", *left, max_tokens=LIMIT)
        result = compare(base, served, None, options)
        assert (result.verdict, result.corrupt) == (Verdict.PASS, [])
        assert "text.habit_stop_left" in habits(result)
        of_vllm = {"served": {"token_source": "server", "server": {"dialect": "vllm"}}}
        result = compare(base, replace(served, header=replace(served.header, extra=of_vllm)), None, options)
        assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])


def habits(result: Comparison) -> list[str]:
    return [note.parameters["what"].id for note in result.notes if note.id == "inputs.habit"]


def test_a_server_that_does_not_know_a_parameter_has_a_habit() -> None:
    right = [replace(RIGHT["least"], key=Key(f"s{n}", 0, 0)) for n in range(5)]
    short = replace(WRONG["an end before min_tokens"][1], key=right[0].key)
    base = capture("cpu/base", *right, max_tokens=LIMIT)
    for count, verdict in ((1, Verdict.DIVERGED), (2, Verdict.INCONCLUSIVE), (5, Verdict.INCONCLUSIVE)):
        wrong = [replace(short, key=one.key) for one in right[:count]]
        served = compare(base, capture("server/x", *wrong, *right[count:], max_tokens=LIMIT), None, WITH)
        assert served.verdict is verdict
        engine = compare(base, capture("cpu/mtp", *wrong, *right[count:], max_tokens=LIMIT), None, WITH)
        assert engine.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("name", ["no JSON", "JSON of another type", "no choice"])
def test_a_server_that_gives_text_alone_is_held_to_its_grammar(name: str) -> None:
    rule, wrong, kind, _ = WRONG[name]
    extra = {"served": {"token_source": "retokenised"}}
    rest = [replace(RIGHT[rule], key=Key(f"s{n}", 0, 0)) for n in range(7)]
    arms = [header(arm, extra=extra, max_tokens=LIMIT) for arm in ("server/a", "server/b")]
    for options in (WITH, WITHOUT):
        sound, faulty = capture(arms[0], *rest, RIGHT[rule]), capture(arms[1], *rest, wrong)
        result = compare(sound, faulty, None, options)
        assert [(one.key, one.kind) for one in result.corrupt] == [(P0, kind)]
        result = compare(faulty, sound, None, options)
        assert result.corrupt == []
        assert any("the baseline itself breaks a rule" in reason for reason in texts(result.reasons))


def test_a_model_that_may_think_first_follows_no_grammar_yet() -> None:
    said = ended([*ids("hm. yes"), EOS], **CHOICE)
    engine = {"reasoning_parser": "deepseek_r1"}
    arms = [capture(header(arm, engine=engine, max_tokens=LIMIT), said) for arm in ("cpu/base", "cpu/again")]
    assert compare(*arms, None, WITH).verdict is Verdict.PASS


def test_special_tokens_are_shown_where_they_were_asked_for() -> None:
    shown = {"skip_special_tokens": False}
    full = [*ids("ab"), SPECIAL, *ids("c" * (LIMIT - 3))]
    right = replace(completion(full, text=TOKENIZER.with_special(full)), sampling=shown)
    assert compared(right, right).verdict is Verdict.PASS
    wrong = replace(right, text=TOKENIZER(full))
    assert [one.kind for one in compared(right, wrong).corrupt] == [Kind.TEXT_MISMATCH]


words = st.text("abE", min_size=1, max_size=3)


@settings(deadline=None)
@given(st.text("abE", max_size=24), st.lists(words, min_size=1, max_size=3), st.integers(0, 8))
def test_the_stop_string_that_is_complete_first(text: str, stops: list[str], after: int) -> None:
    """As if the text came character by character."""
    expected = None
    for end in range(after + 1, len(text) + 1):
        expected = next((stop for stop in stops if text[:end].endswith(stop)), None)
        if expected is not None:
            break
    found = first_match(text, stops, after)
    assert (found and found.stop) == expected
    assert found is None or (found.end, text[found.start : found.end]) == (end, found.stop)


pieces = st.lists(st.sampled_from(["a", "b", "EN", "D", "END", " ", "é"]), max_size=12)


@settings(deadline=None)
@given(pieces, st.booleans(), st.integers(0, 6))
def test_an_engine_that_keeps_its_rules_is_never_accused(said: list[str], includes: bool, least: int) -> None:
    """Written as vLLM writes: token by token, the stop string looked for after each."""
    own = {"stop": ["END", "b "], "include_stop_str_in_output": includes, "min_tokens": least}
    tokens: list[int] = []
    for token in ids("".join(said)):
        tokens.append(token)
        text = TOKENIZER(tokens).rstrip("\ufffd")
        free = len(TOKENIZER(tokens[:least]).rstrip("\ufffd"))
        found = first_match(text, ["END", "b "], free) if len(tokens) > least else None
        if found is not None:
            end = found.end if includes else found.start
            one = ended(tokens, found.stop, text[:end], **own)
            break
    else:
        one = cut(tokens or ids("z"), **own)
        if first_match(one.text or "", ["END", "b "], least):
            return
    result = compared(one, one)
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])


@settings(deadline=None)
@given(st.lists(st.integers(256, 260), min_size=1, max_size=20), st.sets(st.integers(256, 260), min_size=1))
def test_every_token_that_is_not_allowed_is_named(tokens: list[int], allowed: set[int]) -> None:
    one = cut(tokens, allowed_token_ids=sorted(allowed))
    right = cut([min(allowed)], allowed_token_ids=sorted(allowed))
    wrong = {at for at, token in enumerate(one.token_ids.tolist()) if token not in allowed}
    found = [one for one in compared(right, one, WITHOUT).corrupt if one.kind is Kind.FORBIDDEN_TOKEN]
    named = [at for one in found for at in range(one.position or 0, (one.position or 0) + (one.length or 0))]
    assert len(named) == len(set(named))
    assert set(named) == wrong if len(found) < MOST_NAMED else set(named) <= wrong


def test_texts_are_held_to_their_tokens_where_the_baseline_has_none() -> None:
    """The candidate's own texts say whether the tokenizer is theirs: most of them are right."""
    names = [f"p{number}" for number in range(8)]
    said = [ids(f"this is what request {name} says") for name in names]
    base = capture("cpu/base", *(completion(one, name) for name, one in zip(names, said, strict=True)))
    shown = [TOKENIZER(one) for one in said]
    shown[3] = shown[4]
    made = [completion(one, name, text=text) for name, one, text in zip(names, said, shown, strict=True)]
    found = compare(base, capture("cpu/mtp", *made), None, WITH).corrupt
    assert [(one.request, one.kind) for one in found] == [("p3", Kind.TEXT_MISMATCH)]


def test_without_a_tokenizer_forbidden_words_excuse_the_baselines_token() -> None:
    """The token that the scores call best may be the forbidden one, in either arm."""
    sides = [cut(ids("abcdefgh"), **BAD), cut(ids("abcdXfgh"), **BAD)]
    tops = [[[token, -0.1]] for token in sides[1].token_ids.tolist()]
    tops[4] = [[ids("X")[0], -2.0], [ids("x")[0], -0.1], [ids("e")[0], -2.1]]
    found = scores("cpu/mtp", p0=TopLogprobs.from_json(tops))
    result = compare(*(capture(arm, one) for arm, one in zip(("cpu/base", "cpu/mtp"), sides, strict=True)), found)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert {one.id for one in result.reasons} >= {"conclude.unjudged_by_rules", "conclude.unread_words"}
    assert "conclude.baseline_rejected" not in {one.id for one in result.reasons}
    assert result.next_steps[0].step is Step.TOKENIZER


def test_what_a_prompt_that_ends_inside_a_character_leaves_to_the_output_is_no_other_text() -> None:
    """vLLM detokenises the output after the prompt, and then says all of the prompt again."""
    prompt = np.array(ids("say 法")[:-1])
    begun = "\ufffd, and so on"
    for temperature in (0.0, 0.8):
        a = replace(cut(ids(", and so on"), temperature=temperature), prompt_token_ids=prompt)
        a = replace(a, token_ids=a.token_ids[:11], aborted=True)
        for text in (begun, f"say {begun}", ", and so on"):
            result = compared(replace(a, text=text), replace(a, text=text), temperature=temperature)
            assert P0 not in {one.key for one in result.corrupt}
        other = replace(a, text="say it, and so on")
        (found,) = (one for one in compared(a, other, temperature=temperature).corrupt if one.key == P0)
        assert found.kind is Kind.TEXT_MISMATCH
        whole = np.array(ids("say "))
        other = replace(a, prompt_token_ids=whole, text="say , and so on")
        assert compared(replace(a, prompt_token_ids=whole, text=", and so on"), other).corrupt


@pytest.mark.parametrize("asked", [CHOICE, {**CHOICE, "min_tokens": 5}])
def test_what_a_text_holds_of_a_prompt_that_ends_inside_a_character_breaks_no_grammar(asked: dict[str, Any]) -> None:
    """vLLM 0.23 to 0.32 says the prompt with the first tokens then. Without a tokenizer nothing tells the two apart."""
    right = ended([*ids("yes"), EOS], text="yes", **asked)
    odd = replace(right, text="its prompt \ufffdyes")
    for base, other in ((right, odd), (odd, right), (odd, odd)):
        result = compared(base, other, WITHOUT)
        assert not [one for one in result.corrupt if one.kind is not Kind.TEXT_MISMATCH]
        assert "conclude.both_broke" not in {one.id for one in result.reasons}


def test_what_a_grammar_refuses_after_a_broken_character_is_found() -> None:
    right = ended([*ids("yes"), EOS], text="yes", **CHOICE)
    wrong = replace(right, text="its prompt \ufffdyesterday")
    assert Kind.GRAMMAR_VIOLATION in {one.kind for one in compared(right, wrong, WITHOUT).corrupt}


@pytest.mark.parametrize("options", [WITH, WITHOUT], ids=["with a tokenizer", "without"])
@pytest.mark.parametrize("own", [{}, {"stop": ["STOP"]}], ids=["no stop string", "another"])
def test_an_end_at_the_stop_string_of_another_request_is_a_fault(own: dict[str, Any], options: CompareOptions) -> None:
    """However near an end there may be to the best token."""
    said = ids("said END")
    right = ended([*said, EOS], text="said END", **own)
    wrong = ended(said, "END", "said ", **own)
    other = replace(ended(ids("so END"), "END", "so ", stop=["END"]), key=Key("other", 0, 0))
    head = {"max_tokens": LIMIT}
    arms = [capture(name, one, other, **head) for name, one in (("cpu/base", right), ("cpu/mtp", wrong))]
    result = compare(*arms, None, options)
    assert [(one.request, one.kind) for one in result.corrupt] == [("p0", Kind.EARLY_STOP)]
    assert not compare(*reversed(arms), None, options).corrupt
    assert compare(arms[0], replace(arms[0], header=arms[1].header), None, options).verdict is Verdict.PASS
