"""Tokens of one request in the output of another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import EOS, TEXT, capture, completion, score, scores

from parity.comparator import compare
from parity.comparator.detect import leak
from parity.comparator.detect.leak import as_well
from parity.records import Completion, Finding, Kind

FAULT = 9.0


def others(count: int = 20) -> list[Completion]:
    """Requests p1, p2, … with texts and prompts that share nothing."""
    rng = np.random.default_rng(1)
    return [
        completion(rng.integers(200, 900, 60), f"p{n}", prompt=rng.integers(200, 900, 12)) for n in range(1, count + 1)
    ]


def replaced(one: Completion, tokens: list[int]) -> Completion:
    return replace(one, token_ids=np.array(tokens, dtype=np.int64))


def leaks(victim: list[int], span: range, rest: list[Completion]) -> list[Finding]:
    base = completion(TEXT)
    wrong = dict.fromkeys(span, FAULT)
    result = compare(
        capture("cpu/base", base, *rest),
        capture("cpu/mtp", completion(victim), *rest),
        scores("cpu/mtp", p0=score(victim, wrong, TEXT)),
    )
    return result.corrupt


def test_the_donor_and_the_span_are_named() -> None:
    rest = others()
    donor = rest[6].token_ids[10:18].tolist()
    (found,) = leaks([*TEXT[:20], *donor, *TEXT[28:]], range(20, 28), rest)
    assert (found.kind, found.position, found.length) == (Kind.ROW_LEAK, 20, 8)
    assert found.evidence.to_json()["donor_request"] == "p7"
    assert (found.evidence.to_json()["donor_start"], found.evidence.to_json()["donor_end"]) == (10, 18)
    assert found.evidence.to_json()["donor_part"] == "baseline completion"
    assert found.evidence.to_json()["expected_by_chance"] < 0.02


@pytest.mark.parametrize("tokens", [1, 100, 10_000])
def test_leaks_are_the_same_however_many_are_looked_for_at_once(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leak, "_TOKENS_AT_ONCE", tokens)
    rest = others()
    victims, scored = [], {}
    for n in range(9):
        own, donor = rest[n].token_ids.tolist(), rest[n + 10].token_ids[10:20].tolist()
        wrong = [*own[:20], *donor, *own[30:]]
        victims.append(replaced(rest[n], wrong))
        scored[f"p{n + 1}"] = score(wrong, dict.fromkeys(range(20, 30), FAULT), own)
    result = compare(capture("cpu/base", *rest), capture("cpu/mtp", *victims, *rest[9:]), scores("cpu/mtp", **scored))
    assert [one.kind for one in result.corrupt] == [Kind.ROW_LEAK] * 9
    donors = {one.request: one.evidence.to_json()["donor_request"] for one in result.corrupt}
    assert donors == {f"p{n}": f"p{n + 10}" for n in range(1, 10)}


def test_prompts_are_donors() -> None:
    rest = others()
    donor = rest[2].prompt_token_ids[3:11].tolist()
    (found,) = leaks([*TEXT[:20], *donor, *TEXT[28:]], range(20, 28), rest)
    assert (found.kind, found.evidence.to_json()["donor_part"]) == (Kind.ROW_LEAK, "prompt")
    assert (found.evidence.to_json()["donor_request"], found.evidence.to_json()["donor_start"]) == ("p3", 3)


@pytest.mark.parametrize(("rejected", "start", "length", "kind"), [
    (2, 10, 8, Kind.UNJUSTIFIED), (3, 10, 8, Kind.ROW_LEAK), (2, 20, 8, Kind.UNJUSTIFIED), (2, 20, 16, Kind.ROW_LEAK),
    (1, 20, 16, Kind.UNJUSTIFIED),
])  # fmt: skip
def test_few_wrong_tokens_that_somebody_else_says_are_named_as_possible(
    rejected: int, start: int, length: int, kind: Kind
) -> None:
    """The engine goes on after them as it does for whoever says the same: that the rest is another's says little."""
    rest = others()
    span = rest[6].token_ids[start : start + length].tolist()
    (found,) = leaks([*TEXT[:20], *span, *TEXT[20 + length :]], range(20, 20 + rejected), rest)
    assert (found.kind, found.position) == (kind, 20)
    if kind is Kind.UNJUSTIFIED and rejected > 1:
        assert found.evidence.ambiguous is not None
        assert str(found.evidence.ambiguous.parameters["donor"]).startswith("p7")


def test_text_that_many_requests_share_is_no_leak() -> None:
    phrase = list(range(900, 908))
    rest = [completion([*one.token_ids[:52], *phrase], one.key.request) for one in others()]
    (found,) = leaks([*TEXT[:20], *phrase, *TEXT[28:]], range(20, 28), rest)
    assert found.kind is Kind.GARBLED


def test_tokens_of_nobody_are_garbled() -> None:
    (found,) = leaks([*TEXT[:20], *range(900, 908), *TEXT[28:]], range(20, 28), others())
    assert found.kind is Kind.GARBLED


