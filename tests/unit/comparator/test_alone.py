"""Small runs: single tokens and single logprobs that are off accuse nobody beside a baseline that shows too little."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from support.captures import capture, completion
from worlds import ROUGH, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Setting, clean, in_parts, judge

from parity.comparator import Comparison, compare
from parity.comparator.reference.isolated import ENOUGH
from parity.records import Completion, Kind, ScoreKey, TopLogprobs, Verdict
from parity.records.next_steps import Step

LENGTH = 32


def scored(tokens: list[int], wrong: dict[int, float], *, second: bool) -> TopLogprobs:
    """Every token the best but those at `wrong`, by position to nats below the best: the second or the third."""
    entries: list[list[list[float]]] = []
    for at, token in enumerate(tokens):
        if at in wrong:
            entries.append([[999, -0.9], [token, -0.9 - wrong[at]], [998, -7.0 if second else -1.0]])
        else:
            entries.append([[token, -0.8], [999, -2.0], [998, -4.0]])
    return TopLogprobs.from_json(entries)


def of_run(
    gaps: list[dict[int, float]],
    off: list[dict[int, float]],
    *,
    completions: int = 12,
    second: bool = False,
    lists: bool = False,
) -> Comparison:
    """Of the candidate's first completions: how far which of its tokens lie below the best when scored, and its own
    logprobs above the scores. `second`: one other token stands above, else two. `lists`: its own are those of the
    scores."""
    rng = np.random.default_rng(9)
    arms: dict[str, list[Completion]] = {"cpu/base": [], "cpu/mtp": []}
    known: dict[ScoreKey, TopLogprobs] = {}
    for at in range(completions):
        text = rng.permutation(np.arange(100, 500))[:LENGTH]
        for arm, made in arms.items():
            is_candidate = arm == "cpu/mtp"
            wrong = gaps[at] if is_candidate and at < len(gaps) else {}
            tokens = text.copy()
            for place in wrong:
                tokens[place] += 250
            top = scored(tokens.tolist(), wrong, second=second)
            own = np.where(top.ids == tokens[:, None], top.values, -np.inf).max(axis=1)
            for place, nats in (off[at] if is_candidate and at < len(off) else {}).items():
                own[place] += nats
            known[ScoreKey(arm, f"p{at}", 0, 0)] = top
            logprobs = top if lists else TopLogprobs(tokens[:, None], own[:, None])
            made.append(completion(tokens, f"p{at}", prompt=[900, at], logprobs=logprobs))
    return compare(*(capture(arm, *made, max_tokens=LENGTH) for arm, made in arms.items()), known)


MANY = ENOUGH // LENGTH


@pytest.mark.parametrize(
    ("gaps", "off", "more", "accused"),
    [
        ([{9: 2.5}], [{9: 1.2}], {}, False),  # by its own logprob the logits moved
        ([{9: 2.5}], [{9: 1.2}], {"completions": MANY}, True),  # the baseline would show such
        ([{9: 2.5}], [{9: 0.0}], {}, True),  # its engine knew how unlikely it is
        ([{9: 2.5}], [{9: 2.45}], {}, True),  # the best one's logprob, and another token
        ([{9: 1.5}], [{9: 0.0}], {}, False),  # nearer than damage leaves it
        ([{9: 1.5}], [{9: 0.0}], {"second": True}, True),  # the second best, taken for the best
        ([{9: 0.9}], [{9: 0.0}], {"second": True}, False),
        ([{9: 2.5}, {4: 1.2}], [{9: 1.2}, {4: 0.5}], {}, False),
        ([{9: 2.5}, {4: 1.2}, {7: 2.0}], [{9: 1.2}, {4: 0.5}, {7: 1.0}], {}, True),
        ([{9: 5.5}], [{9: 2.0}], {}, True),
        ([{9: 2.0, 10: 2.0, 11: 2.0, 12: 2.0}], [dict.fromkeys(range(9, 13), 1.0)], {}, True),  # a stretch
    ],
)
def test_a_token_or_two_of_a_small_run(
    gaps: list[dict[int, float]], off: list[dict[int, float]], more: dict[str, int], *, accused: bool
) -> None:
    result = of_run(gaps, off, **more)  # type: ignore[arg-type]
    assert result.verdict is (Verdict.DIVERGED if accused else Verdict.INCONCLUSIVE)
    assert bool(result.corrupt) is accused
    assert ("conclude.alone" in {one.id for one in result.reasons}) is not accused


@pytest.mark.parametrize(
    ("off", "more", "accused"),
    [
        ([{9: -1.5}], {}, False),
        ([{9: -1.5}], {"completions": MANY}, True),
        ([{9: -1.5, 20: -0.8}, {3: -1.2}], {}, False),
        ([{9: -1.5}, {3: -1.2}, {5: -1.4}], {}, True),
        ([{9: -4.5}], {}, True),
        ([{9: -3.5}, {3: -3.9}], {}, True),  # farther than chance makes two
        ([dict.fromkeys(range(0, 30, 5), -2.0)], {}, True),  # a row's are another's
        ([dict.fromkeys(range(9, 14), -1.5)], {}, True),
    ],
)
def test_a_logprob_or_two_of_a_small_run(off: list[dict[int, float]], more: dict[str, int], *, accused: bool) -> None:
    result = of_run([], off, **more)  # type: ignore[arg-type]
    assert result.verdict is (Verdict.DIVERGED if accused else Verdict.INCONCLUSIVE)
    assert {one.kind for one in result.corrupt} == ({Kind.LOGPROB_MISMATCH} if accused else set())
    assert ("conclude.logprobs_alone" in {one.id for one in result.reasons}) is not accused


def test_both_together_are_no_more_than_two() -> None:
    assert not of_run([{9: 2.5}], [{9: 1.2}, {4: -1.5}]).corrupt
    found = of_run([{9: 2.5}], [{9: 1.2}, {4: -1.5}, {8: -1.5}])
    assert Counter(one.kind for one in found.corrupt) == {Kind.LOGPROB_MISMATCH: 2, Kind.UNJUSTIFIED: 1}


def test_beside_another_fault_such_a_token_is_one() -> None:
    off = [{9: 1.2}, {4: -1.5}, {8: -1.5}, {7: -1.5}]
    found = of_run([{9: 2.5}], off)
    assert Counter(one.kind for one in found.corrupt) == {Kind.LOGPROB_MISMATCH: 3, Kind.UNJUSTIFIED: 1}
    assert "conclude.alone" not in {one.id for one in found.reasons}


def test_a_token_that_the_engine_s_own_list_rejects_is_a_fault() -> None:
    assert not of_run([{9: 1.5}], [{9: 0.0}]).corrupt
    assert [one.position for one in of_run([{9: 1.5}], [{9: 0.0}], lists=True).corrupt] == [9]


def test_the_next_run_is_as_large_as_it_takes() -> None:
    step = next(one for one in of_run([{9: 1.5}], [{9: 0.0}]).next_steps if one.step is Step.LONGER)
    assert step.number == math.ceil(ENOUGH / (12 * LENGTH))


def test_healthy_arms_of_experts_far_apart_are_not_accused_in_small_runs() -> None:
    """16 completions of 32 tokens: 5 in 100 such runs were accused."""
    left = set()
    for seed in (8600002, 8600004):
        for trial in clean(Setting("small", ROUGH, 256, {"max_tokens": 32}), seed, arms=(speculating(2),)):
            for part in in_parts(trial, 16):
                for view in ("scored", "differing scored"):
                    result = judge(VIEWS[view](part)).result
                    assert not result.corrupt, part.name
                    left |= {one.id for one in result.reasons}
    assert {"conclude.alone", "conclude.logprobs_alone"} <= left
