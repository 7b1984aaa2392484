"""What is said where nothing judges the tokens, how ends are judged, and limits and aborts of single requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from captures import EOS, TEXT, capture, completion, header, score, scores, texts
from worlds import BASE, FLAT, Fault, World, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, judge

from parity.comparator import Comparison, compare
from parity.records import Capture, Completion, Kind, Severity, Verdict

OTHERS = [completion(range(200 + 60 * n, 260 + 60 * n), f"q{n}") for n in range(6)]
"""Requests that have nothing in common."""


def bare(candidate: Completion, base: Completion | None = None, *others: Completion, **sampling: Any) -> Comparison:
    """Neither scores nor logprobs."""
    return compare(
        capture("cpu/base", base or completion(TEXT), *others, **sampling),
        capture("cpu/mtp", candidate, *others, **sampling),
    )


def said(result: Comparison) -> list[tuple[Kind, int | None, int | None]]:
    return [(one.kind, one.position, one.length) for one in result.corrupt]


LOST = [*TEXT[:10], *TEXT[20:], *range(400, 410)]
AGAIN = [*TEXT[:20], *TEXT[10:20], *TEXT[20:50]]


@pytest.mark.parametrize(("stream", "kind"), [(LOST, "omission"), (AGAIN, "duplication")])
def test_a_shape_alone_convicts_nobody_and_is_named(stream: list[int], kind: str) -> None:
    result = bare(completion(stream))
    assert (result.verdict, said(result)) == (Verdict.INCONCLUSIVE, [])
    assert [one["looks_like"] for one in result.stats.to_json()["suspects"]] == [kind]
    assert f"{kind} of 10 tokens" in texts(result.reasons)[0]
    assert "--score all" in texts(result.reasons)[0]


def test_a_completion_short_by_just_what_is_missing_has_lost_it() -> None:
    assert said(bare(completion(LOST[:50]))) == [(Kind.OMISSION, 10, 10)]


def test_a_completion_over_its_limit_by_what_stands_twice_has_it_twice() -> None:
    assert said(bare(completion([*AGAIN, *TEXT[50:]]))) == [(Kind.DUPLICATION, 20, 10)]


def test_a_completion_short_by_another_number_just_ends() -> None:
    assert said(bare(completion(LOST[:45]))) == [(Kind.EARLY_STOP, 45, 0)]


def test_a_long_span_of_another_request_is_a_leak_where_the_own_text_goes_on_behind_it() -> None:
    stream = [*TEXT[:12], *range(330, 350), *TEXT[32:]]
    result = bare(completion(stream), None, *OTHERS)
    assert said(result) == [(Kind.ROW_LEAK, 12, 20)]
    assert result.corrupt[0].evidence.to_json()["donor_request"] == "q2"


@pytest.mark.parametrize("at", [0, 12])
@pytest.mark.parametrize("donor_at", [0, 10])
def test_a_phrase_that_one_other_request_says_too_convicts_nobody(at: int, donor_at: int) -> None:
    """A refusal, a licence, a quotation: a near-tie may lead into it, and two requests of a run may say it."""
    phrase = range(800, 830)
    other = completion([*range(320, 320 + donor_at), *phrase, *range(930, 960 - donor_at)], "q2")
    stream = [*TEXT[:at], *phrase, *range(600, 630 - at)]
    result = bare(completion(stream), None, *OTHERS[:2], other, *OTHERS[3:])
    assert (result.verdict, said(result)) == (Verdict.INCONCLUSIVE, [])
    assert [one["looks_like"] for one in result.stats.to_json()["suspects"]] == ["row_leak"]


def test_a_span_of_another_request_is_no_leak_where_requests_say_the_same_anyway() -> None:
    stream = [*TEXT[:12], *range(330, 350), *range(600, 628)]
    alike = [completion([*range(500, 540), *range(700 + 20 * n, 720 + 20 * n)], f"r{n}") for n in range(2)]
    result = bare(completion(stream), None, *OTHERS, *alike)
    assert (result.verdict, said(result)) == (Verdict.INCONCLUSIVE, [])


def test_a_short_span_of_another_request_proves_nothing() -> None:
    stream = [*TEXT[:12], *range(330, 340), *range(600, 638)]
    assert bare(completion(stream), None, *OTHERS).verdict is Verdict.INCONCLUSIVE


def test_a_chunk_right_behind_itself_is_proof_where_nothing_is_said_twice() -> None:
    assert said(bare(completion(AGAIN), None, *OTHERS)) == [(Kind.DUPLICATION, 20, 10)]


def test_a_chunk_right_behind_itself_is_none_where_the_text_repeats_itself_anyway() -> None:
    stammering = completion([*range(700, 720), *range(714, 754)], "r0")
    result = bare(completion(AGAIN), None, *OTHERS, stammering)
    assert (result.verdict, said(result)) == (Verdict.INCONCLUSIVE, [])


def test_a_lost_chunk_is_never_proven_by_its_shape() -> None:
    assert bare(completion(LOST), None, *OTHERS).verdict is Verdict.INCONCLUSIVE


# ------------------------------------------------------------------ ends that are not in the stream


def ended(tokens: Sequence[int], **changes: Any) -> Completion:
    return replace(completion(tokens, finish="stop"), **changes)


def server(arm: str, *completions: Completion) -> Capture:
    """A server that keeps no EOS in its token ids."""
    made = capture(arm, *completions)
    return replace(made, header=replace(header(arm), backend="server"))


@pytest.mark.parametrize(
    ("gap", "verdict"), [(None, Verdict.INCONCLUSIVE), (0.1, Verdict.PASS), (9.0, Verdict.DIVERGED)]
)
def test_going_on_where_the_baseline_stopped_at_a_token_it_does_not_show(gap: float | None, verdict: Verdict) -> None:
    known = {} if gap is None else scores("cpu/mtp", p0=score(TEXT, {40: gap}))
    result = compare(server("cpu/base", ended(TEXT[:40])), server("cpu/mtp", completion(TEXT)), known)
    assert result.verdict is verdict
    if gap is not None:
        assert [one.position for one in result.findings] == [40]


def test_stopping_where_the_baseline_goes_on_is_not_decided_where_no_eos_is_shown() -> None:
    result = compare(server("cpu/base", completion(TEXT)), server("cpu/mtp", ended(TEXT[:40])))
    assert (result.verdict, said(result)) == (Verdict.INCONCLUSIVE, [])


def test_a_stop_string_ends_a_completion_whatever_the_tokens() -> None:
    base = ended(TEXT[:40], stop_reason="\n\n")
    result = compare(server("cpu/base", base), server("cpu/mtp", completion(TEXT)))
    assert said(result) == [(Kind.OVERRUN, 40, 20)]


def test_an_eos_that_no_header_names_is_learnt_from_the_baseline() -> None:
    stops = [completion([*range(n, n + 20), EOS], f"q{n}", finish="stop") for n in (200, 300)]
    arms = [
        replace(made, header=replace(made.header, eos_token_ids=None))
        for made in (
            capture("cpu/base", completion(TEXT), *stops),
            capture("cpu/mtp", completion([*TEXT[:40], EOS, *TEXT[41:]]), *stops),
        )
    ]
    assert (Kind.OVERRUN, 41, 19) in said(compare(*arms))


# ------------------------------------------------------------------ a request's own limit


def own(tokens: Sequence[int], limit: int, **changes: Any) -> Completion:
    return replace(completion(tokens), max_tokens=limit, **changes)


def test_a_request_is_held_to_its_own_limit() -> None:
    assert bare(own(TEXT[:20], 20), own(TEXT[:20], 20)).verdict is Verdict.PASS
    assert said(bare(own(TEXT[:25], 20), own(TEXT[:20], 20))) == [(Kind.OVERRUN, 20, 5)]
    assert said(bare(own(TEXT[:15], 20), own(TEXT[:20], 20))) == [(Kind.EARLY_STOP, 15, 0)]


def test_a_limit_of_its_own_may_be_above_the_runs() -> None:
    stream = list(range(100, 180))
    assert bare(own(stream, 80), own(stream, 80)).verdict is Verdict.PASS
    flipped = own([*stream[:30], *range(300, 350)], 80)
    known = scores("cpu/mtp", p0=score(flipped.token_ids.tolist(), {30: 0.1}, stream))
    result = compare(capture("cpu/base", own(stream, 80)), capture("cpu/mtp", flipped), known)
    assert result.verdict is Verdict.PASS


def test_two_limits_are_two_questions() -> None:
    result = bare(own(TEXT[:20], 20), own(TEXT[:30], 30))
    assert said(result) == [(Kind.INPUT_MISMATCH, None, None)]
    assert result.corrupt[0].evidence.to_json()["candidate_max_tokens"] == 20


# ------------------------------------------------------------------ requests that were taken back


def aborted(tokens: Sequence[int]) -> Completion:
    return replace(completion(tokens, finish="abort"), aborted=True)


@pytest.mark.parametrize(("left", "right"), [(60, 20), (20, 60), (20, 30), (30, 20), (20, 20), (60, 0), (0, 60)])
def test_a_completion_taken_back_is_compared_as_far_as_it_goes(left: int, right: int) -> None:
    arms = [completion(TEXT) if size == len(TEXT) else aborted(TEXT[:size]) for size in (left, right)]
    result = bare(arms[1], arms[0], *OTHERS)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert result.stats.to_json()["identical"] == len(OTHERS) + 1
    assert result.stats.to_json()["aborted"] == 1


def test_a_wrong_token_in_a_completion_taken_back_is_found() -> None:
    stream = [*TEXT[:10], 700, *TEXT[11:20]]
    known = scores("cpu/mtp", p0=score(stream, {10: 9.0}, TEXT))
    result = compare(capture("cpu/base", completion(TEXT)), capture("cpu/mtp", aborted(stream)), known)
    assert said(result) == [(Kind.UNJUSTIFIED, 10, 1)]


def test_what_follows_where_the_baselines_request_was_taken_back_is_judged_by_scores() -> None:
    stream = [*TEXT[:30], 700, *TEXT[31:]]
    known = scores("cpu/mtp", p0=score(stream, {30: 9.0}, TEXT))
    result = compare(capture("cpu/base", aborted(TEXT[:20])), capture("cpu/mtp", completion(stream)), known)
    assert said(result) == [(Kind.UNJUSTIFIED, 30, 1)]


def test_an_abort_that_nobody_asked_for_is_an_early_stop() -> None:
    assert [one.kind for one in bare(completion(TEXT[:20], finish="abort")).corrupt] == [Kind.EARLY_STOP]


def test_nothing_but_aborts_before_the_first_token_is_no_pass() -> None:
    result = bare(aborted([]), completion(TEXT))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not [one for one in result.findings if one.severity is Severity.CORRUPT]


@pytest.mark.parametrize("view", ["lists, unscored", "servers, lists"])
def test_a_near_tie_after_which_another_request_says_the_same_is_no_leak(view: str) -> None:
    """A token 0.375 nats below the best, four tokens that another request says too, and an earlier end: of a healthy
    arm."""
    trial = Faulty(3900002, FLAT, first=16, logprobs=5).trial(Fault("clean", "", "hunted", ()), 4)
    result = judge(VIEWS[view](trial)).result
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("names", [True, False])
def test_drawn_captures_that_name_no_temperature_accuse_nobody(names: bool) -> None:
    """They count as greedy: the baseline's own lists show that it is not."""
    world = World(3, FLAT)
    asked = world.requests(16)
    arms = [world.run(asked, arm, max_tokens=32, temperature=0.8, logprobs=5).capture for arm in (BASE, speculating(2))]
    if not names:
        arms = [replace(arm, header=replace(arm.header, sampling={"max_tokens": 32}, engine={})) for arm in arms]
    result = compare(*arms)
    assert (result.verdict, said(result)) == (Verdict.INCONCLUSIVE, [])
    assert ("logprobs.rejects_own" in [one.id for one in result.notes]) is not names
