"""Habits, noise and faults of the baseline that must not be held against the candidate, and PASS not said too soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captures import EOS, TEXT, capture, completion, score, scores, texts

from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Capture, Completion, Key, Kind, ScoreKey, TopLogprobs, Verdict

OTHERS = [completion(range(200 + 60 * n, 260 + 60 * n), f"q{n}") for n in range(6)]
ENDED = [completion([*range(700 + 30 * n, 715 + 30 * n), EOS], f"e{n}", finish="stop") for n in range(4)]


def corrupt(result: Comparison) -> list[tuple[str, Kind, int | None]]:
    return [(one.request, one.kind, one.position) for one in result.corrupt]


def arms(base: Completion, candidate: Completion, *others: Completion, **sampling: Any) -> tuple[Capture, Capture]:
    return capture("cpu/base", base, *others, **sampling), capture("cpu/mtp", candidate, *others, **sampling)


def each(arm: Capture, change: Callable[[Completion], Completion]) -> Capture:
    return replace(arm, completions={key: change(one) for key, one in arm.completions.items()})


# ------------------------------------------------------------------ the baseline is at fault

FAULTY = {
    "a token": [*TEXT[:20], 555, *TEXT[21:]],
    "another request's tokens": [*TEXT[:20], *range(220, 235), *TEXT[35:]],
    "a chunk lost": [*TEXT[:20], *TEXT[30:], *range(600, 610)],
    "a chunk twice": [*TEXT[:30], *TEXT[20:30], *TEXT[30:50]],
    "an id that there is not": [*TEXT[:20], 5000, *TEXT[21:]],
    "an early EOS": [*TEXT[:20], EOS],
    "short by length": list(TEXT[:30]),
    "nothing at all": [],
    "too long": [*TEXT, 5, 6, 7],
}


@pytest.mark.parametrize("fault", FAULTY)
@pytest.mark.parametrize("is_scored", [True, False])
def test_a_fault_of_the_baseline_is_not_held_against_the_candidate(fault: str, is_scored: bool) -> None:
    base = completion(FAULTY[fault], finish="stop" if fault == "an early EOS" else "length")
    known = scores("cpu/mtp", p0=listed(TEXT)) if is_scored else None
    result = compare(*arms(base, completion(TEXT), *OTHERS), known)
    assert corrupt(result) == []
    assert result.verdict is Verdict.INCONCLUSIVE
    assert is_scored <= ("baseline" in " ".join(texts(result.reasons)))
    assert not [one for one in result.findings if one.kind is Kind.NEAR_TIE]


def listed(tokens: Sequence[int], chosen: float = -0.1) -> TopLogprobs:
    """Top five and the chosen token: whatever is not listed lies at least six nats below."""
    width = [[token, 990, 991, 992, 993] for token in tokens]
    return TopLogprobs(np.array(width), np.tile([chosen, -6.0, -6.1, -6.2, -6.3], (len(tokens), 1)))


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_baseline_that_broke_off_is_not_held_against_the_candidate(reason: str) -> None:
    result = compare(*arms(completion(TEXT[:20], finish=reason), completion(TEXT), *OTHERS))
    assert (result.verdict, corrupt(result)) == (Verdict.INCONCLUSIVE, [])


def test_a_baseline_that_went_past_its_eos_is_not_held_against_the_candidate() -> None:
    base = completion([*TEXT[:20], EOS, *range(300, 320)])
    result = compare(*arms(base, completion([*TEXT[:20], EOS], finish="stop"), *OTHERS, *ENDED))
    assert (result.verdict, corrupt(result)) == (Verdict.INCONCLUSIVE, [])
    assert "tokens follow" in texts(result.reasons)[-1]


def test_tokens_of_the_baseline_that_its_own_scores_reject_are_no_noise() -> None:
    """Else one garbled completion of the baseline would calibrate a tolerance that lets everything pass."""
    wrong = [*TEXT[:20], 555, *TEXT[21:]]
    hurt = [*range(200, 210), 556, *range(211, 260)]
    base, candidate = arms(completion(wrong), completion(wrong), OTHERS[0])
    candidate = replace(candidate, completions={**candidate.completions, Key("q0", 0, 0): completion(hurt, "q0")})
    known = {
        **scores("cpu/base", p0=score(wrong, {20: 9.0}), q0=score(range(200, 260))),
        **scores("cpu/mtp", q0=score(hurt, {10: 8.0}, range(200, 260))),
    }
    result = compare(base, candidate, known, CompareOptions("auto"))
    assert result.stats.to_json()["tolerance"] == pytest.approx(0.125, abs=1e-4)
    assert corrupt(result) == [("q0", Kind.UNJUSTIFIED, 10)]
    assert any("1 of the baseline's own 120 tokens" in reason for reason in texts(result.reasons))
    clean = compare(base, replace(base, header=candidate.header, counters=candidate.counters), known)
    assert (clean.verdict, corrupt(clean)) == (Verdict.INCONCLUSIVE, [])


def test_a_bound_is_taken_from_ranked_tokens_only() -> None:
    """The chosen token stands in its list whatever its rank: an unlisted one may lie between it and the others."""
    stream = [*TEXT[:20], 700, *TEXT[21:]]
    top = listed(stream)
    top.values[20] = [-12.0, -0.9, -1.0, -1.1, -1.2]
    result = compare(*arms(completion(TEXT), completion(stream), *OTHERS), scores("cpu/mtp", p0=top))
    assert corrupt(result) == [("p0", Kind.UNJUSTIFIED, 20)]
    assert not any("baseline's own token" in reason for reason in texts(result.reasons))


# ------------------------------------------------------------------ noise


def test_two_steps_of_a_logit_are_justified_however_they_are_written() -> None:
    verdicts = set()
    for best in np.round(np.arange(-3.0, 0.0, 0.05), 2):
        stream = [*TEXT[:20], 700, *range(300, 339)]
        top = listed(stream)
        top.ids[20, :2], top.values[20, :2] = [TEXT[20], 700], [best, round(float(best) - 0.25, 4)]
        top.values[20, 2:] = best - 5
        verdicts.add(compare(*arms(completion(TEXT), completion(stream)), scores("cpu/mtp", p0=top)).verdict)
    assert verdicts == {Verdict.PASS}


@pytest.mark.parametrize(("step", "verdict"), [(0.5, Verdict.INCONCLUSIVE), (0.11, Verdict.DIVERGED)])
def test_logits_that_step_by_more_than_the_tolerance_are_seen(step: float, verdict: Verdict) -> None:
    """bfloat16 logits of 64 and more step by half a nat: gaps of two steps are rounding there."""
    rng = np.random.default_rng(1)
    stream = [*TEXT[:10], 700, 701, 702, 703, *TEXT[14:]]
    ids = np.stack([np.array(stream), *(np.full(60, 900 + n) for n in range(3))], axis=1)
    values = -0.3 - step * np.stack([np.zeros(60), *(rng.integers(1, 5, 60) for _ in range(3))], axis=1)
    for at in range(10, 14):
        ids[at, 1], values[at, :2] = TEXT[at], [-0.3 - 0.998, -0.3]
    longer = TopLogprobs(np.concatenate([ids, ids[:20] + 0]), np.concatenate([values, values[:20]]))
    known = {**scores("cpu/mtp", p0=TopLogprobs(ids, values)), ScoreKey("cpu/mtp", "x", 0, 0): longer}
    assert compare(*arms(completion(TEXT), completion(stream), *OTHERS), known).verdict is verdict


def test_many_tokens_little_beyond_the_tolerance_are_a_fault() -> None:
    stream = list(TEXT)
    wrong = {}
    for at in (5, 15, 25, 35, 45):
        stream[at], wrong[at] = 700 + at, 0.3
    known = scores("cpu/mtp", p0=score(stream, wrong, TEXT))
    assert compare(*arms(completion(TEXT), completion(stream)), known).verdict is Verdict.DIVERGED


def test_an_eos_that_min_tokens_forbade_is_no_end_that_was_missed() -> None:
    stream = [*TEXT[:5], *range(300, 355)]
    top = listed(stream)
    for at in (5, 8, 12):
        top.ids[at, 1], top.values[at, :2] = EOS, [-3.0, -0.1]
    at = {"min_tokens": 20}
    result = compare(*arms(completion(TEXT), completion(stream), **at), scores("cpu/mtp", p0=top))
    assert corrupt(result) == []
    late = TopLogprobs(np.roll(top.ids, 20, axis=0), np.roll(top.values, 20, axis=0))
    late.ids[:, 0] = stream
    result = compare(*arms(completion(TEXT), completion(stream), **at), scores("cpu/mtp", p0=late))
    assert result.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("asked", [{"bad_words": ["x"]}, {"structured_outputs": {"json": "{}"}}])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_tokens_that_a_ban_or_a_grammar_chose_are_not_held_against_raw_scores(
    asked: dict[str, Any], temperature: float
) -> None:
    stream = [*TEXT[:20], *range(300, 340)]
    known = scores("cpu/mtp", p0=score(stream, {20: 0.1, 35: 9.0}, TEXT))
    result = compare(*arms(completion(TEXT), completion(stream), temperature=temperature, **asked), known)
    assert (result.verdict, corrupt(result)) == (Verdict.INCONCLUSIVE, [])
    assert any(next(iter(asked)) in reason for reason in texts(result.reasons))
    same = arms(completion(TEXT), completion(TEXT), temperature=temperature, **asked)
    assert compare(*same).verdict is Verdict.PASS


# ------------------------------------------------------------------ ends and habits of servers


def without_eos(one: Completion) -> Completion:
    return replace(one, token_ids=one.token_ids[:-1]) if one.token_ids[-1] == EOS else one


@pytest.mark.parametrize("is_scored", [True, False])
@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_an_eos_that_one_side_never_keeps_is_a_habit(side: str, is_scored: bool) -> None:
    base, candidate = arms(completion(TEXT), completion(TEXT), *ENDED)
    if side == "baseline":
        base = each(base, without_eos)
    else:
        candidate = each(candidate, without_eos)
    keeper = "cpu/mtp" if side == "baseline" else "cpu/base"
    known = {ScoreKey(keeper, one.key.request, 0, 0): listed(one.token_ids.tolist()) for one in ENDED}
    result = compare(base, candidate, known if is_scored else None)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert any("EOS" in note for note in texts(result.notes))


def test_an_eos_that_is_lost_once_is_no_habit() -> None:
    base, candidate = arms(completion(TEXT), completion(TEXT), *ENDED)
    key = ENDED[1].key
    candidate = replace(candidate, completions={**candidate.completions, key: without_eos(ENDED[1])})
    assert [name for name, *_ in corrupt(compare(base, candidate))] == ["e1"]


def test_an_early_stop_is_none_the_less_one_where_the_eos_is_left_out() -> None:
    base, candidate = arms(completion(TEXT), completion(TEXT[:20], finish="stop"), *ENDED)
    candidate = each(candidate, without_eos)
    result = compare(base, candidate, scores("cpu/base", p0=listed(TEXT)))
    assert corrupt(result) == [("p0", Kind.EARLY_STOP, 20)]


@pytest.mark.parametrize(
    ("tokens", "reasons"),
    [
        ([*TEXT[:59], EOS], ("stop", "length")),
        ([*TEXT[:59], EOS], ("length", "stop")),
        ([*TEXT[:20], EOS], ("stop", "tool_calls")),
    ],
)
def test_two_finish_reasons_that_are_both_true(tokens: list[int], reasons: tuple[str, str]) -> None:
    base, candidate = (completion(tokens, finish=reason) for reason in reasons)
    assert compare(*arms(base, candidate)).findings == ()
    short = [*tokens[:10], 990]
    base, candidate = completion(short, finish="stop"), completion(short, finish="length")
    assert compare(*arms(base, candidate)).verdict is Verdict.DIVERGED


# ------------------------------------------------------------------ logprobs of another kind


def chosen_certain(one: Completion) -> Completion:
    top = listed(one.token_ids.tolist())
    return replace(
        one, logprobs=TopLogprobs(top.ids, np.where(np.arange(5) == 0, 0.0, -np.inf)[None].repeat(len(top), 0))
    )


@pytest.mark.parametrize("is_scored", [True, False])
def test_lists_that_call_every_token_certain_are_left_out(is_scored: bool) -> None:
    stream = [*TEXT[:20], *range(300, 340)]
    base, candidate = (each(one, chosen_certain) for one in arms(completion(TEXT), completion(stream), *OTHERS))
    known = scores("cpu/mtp", p0=score(stream, {20: 0.1}, TEXT)) if is_scored else None
    result = compare(base, candidate, known)
    assert corrupt(result) == []
    assert result.verdict is (Verdict.PASS if is_scored else Verdict.INCONCLUSIVE)
    assert any("call every token certain" in note for note in texts(result.notes))


def test_lists_that_the_header_calls_by_another_name_are_left_out() -> None:
    base, candidate = arms(completion(TEXT), completion(TEXT))
    header = replace(candidate.header, engine={**candidate.header.engine, "logprobs_mode": "raw_logits"})
    candidate = replace(each(candidate, chosen_certain), header=header)
    result = compare(base, candidate, scores("cpu/base", p0=listed(TEXT)))
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert any("raw_logits" in note for note in texts(result.notes))


def test_another_temperature_in_both_arms_is_a_habit_and_in_one_a_fault() -> None:
    def told(one: Completion, scale: float) -> Completion:
        top = listed(one.token_ids.tolist(), -2.0)
        return replace(one, logprobs=TopLogprobs(top.ids, top.values * scale))

    base, candidate = arms(completion(TEXT), completion(TEXT))
    known = scores("cpu/base", p0=listed(TEXT, -2.0))
    both = [each(one, lambda one: told(one, 0.5)) for one in (base, candidate)]
    result = compare(*both, known)
    assert (result.verdict, corrupt(result)) == (Verdict.PASS, [])
    assert any("another temperature" in note for note in texts(result.notes))
    mixed = compare(each(base, lambda one: told(one, 1.0)), both[1], known)
    assert [kind for _, kind, _ in corrupt(mixed)] == [Kind.LOGPROB_MISMATCH]


def test_scores_of_the_chosen_tokens_alone_say_little() -> None:
    stream = [*TEXT[:20], *range(700, 740)]
    top = TopLogprobs(np.array(stream)[:, None], np.full((60, 1), -9.0))
    result = compare(*arms(completion(TEXT), completion(stream)), scores("cpu/mtp", p0=top))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert any("chosen tokens alone" in note for note in texts(result.notes))


def test_the_gap_of_the_baselines_token_is_called_that() -> None:
    """Where the baseline's list is too short, the candidate's own says how it saw the baseline's token."""
    stream = [*TEXT[:20], *range(300, 340)]
    mine = listed(stream)
    mine.ids[20, 1], mine.values[20, 1] = TEXT[20], -2.1
    base = completion(TEXT, logprobs=TopLogprobs(np.array(TEXT)[:, None], np.full((60, 1), -0.1)))
    result = compare(*arms(base, completion(stream, logprobs=mine)))
    assert (result.corrupt, result.verdict) == ([], Verdict.INCONCLUSIVE)  # which of them is off nobody knows
    evidence = result.findings[0].evidence.to_json()
    assert evidence["judged_by"] == "the candidate's own logprobs"
    assert evidence["gap"] == pytest.approx(2.0)
    assert (evidence["best_token"], evidence["best_logprob"], evidence["chosen_logprob"]) == (300, -0.1, -0.1)


