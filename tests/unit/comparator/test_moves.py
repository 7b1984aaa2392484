"""Nothing is scored, and both arms list logprobs: a router that chooses other experts at near-ties accuses nobody by
them; a wrong token does, and what is wrong everywhere does not pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.captures import TEXT, capture, completion
from worlds import FLAT, LASTING, ROUGH, Fault, catalogue, speculating
from worlds.seen_as import VIEWS
from worlds.trials import PENALTIES, RULES, Faulty, Setting, Trial, clean, judge

from parity.comparator import Comparison, compare
from parity.comparator.reference.moves import Moved, Moves, moves
from parity.comparator.streams.pairing import pair_up
from parity.records import Capture, Kind, TopLogprobs, Verdict
from parity.records.next_steps import Step

ALL = {f"{one.family}: {one.name}, {one.size}": one for one in catalogue()}
CLEAN = Fault("clean", "", "hunted", ())


def trial(seed: int, fault: Fault = CLEAN, shape: object = ROUGH) -> Trial:
    return VIEWS["lists, unscored"](Faulty(seed, shape, first=16, logprobs=5).trial(fault, 4))  # type: ignore[arg-type]


def of(one: Trial) -> Moves:
    return moves(pair_up(one.baseline, one.candidate))


@pytest.mark.parametrize(
    ("whole", "every", "now_and_then", "another"),
    [
        (Moved(9_000, 20, 12), Moved(10_000, 30, 16), True, False),
        (Moved(9_000, 3, 3), Moved(10_000, 9, 9), True, False),
        (Moved(9_000, 20, 2), Moved(10_000, 30, 9), False, False),  # what is wrong in two completions, and parts others
        (Moved(9_000, 0, 0), Moved(10_000, 8, 8), False, False),
        (Moved(200, 0, 0), Moved(10_000, 300, 40), True, False),  # too few that never part
        (Moved(0, 0, 0), Moved(300, 250, 40), False, True),
        (Moved(0, 0, 0), Moved(2, 2, 2), False, False),
    ],
)
def test_moves_in_several_completions_say_something_of_the_model(
    whole: Moved, every: Moved, *, now_and_then: bool, another: bool
) -> None:
    found = Moves(whole, every)
    assert (found.now_and_then, found.of_another_model) == (now_and_then, another)


def test_another_model_is_found_by_lists_alone() -> None:
    one, other = trial(5, shape=FLAT), trial(6, shape=FLAT)
    swapped = {key: replace(made, prompt_token_ids=one.baseline.completions[key].prompt_token_ids)
               for key, made in other.candidate.completions.items()}  # fmt: skip
    result = judge(replace(one, candidate=replace(one.candidate, completions=swapped))).result
    assert result.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("seed", [2700060, 2700062, 2700068, 2700084, 2700171])
def test_lists_that_contradict_each_other_accuse_nobody(seed: int) -> None:
    """Tokens that the other arm holds for as good as its own, ends a few tokens later, text that another request has as
    well, and residuals far off: without scores nothing says in which arm the experts were others."""
    result = judge(trial(seed)).result
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE
    steps = {one.settles for one in result.next_steps if one.step is Step.SCORE}
    assert "conclude.lists_contradict" in steps


@pytest.mark.parametrize(
    ("name", "seed", "shaped"),
    [
        ("few", 72000, {}),
        ("penalties", 72000, {"own": PENALTIES}),
        ("penalties", 74001, {"own": PENALTIES}),
        ("rules", 72000, {"own": RULES}),
        ("rounds", 72000, {"rounds": 3, "requests": 32}),
    ],
)
def test_nor_where_there_are_few_of_them_or_penalties(name: str, seed: int, shaped: dict[str, Any]) -> None:
    setting = Setting(name, ROUGH, **{"requests": 64, "sampling": {"max_tokens": 96}, "logprobs": 5, **shaped})
    (one,) = clean(setting, seed, arms=(speculating(2),))
    result = judge(VIEWS["lists, unscored"](one)).result
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE


def listed(tokens: Sequence[int], moved: float = 0.0) -> TopLogprobs:
    """The chosen token, 1 nat above two others; at one token one of these lies `moved` nats lower."""
    values = np.tile([-0.5, -1.5, -2.0], (len(tokens), 1))
    values[30, 1] -= moved
    return TopLogprobs(np.array([(token, 900, 901) for token in tokens], np.int64), values)


def leaving_each_other_out(moved: float, **penalty: float) -> Comparison:
    """Four requests. One parts at its last token, and each list leaves out the other's: what both name is alike there.
    Logits of the other three move as told."""
    texts = [range(start, start + 60) for start in (200, 260, 320)]

    def arm(name: str, last: int, moved: float) -> Capture:
        first = (*TEXT[:-1], last)
        rest = (completion(text, f"p{n}", prompt=(n,), logprobs=listed(text, moved)) for n, text in enumerate(texts, 1))
        return capture(name, completion(first, logprobs=listed(first)), *rest, **penalty)

    return compare(arm("cpu/base", TEXT[-1], 0.0), arm("cpu/mtp", 500, moved))


@pytest.mark.parametrize(
    "penalty", [{"presence_penalty": 0.5}, {"frequency_penalty": 0.4}, {"repetition_penalty": 1.15}]
)
def test_nor_where_lists_under_penalties_leave_out_what_moved(penalty: dict[str, float]) -> None:
    moved = leaving_each_other_out(1.0, **penalty)
    assert not moved.corrupt
    assert moved.verdict is Verdict.INCONCLUSIVE
    assert [one.id for one in moved.reasons] == ["conclude.lists_contradict"]
    assert leaving_each_other_out(0.0, **penalty).verdict is Verdict.DIVERGED  # where none moves it is the token


@pytest.mark.parametrize("seed", range(4300005, 4300013))
def test_nor_do_experts_whose_choice_moves_the_tokens_after_it_too(seed: int) -> None:
    """As in arms of the small random models: two thirds of the moves have others beside them."""
    one = trial(seed, shape=LASTING)
    for view in ("lists, unscored", "servers, lists", "nothing", "candidate scored"):
        result = judge(VIEWS[view](one)).result
        assert not result.corrupt, view
        assert result.verdict is not Verdict.DIVERGED, view


@pytest.mark.parametrize("name", ["numerics: stale state, 1 step in 100", "numerics: position off by one, 1 step in 5"])
def test_a_wrong_state_in_all_completions_looks_the_same_and_does_not_pass(name: str) -> None:
    one = trial(501, ALL[name], FLAT)
    assert of(one).now_and_then
    result = judge(one).result
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE
    assert Step.SCORE in {step.step for step in result.next_steps}


def test_a_token_that_was_replaced_is_a_fault_beside_them() -> None:
    one = trial(3, replace(ALL["rows: token replaced, 1 token"], share=0.06))
    assert of(one).now_and_then
    judged = judge(one)
    assert judged.result.verdict is Verdict.DIVERGED
    assert judged.found == judged.hit


def test_another_requests_text_is_named_where_logits_do_not_move() -> None:
    one = trial(7, replace(ALL["rows: completions swapped, "], share=0.1), FLAT)
    judged = judge(one)
    assert not of(one).now_and_then
    assert judged.hit >= 3
    assert judged.found == judged.hit
    assert Counter(found.kind for found in judged.result.corrupt)[Kind.ROW_LEAK] == judged.hit


def _ending(arm: str, tokens: Sequence[int], finish: str) -> Capture:
    """Each token is the best of its own list; where the arms part, the other arm's lies far below."""
    rows = [completion(TEXT[:20], f"o{n}", logprobs=_held(TEXT[:20])) for n in range(24)]
    return capture(arm, *rows, completion(tokens, finish=finish, logprobs=_held(tokens)), max_tokens=20, min_tokens=8)


def _held(tokens: Sequence[int]) -> TopLogprobs:
    others = [900 if token == said else said for token, said in zip(tokens, TEXT, strict=False)]
    return TopLogprobs.from_json([[[one, -0.1], [other, -3.0]] for one, other in zip(tokens, others, strict=True)])


def test_an_end_before_min_tokens_is_a_fault_whatever_the_lists_hold_for_the_best() -> None:
    """A rule of the request is broken: no expert at a near-tie does that."""
    result = compare(_ending("cuda/base", TEXT[:20], "length"), _ending("cuda/mtp", [*TEXT[:3], 0], "stop"))
    assert [(one.request, one.kind, one.position) for one in result.corrupt] == [("p0", Kind.EARLY_STOP, 3)]
    assert result.verdict is Verdict.DIVERGED
