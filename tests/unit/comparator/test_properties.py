"""What must hold for any two captures: hostile input, symmetry, order, comparing with oneself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import orjson
import pytest
from captures import capture, completion, header, texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.detect.events import tokens_event
from parity.comparator.detect.overlaps import without_overlaps
from parity.messages import message
from parity.records import (
    Capture,
    Completion,
    Header,
    Key,
    Kind,
    ScoreKey,
    Severity,
    TopLogprobs,
    Verdict,
)
from parity.records.kinds import kinds

INT32 = 2**31 - 1
PROPERTY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

edge_ids = st.sampled_from([-(2**31), -1, 0, 1, 2047, 2048, 32_000, INT32 - 1, INT32, INT32 + 1, 2**62])
token_ids = st.lists(st.one_of(st.integers(0, 5), edge_ids), max_size=40)
nats = st.one_of(st.floats(-40, 0), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1e308, -1e308]))
entries = st.lists(st.lists(st.tuples(st.one_of(st.integers(0, 5), edge_ids), nats), max_size=4), max_size=45)
finish = st.sampled_from(["length", "stop", "abort", "", None])


def head(arm: str, **sampling: object) -> Header:
    return header(arm, vocab_size=2048, **{"max_tokens": 64, **sampling})


def top(rows: list[list[tuple[int, float]]]) -> TopLogprobs:
    return TopLogprobs.from_json([[list(pair) for pair in row] for row in rows])


@st.composite
def completions(draw: st.DrawFn, request: str, *, sample: int = 0) -> Completion:
    return completion(
        draw(token_ids),
        request,
        sample=sample,
        finish=draw(finish),
        stop=draw(st.sampled_from([None, 0, 7, "x"])),
        text=draw(st.sampled_from([None, "", "abc", "\ufffd"])),
        logprobs=draw(st.one_of(st.none(), entries.map(top))),
        max_tokens=draw(st.sampled_from([None, None, 0, 3, 2**31])),
        aborted=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def captures(draw: st.DrawFn, arm: str, *, temperature: float = 0.0, n: int = 1) -> Capture:
    made = []
    for request in draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, max_size=4)):
        for sample in range(n):
            if n == 1 or draw(st.booleans()):
                made.append(draw(completions(request, sample=sample)))
    shared = head(arm, temperature=temperature, n=n)
    if draw(st.booleans()):
        shared = replace(shared, vocab_size=None, eos_token_ids=None, sampling={})
    return capture(shared, *made, counters={})


def summary(result: Comparison) -> list[tuple[object, ...]]:
    return sorted(
        (f.request, f.round, f.sample, str(f.kind), str(f.severity), -1 if f.position is None else f.position)
        for f in result.findings
    )


@PROPERTY
@given(captures("cpu/base"), captures("cpu/mtp"), st.dictionaries(st.sampled_from("abcd"), entries))
def test_never_crashes_and_says_only_what_json_can_hold(
    left: Capture, right: Capture, scored: dict[str, list[list[tuple[int, float]]]]
) -> None:
    scores = {ScoreKey("cpu/mtp", request, 0, 0): top(rows) for request, rows in scored.items()}
    result = compare(left, right, scores, CompareOptions())
    assert result.verdict in Verdict
    orjson.dumps(result.to_json())
    for finding in result.findings:
        assert finding.kind in kinds()
        assert finding.severity in Severity
        assert finding.position is None or finding.position >= 0
        assert str(finding.evidence.why), f"{finding.kind} says nothing"


@PROPERTY
@given(captures("cpu/base", temperature=0.8, n=3), captures("cpu/mtp", temperature=0.8, n=3))
def test_never_crashes_on_samples(left: Capture, right: Capture) -> None:
    assert compare(left, right, {}, CompareOptions()).verdict in Verdict


sound = st.lists(st.lists(st.integers(1, 2047), min_size=1, max_size=40), min_size=1, max_size=6)


@PROPERTY
@given(sound)
def test_a_capture_against_itself_passes(rows: list[list[int]]) -> None:
    same = capture(
        head("cpu/base", max_tokens=max(map(len, rows))),
        *(completion(row, f"r{i}", prompt=(5, i)) for i, row in enumerate(rows)),
    )
    rows_equal = [replace(c, finish_reason="length" if len(c.token_ids) else "stop") for c in same]
    result = compare(capture(same.header, *rows_equal), capture(same.header, *rows_equal), {}, CompareOptions())
    assert [f for f in result.findings if f.severity is Severity.CORRUPT and f.kind is not Kind.EARLY_STOP] == []
    full = [c for c in rows_equal if len(c.token_ids) == max(map(len, rows))]
    whole = capture(same.header, *full)
    result = compare(whole, whole, {}, CompareOptions())
    assert result.verdict is Verdict.PASS
    assert result.findings == ()


WRONG_BY_ITSELF = {Kind.INVALID_TOKEN, Kind.LOGPROB_MISMATCH, Kind.MISSING_COMPLETION, Kind.DUPLICATE_COMPLETION}


@PROPERTY
@given(st.one_of(captures("cpu/base"), captures("cpu/base", temperature=0.8, n=2)))
def test_any_capture_against_itself_has_only_what_is_wrong_in_itself(one: Capture) -> None:
    result = compare(one, one, {}, CompareOptions())
    corrupt = {f.kind for f in result.findings if f.severity is Severity.CORRUPT}
    assert corrupt <= WRONG_BY_ITSELF
    # Nothing to compare, an engine that broke off in both, or one that broke a request's limit in both: no PASS.
    compared = any(len(c.token_ids) for c in one) and all(c.aborted or c.finish_reason != "abort" for c in one)
    compared &= not any(reason.id == "conclude.both_broke" for reason in result.reasons)
    # Nor where n samples were asked of each request and not all are there.
    compared &= len(one.completions) >= len({key.request for key in one.completions}) * one.header.sampling.get("n", 1)
    assert result.verdict is (Verdict.DIVERGED if corrupt else Verdict.PASS if compared else Verdict.INCONCLUSIVE)


@PROPERTY
@given(captures("cpu/base"), captures("cpu/mtp"))
def test_swapping_the_sides_mirrors_what_is_equal_and_what_is_missing(left: Capture, right: Capture) -> None:
    def classes(result: Comparison, wanted: str) -> set[Key]:
        return {key for key, name in result.classes.items() if name == wanted}

    one_way, other_way = compare(left, right, {}, CompareOptions()), compare(right, left, {}, CompareOptions())
    lacking = [set(a.completions) - set(b.completions) for a, b in ((left, right), (right, left))]
    in_common = left.completions.keys() & right.completions.keys() or not (left.completions and right.completions)
    for way, alone in zip((one_way, other_way), lacking, strict=True):
        assert classes(way, "missing") == (alone if in_common else set())
        assert {f.key for f in way.findings if f.kind is Kind.MISSING_COMPLETION} == classes(way, "missing")
    inputs = [{f.key for f in way.findings if f.kind is Kind.INPUT_MISMATCH} for way in (one_way, other_way)]
    assert inputs[0] == inputs[1]


@PROPERTY
@given(captures("cpu/base"), captures("cpu/mtp"), st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(left: Capture, right: Capture, random: object) -> None:
    def mixed(one: Capture) -> Capture:
        order = list(one.completions.items())
        random.shuffle(order)  # type: ignore[attr-defined]
        return replace(one, completions=dict(order))

    plain = compare(left, right, {}, CompareOptions())
    turned = compare(mixed(left), mixed(right), {}, CompareOptions())
    assert summary(plain) == summary(turned)
    assert plain.verdict is turned.verdict


@PROPERTY
@given(captures("cpu/base"), captures("cpu/mtp"), st.randoms(use_true_random=False))
def test_comparing_changes_nothing_and_is_repeatable(left: Capture, right: Capture, random: object) -> None:
    before = [c.token_ids.copy() for c in [*left, *right]]
    first = compare(left, right, {}, CompareOptions())
    assert summary(first) == summary(compare(left, right, {}, CompareOptions()))
    for was, now in zip(before, [*left, *right], strict=True):
        np.testing.assert_array_equal(was, now.token_ids)


def streams(seed: int, count: int, length: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(1, 2048, (count, length)).tolist()


def scored(arm: str, rows: list[list[int]], other: list[list[int]], wrong: range) -> dict[ScoreKey, TopLogprobs]:
    """Scores that support every token but those of row r3 at `wrong`: there the other side's token is the best."""
    made = {}
    for index, (row, usual) in enumerate(zip(rows, other, strict=True)):
        table = [
            [(usual[t], -0.1), (token, -7.1)] if index == 3 and t in wrong and t < len(usual) else [(token, -0.1)]
            for t, token in enumerate(row)
        ]
        made[ScoreKey(arm, f"r{index}", 0, 0)] = top(table)
    return made