def test_a_near_tie_says_both_are_likely_only_where_the_list_does() -> None:
    stream = [*TEXT[:20], *range(300, 340)]
    top = listed(stream)
    top.ids[20, 1], top.values[20, 1] = TEXT[20], -0.2
    known = scores("cpu/mtp", p0=top)
    tie = compare(*arms(completion(TEXT), completion(stream)), known).findings[0].evidence.to_json()
    assert "both tokens" in tie["why"]["text"]
    assert tie["gap_of_baseline_token"] == pytest.approx(0.1)


# ------------------------------------------------------------------ text


@pytest.mark.parametrize("texts", [("abc", "abc\ufffd"), ("a\ufffd\ufffdc", "a\ufffdc")])
def test_bytes_that_are_no_character_are_shown_in_several_ways(texts: tuple[str, str]) -> None:
    base, candidate = (replace(completion(TEXT), text=text) for text in texts)
    assert compare(*arms(base, candidate)).findings == ()


def test_a_text_cut_at_a_stop_string_that_nobody_names() -> None:
    def detokenize(ids: Sequence[int]) -> str:
        return "".join(chr(0x4E00 + token) for token in ids)

    text = detokenize(TEXT)
    other = [*TEXT[:20], *range(300, 340)]
    known = scores("cpu/mtp", p0=score(other, {20: 0.1}, TEXT))
    base, candidate = (
        replace(completion(tokens, finish="stop"), text=detokenize(tokens)[:50]) for tokens in (TEXT, other)
    )
    options = CompareOptions(detokenize=detokenize)
    assert corrupt(compare(*arms(base, candidate, stop=["x"]), known, options)) == []
    plain = [replace(one, finish_reason="length") for one in (replace(base, text=text), candidate)]
    assert corrupt(compare(*arms(*plain, stop=["x"]), known, options)) == [("p0", Kind.TEXT_MISMATCH, 50)]


