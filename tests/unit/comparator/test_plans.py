"""Captures of different plans: said in what, never taken for the same question, never for missing completions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from captures import TEXT, capture, completion, texts

from parity.comparator import Comparison, compare
from parity.records import Capture, Kind, Verdict


def of_plan(made: Capture, digest: str | None) -> Capture:
    extra: dict[str, Any] = {} if digest is None else {"plan_digest": digest}
    return replace(made, header=replace(made.header, extra=extra))


def compared(
    left: tuple[str, ...],
    right: tuple[str, ...],
    digests: tuple[str | None, str | None] = ("a", "b"),
    sampling: dict[str, Any] | None = None,
    prompt: tuple[int, ...] = (1, 2, 3),
) -> Comparison:
    base = capture("cpu/base", *(completion(TEXT[:9], name) for name in left))
    mtp = capture("cpu/mtp", *(completion(TEXT[:9], name, prompt=prompt) for name in right), **(sampling or {}))
    return compare(of_plan(base, digests[0]), of_plan(mtp, digests[1]))


def about_plans(result: Comparison) -> list[str]:
    return [text for text in [*texts(result.reasons), *texts(result.notes)] if "different plans" in text]


def test_the_same_plan_or_an_unknown_one_is_not_talked_about() -> None:
    for digests in (("a", "a"), (None, "b"), ("a", None), (None, None)):
        result = compared(("p0", "p1"), ("p0", "p1"), digests)
        assert (result.verdict, about_plans(result)) == (Verdict.PASS, [])


def test_requests_of_one_plan_alone_are_not_missing_and_named() -> None:
    result = compared(("p0", "p1", "p2", "p3", "p4", "p5"), ("p0", "p6"))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.findings == ()
    assert about_plans(result) == [
        "the captures are of different plans: requests asked of cpu/base alone, not compared: 5 (p1, p2, p3, …)",
        "the captures are of different plans: requests asked of cpu/mtp alone, not compared: 1 (p6)",
    ]


def test_of_one_plan_they_are_missing() -> None:
    result = compared(("p0", "p1"), ("p0",), ("a", "a"))
    assert [finding.kind for finding in result.findings] == [Kind.MISSING_COMPLETION]
    assert result.verdict is Verdict.DIVERGED


def test_what_the_baseline_lacks_accuses_nobody() -> None:
    """Nothing is known of such a completion, and a fault beside it is one as ever."""
    result = compared(("p0",), ("p0", "p1"), ("a", "a"))
    assert (result.verdict, result.findings) == (Verdict.INCONCLUSIVE, ())
    assert "the baseline did not return 1 completion" in texts(result.reasons)[0]
    assert result.stats.missing == 0
    both = compared(("p0", "p2"), ("p0", "p1"), ("a", "a"))
    assert (both.verdict, [one.request for one in both.findings]) == (Verdict.DIVERGED, ["p2"])
    assert any("the baseline did not return" in one for one in texts(both.reasons))


def test_a_parameter_that_changes_the_answer_is_the_reason_and_said_once() -> None:
    result = compared(("p0",), ("p0",), sampling={"max_tokens": 50})
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "sampling differs: max_tokens is 60 and 50" in texts(result.reasons)
    assert about_plans(result) == []


def test_a_header_without_sampling_beside_a_temperature_is_named() -> None:
    """A script's header that says nothing counts as greedy: whoever drew has to write it there."""
    base, other = (capture(arm, completion(TEXT[:9])) for arm in ("cpu/base", "cpu/mtp"))
    base = replace(base, header=replace(base.header, sampling={"temperature": 0.8, "max_tokens": 9}))
    other = replace(other, header=replace(other.header, sampling={}))
    for left, right in ((base, other), (other, base)):
        result = compare(left, right)
        assert result.verdict is Verdict.INCONCLUSIVE
        (reason,) = (text for text in texts(result.reasons) if "sampling" in text)
        assert reason.startswith("the header of cpu/mtp names no sampling parameters")
        assert "cpu/base has the temperature 0.8" in reason


def test_a_parameter_that_does_not_is_noted() -> None:
    result = compared(("p0",), ("p0",), sampling={"seed": 7})
    assert result.verdict is Verdict.PASS
    assert about_plans(result) == ["the captures are of different plans: seed: None, 7"]


def test_where_nothing_shows_in_what_they_differ_nothing_is_concluded() -> None:
    result = compared(("p0",), ("p0",))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "nothing in them shows in what these differ" in about_plans(result)[0]


def test_other_prompts_have_findings_of_their_own() -> None:
    result = compared(("p0",), ("p0",), prompt=(1, 2, 4))
    assert [finding.kind for finding in result.findings] == [Kind.INPUT_MISMATCH]
    assert result.verdict is not Verdict.PASS
    assert about_plans(result) == []


def test_an_arm_that_gave_nothing_is_not_excused() -> None:
    result = compared(("p0", "p1"), ())
    assert {finding.kind for finding in result.findings} == {Kind.MISSING_COMPLETION}
    assert about_plans(result) == []