@pytest.mark.parametrize("chunk", [2, 5, 9, 17])
@pytest.mark.parametrize("place", [20, 40])
def test_swapping_the_sides_turns_a_duplication_into_an_omission(chunk: int, place: int) -> None:
    rows = streams(chunk, 8, 100)
    hurt = [list(row) for row in rows]
    hurt[3] = [*rows[3][:place], *rows[3][place - chunk : place], *rows[3][place:]][:100]
    shared = {"max_tokens": 100}

    def one_way(a: list[list[int]], b: list[list[int]], wrong: range) -> list[tuple[str, str, int | None]]:
        left = [completion(t, f"r{i}", prompt=(5, i)) for i, t in enumerate(a)]
        right = [completion(t, f"r{i}", prompt=(5, i)) for i, t in enumerate(b)]
        result = compare(
            capture(head("cpu/base", **shared), *left),
            capture(head("cpu/other", **shared), *right),
            scored("cpu/other", b, a, wrong),
            CompareOptions(),
        )
        return [(f.request, str(f.kind), f.position) for f in result.findings if f.severity is Severity.CORRUPT]

    assert one_way(rows, hurt, range(place, place + chunk)) == [("r3", "duplication", place)]
    assert one_way(hurt, rows, range(place, place + 2)) == [("r3", "omission", place)]