def test_the_same_garbage_in_two_rows_is_no_leak_of_either() -> None:
    """A buffer's filler, written into both: neither has it from the other."""
    garbage = [7] * 6
    rest = others()
    spoilt = rest[3]
    theirs = [*spoilt.token_ids[:30].tolist(), *garbage, *spoilt.token_ids[36:].tolist()]
    mine = [*TEXT[:20], *garbage, *TEXT[26:]]
    candidates = [completion(mine), *(one if one is not spoilt else replaced(spoilt, theirs) for one in rest)]
    known = {
        "p0": score(mine, dict.fromkeys(range(20, 26), FAULT), TEXT),
        spoilt.key.request: score(theirs, dict.fromkeys(range(30, 36), FAULT), spoilt.token_ids.tolist()),
    }
    result = compare(
        capture("cpu/base", completion(TEXT), *rest), capture("cpu/mtp", *candidates), scores("cpu/mtp", **known)
    )
    assert [(one.kind, one.position, one.length) for one in result.corrupt] == [
        (Kind.GARBLED, 20, 6),
        (Kind.GARBLED, 30, 6),
    ]


def test_what_the_request_said_itself_is_no_leak() -> None:
    """The victim's own prompt holds the span as well."""
    rest = others()
    span = rest[4].token_ids[10:18].tolist()
    victim = completion([*TEXT[:20], *span, *TEXT[28:]], prompt=span)
    result = compare(
        capture("cpu/base", completion(TEXT, prompt=span), *rest),
        capture("cpu/mtp", victim, *rest),
        scores("cpu/mtp", p0=score(victim.token_ids.tolist(), dict.fromkeys(range(20, 28), FAULT), TEXT)),
    )
    assert [one.kind for one in result.corrupt] == [Kind.GARBLED]


def test_a_match_may_not_run_over_the_end_of_a_donor() -> None:
    rest = others()
    donor = [*rest[0].token_ids[-5:].tolist(), *rest[1].token_ids[:5].tolist()]
    found = leaks([*TEXT[:20], *donor, *TEXT[30:]], range(20, 30), rest)
    assert found[0].kind is Kind.ROW_LEAK
    assert found[0].length == 5


@pytest.mark.parametrize(("gap", "corrupt"), [(0.375, False), (3.0, True)])
def test_texts_that_come_together_at_a_token_little_beyond_the_tolerance(gap: float, corrupt: bool) -> None:
    """Two requests may come to say the same after a near-tie: one doubtful token at the start of it is no leak."""
    rest = others()
    same = [*rest[6].token_ids[:50].tolist(), EOS]
    rest[6] = completion(same, "p7", prompt=rest[6].prompt_token_ids.tolist(), finish="stop")
    mine = [*TEXT[:10], 199, *same[11:]]
    base = capture("cpu/base", completion(TEXT), *rest)
    candidate = capture("cpu/mtp", completion(mine, finish="stop"), *rest)
    found = compare(base, candidate, scores("cpu/mtp", p0=score(mine, {10: 0.1, 11: gap})))
    assert bool(found.corrupt) is corrupt


@pytest.mark.parametrize("alike", [1, 2])
def test_of_donors_that_say_the_same_each_is_named(alike: int) -> None:
    """Nothing in the tokens tells which of them it was."""
    rest = others(60)
    span = rest[6].token_ids[10:30].tolist()
    for n in range(20, 20 + alike):
        own = rest[n].token_ids.tolist()
        rest[n] = replaced(rest[n], [*own[:30], *span, *own[50:]])
    (found,) = leaks([*TEXT[:20], *span, *TEXT[40:]], range(20, 40), rest)
    evidence = found.evidence.to_json()
    assert (found.kind, evidence["donor_request"], evidence["requests_with_this_span"]) == (
        Kind.ROW_LEAK,
        "p7",
        1 + alike,
    )
    assert found.evidence.ambiguous is not None
    assert found.evidence.ambiguous.parameters["others"] == [f"p{n + 1}" for n in range(20, 20 + alike)]


def test_more_donors_than_can_be_named_are_counted() -> None:
    assert as_well((), 0) is None
    assert str(as_well(("p1", "p2"), 2)) == "the text of p1, p2 explains them as well"
    assert str(as_well(("p1", "p2"), 3)) == "the text of p1, p2 and of 1 more request explains them as well"


@pytest.mark.parametrize("period", [2, 7])
def test_a_donor_that_loops_is_taken_up_at_the_very_same_place(period: int) -> None:
    rest = others()
    loop = [*range(700, 700 + period)] * 40
    rest[6] = replaced(rest[6], [*rest[6].token_ids[:6].tolist(), *loop][:60])
    donor = rest[6].token_ids.tolist()
    (found,) = leaks([*TEXT[:20], *donor[20 : len(TEXT)]], range(20, len(TEXT)), rest)
    evidence = found.evidence.to_json()
    assert (found.kind, evidence["donor_request"], evidence["donor_start"]) == (Kind.ROW_LEAK, "p7", 20)
    assert found.evidence.ambiguous is None