def test_special_tokens_that_are_shown_at_the_end() -> None:
    def detokenize(ids: Sequence[int]) -> str:
        return "".join(chr(0x4E00 + token) for token in ids if token)

    def told(one: Completion) -> Completion:
        tokens = one.token_ids.tolist()
        return replace(one, text=detokenize(tokens) + ("<eos>" if tokens[-1] == EOS else ""))

    other = [*range(700, 705), *range(600, 609), 601, EOS]
    base, candidate = arms(completion(TEXT), completion(TEXT), *OTHERS, *ENDED[:1])
    candidate = replace(
        candidate, completions={**candidate.completions, ENDED[0].key: completion(other, "e0", finish="stop")}
    )
    known = scores("cpu/mtp", e0=score(other, {5: 0.1}))
    result = compare(each(base, told), each(candidate, told), known, CompareOptions(detokenize=detokenize))
    assert corrupt(result) == []


# ------------------------------------------------------------------ what was asked


def more_rounds_of_one(rounds: list[Completion]) -> tuple[Capture, Capture]:
    return capture("cpu/base", *rounds), capture("cpu/mtp", *rounds[:1])


def test_rounds_that_only_one_side_ran_are_not_missing() -> None:
    base = [completion(TEXT, round=n) for n in range(3)]
    result = compare(*more_rounds_of_one(base))
    assert (result.verdict, result.findings) == (Verdict.INCONCLUSIVE, ())
    assert "2 rounds" in texts(result.reasons)[0]
    digest = {"plan_digest": "the same"}
    asked = [replace(arm, header=replace(arm.header, extra=digest)) for arm in more_rounds_of_one(base)]
    assert {one.kind for one in compare(*asked).corrupt} == {Kind.MISSING_COMPLETION}
    holed = compare(capture("cpu/base", *base, *OTHERS), capture("cpu/mtp", *base, *OTHERS[1:]))
    assert corrupt(holed) == [("q0", Kind.MISSING_COMPLETION, None)]