@pytest.mark.parametrize("arms", [("cpu/base", "cpu/other"), ("cpu/other", "cpu/base")])
def test_swapping_the_sides_mirrors_which_row_is_missing(arms: tuple[str, str]) -> None:
    whole = [completion(t, f"r{i}", prompt=(5, i)) for i, t in enumerate(streams(1, 4, 64))]
    most, less = capture(head(arms[0]), *whole), capture(head(arms[1]), *whole[:-1])
    found = compare(most, less, {}, CompareOptions()).findings
    assert [(f.request, f.kind) for f in found] == [("r3", Kind.MISSING_COMPLETION)]
    turned = compare(less, most, {}, CompareOptions())
    assert (turned.verdict, turned.findings) == (Verdict.INCONCLUSIVE, ())
    assert "the baseline did not return 1 completion (r3" in texts(turned.reasons)[0]


@pytest.mark.parametrize("tokens", [[], [7], [7] * 100_000, [INT32], [INT32 + 1], [-1], [-(2**31)], [2**62]])
@pytest.mark.parametrize("other", [[], [9], [7] * 99_999, [7] * 50_000 + [8] * 50_000])
def test_extreme_lengths_and_ids(tokens: list[int], other: list[int]) -> None:
    shared = head("cpu/base", max_tokens=100_000)
    left = capture(shared, completion(other, "a"), completion([3] * 64, "b"))
    right = capture(replace(shared, arm="cpu/other"), completion(tokens, "a"), completion([3] * 64, "b"))
    result = compare(left, right, {}, CompareOptions())
    assert (result.verdict is Verdict.PASS) is (tokens == other)
    assert {f.request for f in result.findings if f.severity is Severity.CORRUPT} <= {"a"}
    if tokens and (tokens[0] < 0 or tokens[0] >= 2048):
        kinds = {f.kind for f in result.findings if f.request == "a"}
        assert Kind.INVALID_TOKEN in kinds
        assert result.verdict is Verdict.DIVERGED


