"""Captures of which one arm's completions just end, or have nothing in common with the other's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from captures import EOS, TEXT, capture, completion, score
from worlds import FLAT, PEAKED, speculating
from worlds.trials import Setting, Trial, clean, judge

from parity.comparator import compare
from parity.records import Capture, Completion, Key, Kind, ScoreKey, TopLogprobs, Verdict

GREEDY = Setting("", PEAKED, 16, {"max_tokens": 48})
DRAWN = Setting("", FLAT, 12, {"max_tokens": 24, "temperature": 0.8, "top_p": 0.95, "n": 2})


def trial(setting: Setting) -> Trial:
    return next(iter(clean(setting, 1, arms=(speculating(2),))))


def cut(one: Completion, reason: str | None) -> Completion:
    top = one.logprobs and TopLogprobs(one.logprobs.ids[:20], one.logprobs.values[:20])
    return replace(one, token_ids=one.token_ids[:20], finish_reason=reason, stop_reason=None, logprobs=top, spec=None)


def changed(arm: Capture, change: Callable[[Completion], Completion]) -> Capture:
    made = [change(one) for one in arm]
    return replace(arm, completions={one.key: one for one in made})


@pytest.mark.parametrize("wrong", [3, 16])
def test_a_baseline_that_just_ends_is_no_near_tie(wrong: int) -> None:
    sound = trial(GREEDY)
    keys = list(sound.baseline.completions)[:wrong]
    broken = changed(sound.baseline, lambda one: cut(one, None) if one.key in keys else one)
    found = judge(replace(sound, baseline=broken)).result
    assert found.verdict is Verdict.INCONCLUSIVE
    assert not found.corrupt
    assert "the baseline itself ends where it should not" in str(found.reasons[0])
    assert "no finish_reason and no stop token after 20 of 48 tokens" in str(found.reasons[0])
    assert judge(sound).result.verdict is Verdict.PASS


@pytest.mark.parametrize("setting", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_candidate_that_just_ends_is_found(setting: Setting) -> None:
    sound = trial(setting)
    keys = [key for key, one in sound.candidate.completions.items() if len(one.token_ids) > 20][:3]
    broken = changed(sound.candidate, lambda one: cut(one, None) if one.key in keys else one)
    found = judge(replace(sound, candidate=broken)).result
    assert {one.key for one in found.findings if one.kind is Kind.EARLY_STOP} == set(keys)


def test_a_drawn_baseline_that_just_ends_is_no_pass() -> None:
    sound = trial(DRAWN)
    keys = [key for key, one in sound.baseline.completions.items() if len(one.token_ids) > 20][:3]
    broken = changed(sound.baseline, lambda one: cut(one, None) if one.key in keys else one)
    found = judge(replace(sound, baseline=broken)).result
    assert found.verdict is Verdict.INCONCLUSIVE
    assert not found.corrupt
    assert "no finish_reason and no stop token after 20 of 24 tokens" in str(found.reasons[0])


def test_nobody_who_drops_stop_tokens_and_says_no_reasons_just_ends() -> None:
    def bare(one: Completion) -> Completion:
        kept = len(one.token_ids) - int(one.finish_reason == "stop")
        tops = one.logprobs and TopLogprobs(one.logprobs.ids[:kept], one.logprobs.values[:kept])
        ids = one.token_ids[:kept]
        return replace(one, token_ids=ids, finish_reason=None, stop_reason=None, logprobs=tops, spec=None)

    sound = trial(DRAWN)
    both = replace(sound, baseline=changed(sound.baseline, bare), candidate=changed(sound.candidate, bare))
    assert any(one.finish_reason == "stop" for one in sound.baseline)
    for one in (both, replace(sound, candidate=both.candidate), replace(sound, baseline=both.baseline)):
        found = judge(one).result
        assert not found.corrupt
        assert "no finish_reason" not in str(found.reasons)


def ended(*, reason: str | None, below: float) -> Verdict:
    """A baseline whose EOS is not in the stream, and a candidate that goes on: ending lies so far `below` the best."""
    entries = [[[token, -0.1], [998, -4.0]] for token in TEXT]
    entries[20].append([EOS, -0.1 - below])
    known = {ScoreKey("cpu/mtp", "p0", 0, 0): TopLogprobs.from_json(entries)}
    others = [completion(TEXT[:10], f"q{n}", finish=reason) for n in range(2)]
    tops = {ScoreKey("cpu/mtp", one.key.request, 0, 0): score(TEXT[:10]) for one in others}
    base = capture("cpu/base", completion(TEXT[:20], finish=reason), *others)
    result = compare(base, capture("cpu/mtp", completion(TEXT), *others), {**known, **tops})
    assert not any(one.kind is Kind.OVERRUN for one in result.findings)
    return result.verdict


@pytest.mark.parametrize("reason", ["stop", None])
def test_an_end_that_is_nearly_as_good_is_a_near_tie(reason: str | None) -> None:
    assert ended(reason=reason, below=0.2) is Verdict.PASS
    assert ended(reason=reason, below=6.0) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "other", [lambda key: key._replace(request=f"q{key.request}"), lambda key: key._replace(round=1)]
)
def test_drawn_captures_with_nothing_in_common_are_not_compared(other: Callable[[Key], Key]) -> None:
    sound = trial(DRAWN)
    name = sound.candidate.header.arm
    scores = {
        ScoreKey(one.arm, *other(Key(*one[1:]))) if one.arm == name else one: v for one, v in sound.scores.items()
    }
    apart = changed(sound.candidate, lambda one: replace(one, key=other(one.key)))
    found = judge(replace(sound, candidate=apart, scores=scores)).result
    assert found.verdict is Verdict.INCONCLUSIVE
    assert not found.corrupt
    assert "no completion in common" in str(found.reasons[0])
