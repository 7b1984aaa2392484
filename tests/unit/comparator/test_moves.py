"""Nothing is scored, and both arms list logprobs: a router that chooses other experts at near-ties accuses nobody by
them; another model, a wrong state and a wrong token do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import FLAT, ROUGH, Fault, catalogue
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, Trial, judge

from parity.comparator.reference.moves import Moves, moves
from parity.comparator.streams.pairing import pair_up
from parity.records import Verdict
from parity.records.next_steps import Step

ALL = {f"{one.family}: {one.name}, {one.size}": one for one in catalogue()}
CLEAN = Fault("clean", "", "hunted", ())


def trial(seed: int, fault: Fault = CLEAN, shape: object = ROUGH) -> Trial:
    return VIEWS["lists, unscored"](Faulty(seed, shape, first=16, logprobs=5).trial(fault, 4))  # type: ignore[arg-type]


def of(one: Trial) -> Moves:
    return moves(pair_up(one.baseline, one.candidate))


@pytest.mark.parametrize(
    ("found", "by_router"),
    [
        (Moves(10_000, 20, 1), True),
        (Moves(10_000, 2, 0), False),  # rounding
        (Moves(10_000, 20, 12), False),  # a state that stays wrong
        (Moves(10_000, 20, 1, 60), False),  # positions off by one
        (Moves(300, 250, 240), False),  # another model
        (Moves(300, 20, 0), False),
    ],
)
def test_moves_of_a_router_are_some_single_ones(found: Moves, *, by_router: bool) -> None:
    assert found.by_router is by_router


@pytest.mark.parametrize("seed", [2700060, 2700062, 2700068, 2700084, 2700171])
def test_lists_that_contradict_each_other_accuse_nobody(seed: int) -> None:
    """Tokens that the other arm holds for as good as its own, ends a few tokens later, text that another request has as
    well, and residuals far off: without scores nothing says in which arm the experts were others."""
    result = judge(trial(seed)).result
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE
    steps = {one.settles for one in result.next_steps if one.step is Step.SCORE}
    assert "conclude.lists_contradict" in steps


@pytest.mark.parametrize("name", ["numerics: stale state, 1 step in 100", "numerics: position off by one, 1 step in 5"])
def test_a_fault_of_the_state_moves_the_logits_beside_as_well(name: str) -> None:
    one = trial(501, ALL[name], FLAT)
    found = of(one)
    assert found.moved > 20
    assert not found.by_router
    assert judge(one).result.verdict is Verdict.DIVERGED


def test_a_token_that_was_replaced_is_a_fault_beside_them() -> None:
    one = trial(3, replace(ALL["rows: token replaced, 1 token"], share=0.06))
    assert of(one).by_router
    judged = judge(one)
    assert judged.result.verdict is Verdict.DIVERGED
    assert judged.found == judged.hit
