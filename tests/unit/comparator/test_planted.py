"""Faults planted one at a time in real completions: found, named, placed; and nobody else accused."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import planting
from planted_set import Answer, answer, ask, cases, clean, compared

from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Capture, Completion, Key, ScoreKey, Severity, TopLogprobs, Verdict


@pytest.fixture(scope="module")
def answers() -> dict[str, list[Answer]]:
    return {world: list(map(answer, cases(world), compared(world))) for world in ("A", "B")}


def misses(answers: list[Answer], what: str) -> str:
    return "\n".join(
        f"{a.case.fault} {a.case.key.request} at {sorted(a.case.positions)} {a.case.kinds}: {a.said}"
        for a in answers
        if not getattr(a, what)
    )


@pytest.mark.parametrize("world", ["A", "B"])
@pytest.mark.parametrize("with_scores", [True, False])
def test_undamaged_completions_are_not_accused(world: str, with_scores: bool) -> None:
    baseline, candidate, scores = clean(world)
    result = compare(baseline, candidate, scores if with_scores else {}, CompareOptions())
    assert [f for f in result.findings if f.severity is Severity.CORRUPT] == []
    assert result.verdict is (Verdict.PASS if with_scores else Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("world", ["A", "B"])
def test_every_fault_that_leaves_a_trace_is_found(world: str, answers: dict[str, list[Answer]]) -> None:
    seen = [a for a in answers[world] if not a.case.traceless]
    assert len(seen) > 100
    assert all(a.found or a.left_open for a in seen), misses(seen, "found")
    assert sum(not a.found for a in seen) <= 1, misses(seen, "found")  # one plausible token, of nobody's own logprob


@pytest.mark.parametrize("world", ["A", "B"])
def test_no_other_row_is_accused(world: str, answers: dict[str, list[Answer]]) -> None:
    assert [a.case.fault for a in answers[world] if a.accused] == []


@pytest.mark.parametrize(("world", "every"), [("A", 9), ("B", 4)])
def test_they_are_found_in_small_runs_of_which_little_is_scored(world: str, every: int) -> None:
    """Sixteen rows, and scores of the candidate's that differ: hardly anything shows what moves the baseline's
    logits."""
    seen = [case for case in cases(world) if not case.traceless][::every]
    few = [ask(case, rows=16) for case in seen]
    assert len(few) >= 30
    assert all(one.found or one.left_open for one in few), misses(few, "found")
    assert sum(not one.found for one in few) <= 1, misses(few, "found")
    assert not any(one.accused for one in few)


@pytest.mark.parametrize("world", ["A", "B"])
def test_the_kind_and_the_first_token_are_right(world: str, answers: dict[str, list[Answer]]) -> None:
    seen = [a for a in answers[world] if not a.case.traceless]
    assert sum(a.kind for a in seen) >= 0.95 * len(seen), misses(seen, "kind")
    assert sum(a.position for a in seen) >= 0.90 * len(seen), misses(seen, "position")


def test_every_fault_is_named_rightly_more_often_than_not(answers: dict[str, list[Answer]]) -> None:
    by_fault: dict[str, list[bool]] = defaultdict(list)
    for one in answers["A"]:
        if not one.case.traceless:
            by_fault[one.case.fault.split("+")[0]].append(one.kind)
    assert {fault for fault, right in by_fault.items() if sum(right) * 2 < len(right)} == set()


def test_planting_says_where_the_tokens_first_differ() -> None:
    row = planting.Row("a", [1, 2], [5, 6, 7, 8, 5, 6, 7, 9])
    plant = planting.duplication(row, 4, 4, limit=12)
    assert plant.row.tokens == [5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 9]
    assert plant.position == 7
    assert plant.positions == {4, 5, 6, 7}
    assert plant.origin == (0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7)


def test_a_whole_period_taken_from_a_loop_is_marked_invisible() -> None:
    row = planting.Row("a", [1], [3, 4] * 20)
    assert not planting.duplication(row, 10, 2, limit=40).visible
    assert planting.omission(row, 10, 3).visible


# --- faults that are not in the tokens ---------------------------------------------------------------

PLACES = range(6)


def row_of(index: int, *, parted: bool) -> planting.Row:
    """An undamaged candidate row of world A with decode logprobs (its scores, which are what they should be).

    `parted`: one that parts from the baseline at a near-tie, so that nothing may depend on equality.
    """
    baseline, candidate, scores = clean("A")
    rows = [
        c
        for c in candidate
        if (c.token_ids.tolist() != baseline.completions[c.key].token_ids.tolist()) is parted and len(c.token_ids) > 60
    ]
    one = rows[index % len(rows)]
    top = scores[ScoreKey(candidate.header.arm, *one.key)]
    entries = [
        [[int(token), float(value)] for token, value in zip(ids, values, strict=True)]
        for ids, values in zip(top.ids, top.values, strict=True)
    ]
    return planting.Row(
        one.key.request, one.prompt_token_ids.tolist(), one.token_ids.tolist(), None, "length", None, entries
    )


def damaged(row: planting.Row, *, missing: bool = False) -> tuple[Key, Capture]:
    _, candidate, _ = clean("A")
    key = Key(row.request, row.round, row.sample)
    others = {k: c for k, c in candidate.completions.items() if k != key}
    if missing:
        return key, replace(candidate, completions=others)
    made = Completion(
        key,
        np.array(row.prompt, dtype=np.int64),
        np.array(row.tokens, dtype=np.int64),
        row.text,
        row.finish_reason,
        row.stop_reason,
        None if row.logprobs is None else TopLogprobs.from_json(row.logprobs),
    )
    return key, replace(candidate, completions={**others, key: made})


def corrupt_kinds(result: Comparison, key: Key) -> set[str]:
    """Kinds said of the row; fails when another row is accused."""
    corrupt = [f for f in result.findings if f.severity is Severity.CORRUPT]
    assert {f.key for f in corrupt} <= {key}
    return {str(f.kind) for f in corrupt}


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("with_scores", [True, False])
@pytest.mark.parametrize("how", ["nan", "minus-infinity", "positive", "short", "long", "of-another-token"])
def test_wrong_logprobs_are_named(how: str, with_scores: bool, parted: bool) -> None:
    baseline, _, scores = clean("A")
    for index in PLACES:
        plant = planting.wrong_logprobs(random.Random(index), row_of(index, parted=parted), how)
        key, candidate = damaged(plant.row)
        known = scores if with_scores else {}
        assert "logprob_mismatch" in corrupt_kinds(compare(baseline, candidate, known, CompareOptions()), key)


@pytest.mark.parametrize("how", ["shifted", "offset"])
def test_logprobs_that_scores_contradict_are_named(how: str) -> None:
    baseline, _, scores = clean("A")
    for index in PLACES:
        plant = planting.wrong_logprobs(random.Random(index), row_of(index, parted=index % 2 == 0), how)
        key, candidate = damaged(plant.row)
        kinds = corrupt_kinds(compare(baseline, candidate, scores, CompareOptions()), key)
        assert kinds == {"logprob_mismatch"}


def test_right_logprobs_are_not_named() -> None:
    baseline, _, scores = clean("A")
    for index in PLACES:
        key, candidate = damaged(row_of(index, parted=index % 2 == 0))
        assert corrupt_kinds(compare(baseline, candidate, scores, CompareOptions()), key) == set()


@pytest.mark.parametrize("how", ["changed", "bos", "cut"])
def test_another_prompt_is_an_input_mismatch_and_nothing_else(how: str) -> None:
    baseline, _, scores = clean("A")
    for index in PLACES:
        plant = planting.other_prompt(random.Random(index), row_of(index, parted=index % 2 == 0), how)
        key, candidate = damaged(replace(plant.row, logprobs=None))
        result = compare(baseline, candidate, scores, CompareOptions())
        assert {str(f.kind) for f in result.findings if f.key == key} == {"input_mismatch"}


def test_a_lost_completion_is_named() -> None:
    baseline, _, scores = clean("A")
    key, candidate = damaged(row_of(2, parted=False), missing=True)
    result = compare(baseline, candidate, scores, CompareOptions())
    assert corrupt_kinds(result, key) == {"missing_completion"}


@pytest.mark.parametrize("how", ["character", "doubled", "dropped", "empty", "other-row"])
def test_a_text_that_the_tokens_do_not_say_is_named(how: str) -> None:
    """With a made-up tokenizer of one word a token."""
    baseline, _, scores = clean("A")

    def detokenize(ids: Sequence[int]) -> str:
        return "".join(f" w{token}" for token in ids)

    def told(capture: Capture) -> Capture:
        texts = {k: replace(c, text=detokenize(c.token_ids.tolist())) for k, c in capture.completions.items()}
        return replace(capture, completions=texts)

    baseline = told(baseline)
    options = CompareOptions(detokenize=detokenize)
    for index in PLACES:
        row = replace(row_of(index, parted=index % 2 == 0), logprobs=None)
        key, fine = damaged(row)
        fine = told(fine)
        assert corrupt_kinds(compare(baseline, fine, scores, options), key) == set()
        plant = planting.wrong_text(
            replace(row, text=detokenize(row.tokens)), how, detokenize(row_of(index + 1, parted=False).tokens)
        )
        wrong = replace(fine.completions[key], text=plant.row.text)
        candidate = replace(fine, completions={**fine.completions, key: wrong})
        assert corrupt_kinds(compare(baseline, candidate, scores, options), key) == {"text_mismatch"}


def test_the_numbers_of_a_finding_can_be_computed_again() -> None:
    """Gap, bound, best token, unsupported positions and widest gap, from the scores and the tokens alone."""
    checked = 0
    for case, result in list(zip(cases("A"), compared("A"), strict=True))[::4]:
        for found in result.findings:
            told, at = found.evidence.to_json(), found.position
            tokens = case.candidate.completions[found.key].token_ids
            top = case.scores.get(ScoreKey(case.candidate.header.arm, *found.key))
            if "gap" not in told or at is None or top is None:
                continue
            gaps = [
                np.nanmax(values) - np.nanmax(np.where(ids == token, values, np.nan))
                for ids, values, token in zip(top.ids, top.values, tokens, strict=True)
            ]
            assert told["candidate_token"] == tokens[at]
            assert told["gap"] == pytest.approx(gaps[at], abs=1e-3)
            assert told["best_token"] in top.ids[at][top.values[at] == np.nanmax(top.values[at])]
            assert told["best_logprob"] - told["chosen_logprob"] == pytest.approx(gaps[at], abs=1e-3)
            if found.severity is Severity.BENIGN:
                continue
            end = at + max(1, found.length or 1)
            over = [place for place in range(at, min(end, len(tokens))) if gaps[place] > told["tolerance"] + 1e-4]
            assert told.get("unsupported_positions", []) == over[:32]
            if over:
                assert told["largest_gap"] == pytest.approx(max(gaps[place] for place in over), abs=1e-3)
            checked += 1
    assert checked > 50
