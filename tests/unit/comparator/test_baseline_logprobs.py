"""Drawn rows of the baseline whose own logprobs are those of another text: nobody else's fault, and no PASS."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import capture, completion
from worlds import BASE, FLAT, ROUGH, Fault, Shape, World, speculating
from worlds.choosing import Lapse
from worlds.seen_as import VIEWS
from worlds.trials import Trial, judge
from worlds.world import WORDS

from parity.comparator import CompareOptions, Comparison, compare
from parity.messages import Message
from parity.records import Capture, TopLogprobs, Verdict
from parity.records.next_steps import Step

WARM = {"temperature": 1.0}
SWAPPED = Fault("swapped", "", "drawn", ("row_leak",), swap=True, share=0.05, rules=WARM)
STALE = Fault("stale", "", "drawn", (), lapse=Lapse(stale="other", rate=0.2), share=0.05, rules=WARM)


def of_baseline(fault: Fault | None, shape: Shape = FLAT, seed: int = 4102) -> Trial:
    """The baseline has the fault, the candidate draws by another seed."""
    world = World(seed, shape)
    asked = world.requests(48)
    arm = replace(speculating(2), draws=1)
    same = WARM if fault is None else {}
    base = world.run(asked, BASE, fault=fault, fault_seed=seed, max_tokens=48, **same)
    mine = world.run(asked, arm, max_tokens=48, **WARM).capture
    scores = world.score(base.capture, mine)
    return Trial("", seed, base.capture, mine, scores, base.truth, CompareOptions(detokenize=WORDS))


def said_of_baseline(result: Comparison) -> Message:
    return next(one for one in result.reasons if one.id == "conclude.baseline_logprobs")


@pytest.mark.parametrize(("fault", "seed"), [(SWAPPED, 4102), (STALE, 4100)], ids=["swapped", "stale"])
def test_rows_of_the_baseline_that_were_chosen_by_something_else_are_no_pass(fault: Fault, seed: int) -> None:
    trial = of_baseline(fault, seed=seed)
    result = judge(trial).result
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    said = said_of_baseline(result)
    rows = said.parameters["completions"]
    assert isinstance(rows, Message)
    assert rows.parameters["count"] == len(trial.truth.rows) == 2
    assert str(rows.parameters["first"]) in {str(key) for key in trial.truth.rows}
    assert [one.step for one in result.next_steps if one.settles == said.id] == [Step.SWAP, Step.REFERENCE]


def test_so_they_are_beside_a_candidate_that_records_no_logprobs() -> None:
    trial = of_baseline(SWAPPED)
    result = judge(replace(trial, candidate=VIEWS["no own logprobs"](trial).candidate)).result
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert said_of_baseline(result)


@pytest.mark.parametrize("shape", [FLAT, ROUGH])
@pytest.mark.parametrize("silent", [False, True])
def test_a_sound_baseline_is_not_named(shape: Shape, silent: bool) -> None:
    for seed in (4201, 4202):
        trial = of_baseline(None, shape, seed)
        if silent:
            trial = replace(trial, candidate=VIEWS["no own logprobs"](trial).candidate)
        result = judge(trial).result
        assert "conclude.baseline_logprobs" not in {one.id for one in result.reasons}
        assert result.corrupt == []


def of_another_row(name: str, *odd: int) -> Capture:
    """Greedy completions; those that are `odd` have the logprobs of another text."""
    rows = []
    for number in range(8):
        tokens = [100 + (7 * number + at) % 50 for at in range(12)]
        listed = [400 + at for at in range(12)] if number in odd else tokens
        lists = TopLogprobs.from_json([[[token, -0.5]] for token in listed])
        rows.append(completion(tokens, f"p{number}", logprobs=lists))
    return capture(name, *rows, max_tokens=12)


def test_greedy_rows_of_the_baseline_with_logprobs_of_other_tokens_are_no_pass() -> None:
    result = compare(of_another_row("cpu/base", 3), of_another_row("cpu/mtp"))
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert "p3" in str(said_of_baseline(result))
    assert compare(of_another_row("cpu/base"), of_another_row("cpu/mtp")).verdict is Verdict.PASS


def test_what_half_of_the_baseline_has_is_its_way_of_writing() -> None:
    result = compare(of_another_row("cpu/base", *range(8)), of_another_row("cpu/mtp"))
    assert "conclude.baseline_logprobs" not in {one.id for one in result.reasons}