def test_captures_of_other_requests_are_not_missing_each_other() -> None:
    result = compare(capture("cpu/base", *OTHERS[:3]), capture("cpu/mtp", *OTHERS[3:]))
    assert (result.verdict, result.findings) == (Verdict.INCONCLUSIVE, ())


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"stop": [], "top_k": 0}, {"stop": None, "top_k": -1}, True),
        ({"top_p": 0.9}, {"top_p": 1.0}, True),  # nothing at temperature 0
        ({"stop": ["x"]}, {}, False),
        ({"min_tokens": 4}, {}, False),
        ({"repetition_penalty": 1.0, "n": 1}, {}, True),
        ({"temperature": 1.0}, {}, False),
    ],
)
def test_what_the_arms_were_asked_is_held_side_by_side(left: dict[str, Any], right: dict[str, Any], same: bool) -> None:
    base, candidate = arms(completion(TEXT), completion(TEXT))
    asked = [{"max_tokens": 60, **one} for one in (left, right)]
    made = [
        replace(arm, header=replace(arm.header, sampling=one))
        for arm, one in zip((base, candidate), asked, strict=True)
    ]
    result = compare(*made)
    assert (result.verdict is Verdict.PASS) is same
    assert not any("are corrupt" in reason for reason in texts(result.reasons))


@pytest.mark.parametrize(("tokens", "finish"), [([], "stop"), ([], "error"), (TEXT[:5], "error")])
def test_what_neither_arm_answered_is_no_pass(tokens: Sequence[int], finish: str) -> None:
    one = completion(tokens, finish=finish)
    assert compare(*arms(one, one)).verdict is Verdict.INCONCLUSIVE


# ------------------------------------------------------------------ power


@pytest.mark.parametrize(("best", "verdict"), [(-6.5, Verdict.INCONCLUSIVE), (-2.0, Verdict.PASS)])
def test_near_ties_among_tokens_that_are_all_alike_say_little(best: float, verdict: Verdict) -> None:
    stream = [*TEXT[:20], *range(300, 340)]
    top = listed(stream)
    top.values[:] = best - np.array([0.0, 0.05, 0.1, 0.15, 0.2])
    top.ids[20, 1] = TEXT[20]
    result = compare(*arms(completion(TEXT), completion(stream)), scores("cpu/mtp", p0=top))
    assert (result.verdict, corrupt(result)) == (verdict, [])
    expected = min(1.0, np.exp(0.25 - best) / 1000)
    assert result.stats.chance_that_any_token_passes == pytest.approx(expected, abs=1e-4)