def test_a_long_random_row_is_realigned_after_each_of_many_faults() -> None:
    rng = np.random.default_rng(3)
    row = rng.integers(1, 2048, 100_000)
    hurt = row.copy()
    places = [1_000, 30_000, 70_000, 99_000]
    for place in places:
        hurt[place] = hurt[place] % 2046 + 1
    table = TopLogprobs(
        np.stack([row, hurt], axis=1).astype(np.int64),
        np.stack([np.full(len(row), -0.1), np.where(row == hurt, -0.1, -9.0)], axis=1),
    )
    shared = head("cpu/base", max_tokens=100_000)
    result = compare(
        capture(shared, completion(row, "a")),
        capture(replace(shared, arm="cpu/other"), completion(hurt, "a")),
        {ScoreKey("cpu/other", "a", 0, 0): table},
        CompareOptions(),
    )
    found = [f.position for f in result.findings if f.severity is Severity.CORRUPT]
    assert sorted(p for p in found if p is not None) == places


@pytest.mark.parametrize(
    "bad",
    [
        [[(7, math.nan)]] * 64,
        [[(7, math.inf)]] * 64,
        [[(7, -math.inf)]] * 64,
        [[(7, -0.1)]] * 10,
        [[(7, -0.1)]] * 90,
        [[(9, -0.1), (8, -0.2)]] * 64,
        [[]] * 64,
        [],
    ],
    ids=["nan", "inf", "minus-inf", "short", "long", "without-chosen", "empty-entries", "empty"],
)
@pytest.mark.parametrize("use", ["decode", "score"])
def test_bad_logprobs_are_not_trusted(bad: list[list[tuple[int, float]]], use: str) -> None:
    """Bad scores or logprobs never turn a different stream into a PASS, nor an equal one into other kinds."""
    left = capture(head("cpu/base"), completion([7] * 64, "a"))
    equal = completion([7] * 64, "a")
    unequal = completion([7] * 30 + [5] * 34, "a")
    right = head("cpu/other")
    for one in (equal, unequal):
        row = replace(one, logprobs=top(bad)) if use == "decode" else one
        scores = {ScoreKey("cpu/other", "a", 0, 0): top(bad)} if use == "score" else {}
        result = compare(left, capture(right, row), scores, CompareOptions())
        if one is unequal:
            assert result.verdict is not Verdict.PASS
        else:
            kinds = {f.kind for f in result.findings if f.severity is Severity.CORRUPT}
            assert kinds <= {Kind.LOGPROB_MISMATCH}


def test_an_empty_capture_never_passes_for_a_full_one() -> None:
    full = capture(head("cpu/base"), completion([7] * 64, "a"))
    empty = capture(head("cpu/other"))
    assert compare(full, empty, {}, CompareOptions()).verdict is Verdict.DIVERGED
    assert compare(empty, empty, {}, CompareOptions()).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("kind", [*kinds(), Kind("of_a_plug_in")], ids=str)
def test_an_event_of_any_kind_takes_part_where_events_overlap(kind: Kind) -> None:
    """The more specific one stands; one that does not say that it may be explained away always does."""
    why = message("test.why", "because")
    leak = tokens_event(Kind.ROW_LEAK, 4, 8, why)
    kept = without_overlaps([tokens_event(kind, 6, 1, why), leak])
    assert leak in kept
    assert (kind in {one.kind for one in kept}) != kind.row.explained_away or kind is Kind.ROW_LEAK
