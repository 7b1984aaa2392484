"""Single tokens that the scores reject in both arms alike accuse nobody; damaged stretches and more of them do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.captures import capture, completion, score
from worlds import FLAT, ROUGH, Fault, catalogue, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, Setting, clean, judge

from parity.comparator import compare
from parity.comparator.reference.isolated import FARTHER, FEW, MOST, Isolated, are_single, explains, moved_as_far
from parity.records import Completion, Kind, ScoreKey, TopLogprobs, Verdict

ALL = {f"{one.family}: {one.name}, {one.size}": one for one in catalogue()}
OWN = Isolated(completions=12, farthest=0.9)


def of(*pairs: tuple[int, float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([at for at, _ in pairs]), np.array([gap for _, gap in pairs])


def test_single_tokens_are_few_and_apart() -> None:
    assert are_single(*of((3, 0.4)), length=96)
    assert are_single(*of((3, 0.4), (4, 1.2), (50, 0.9)), length=96)
    assert not are_single(*of((3, 0.4), (4, 1.2), (6, 0.9)), length=96)  # a stretch
    assert not are_single(*of(*((9 * at, 0.4) for at in range(FEW + 1))), length=30)
    assert are_single(*of(*((9 * at, 0.4) for at in range(FEW + 1))), length=96)
    assert not are_single(*of((3, MOST + 0.1)), length=96)


def test_they_are_like_the_baselines_up_to_a_multiple_of_its_farthest() -> None:
    assert OWN.covers(*of((3, FARTHER * 0.9)), length=96)
    assert not OWN.covers(*of((3, FARTHER * 0.9 + 0.01)), length=96)


@pytest.mark.parametrize(
    ("gaps", "explained"),
    [
        ([0.5] * 12, True),
        ([0.5] * 60, False),  # more completions than the baseline has
        ([1.3] * 5, True),
        ([1.3] * 12, False),  # too many beyond its farthest
        ([2.3] * 2, True),
        ([2.3] * 4, False),
        ([], True),
    ],
)
def test_no_more_and_no_farther_than_chance_makes_likely(gaps: list[float], explained: bool) -> None:
    assert explains(Isolated(12, 1.2), [gap / 1.2 for gap in gaps]) is explained


def test_logits_that_moved_count_by_how_far_those_of_the_baseline_do() -> None:
    gaps = np.array([2.0])
    assert moved_as_far(gaps, np.array([1.2]), lambda: 0.6) == pytest.approx(2.0)
    assert moved_as_far(gaps, np.array([0.19]), lambda: 0.6) is None  # its engine knew how unlikely it is
    assert moved_as_far(gaps, np.array([np.nan]), lambda: 0.6) is None
    assert moved_as_far(gaps, np.array([FARTHER * 0.6 + 0.01]), lambda: 0.6) is None
    assert moved_as_far(gaps, np.array([1.2]), lambda: 0.4) is None  # the baseline's experts are alike


def test_arms_whose_experts_are_far_apart_are_not_accused_of_near_ties_of_the_router() -> None:
    left = 0
    for seed in (1, 2):
        setting = Setting("experts far apart", ROUGH, 192, {"max_tokens": 96})
        for trial in clean(setting, seed, arms=(speculating(2),)):
            result = judge(trial).result
            assert not result.corrupt, trial.name
            assert result.verdict is Verdict.INCONCLUSIVE
            left += "conclude.as_baseline" in {one.id for one in result.reasons}
    assert left  # of a token that would be a fault by itself


@pytest.mark.parametrize("name", ["rows: tokens replaced, 8 tokens", "rows: span of another row, 16 tokens"])
def test_damaged_rows_are_found_beside_such_tokens(name: str) -> None:
    judged = judge(Faulty(5, ROUGH, first=64, max_tokens=96).trial(replace(ALL[name], share=0.06), 1))
    assert judged.result.verdict is Verdict.DIVERGED
    assert judged.hit >= 3
    assert judged.found == judged.hit
    assert not judged.accused


@pytest.mark.parametrize("seed", [2700075, 2700119, 2700125, 2700133, 2700188, 2700219])
def test_healthy_arms_with_tokens_far_beyond_those_of_the_baseline_are_not_accused(seed: int) -> None:
    """Up to 4.75 nats below the best, an end that was not taken, four tokens at once, and baselines that show none: by
    their own logprobs the logits had moved there."""
    trial = Faulty(seed, ROUGH, first=16, logprobs=5).trial(Fault("clean", "", "hunted", ()), 4)
    for view in ("scored", "no own logprobs", "server, scored"):
        result = judge(VIEWS[view](trial)).result
        assert not result.corrupt, view
        assert result.verdict is Verdict.INCONCLUSIVE


def test_a_token_that_its_own_engine_holds_for_unlikely_is_a_fault_beside_them() -> None:
    trial = Faulty(2700125, ROUGH, first=16, logprobs=5).trial(Fault("clean", "", "hunted", ()), 4)
    seen = VIEWS["scored"](trial)
    rows = {}
    for key, one in seen.candidate.completions.items():
        top = seen.scores.get(ScoreKey(seen.candidate.header.arm, *key))
        assert top is not None
        known = np.where(top.ids == one.token_ids[:, None], top.values, -np.inf).max(axis=1)
        rows[key] = replace(one, logprobs=TopLogprobs(one.token_ids[:, None], known[:, None]))
    knew = replace(seen, candidate=replace(seen.candidate, completions=rows))
    result = judge(knew).result
    assert result.verdict is Verdict.DIVERGED
    assert {one.kind for one in result.corrupt} == {Kind.UNJUSTIFIED}


@pytest.mark.parametrize("view", ["no own logprobs", "server, scored"])
def test_a_token_that_three_rounds_say_is_one(view: str) -> None:
    """Two tokens, 0.34 and 0.44 nats below the best, of a healthy arm: each round says them."""
    setting = Setting("three rounds", FLAT, 64, {"max_tokens": 96}, rounds=3, logprobs=5)
    for trial in clean(setting, 62002, arms=(speculating(2),)):
        result = judge(VIEWS[view](trial)).result
        assert not result.corrupt
        assert result.verdict is Verdict.INCONCLUSIVE


def rejected(
    tokens: list[int], gaps: dict[int, float], moved: dict[int, float] | None
) -> tuple[TopLogprobs, TopLogprobs | None]:
    """(scores that hold another token for better in these places, the engine's own logprobs, which lie off the scores
    where they `moved`)"""
    top = score(tokens, gaps, [700 + at for at in range(len(tokens))])
    known = np.where(top.ids == np.array(tokens)[:, None], top.values, -np.inf).max(axis=1)
    if moved is None:
        return top, None
    for place, nats in moved.items():
        known[place] += nats if place in gaps else -nats
    return top, TopLogprobs(np.array(tokens)[:, None], known[:, None])


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(
    ("baseline", "candidate", "verdict"),
    [
        ((4, 5), (0, 1, 2, 4), Verdict.INCONCLUSIVE),
        ((4, 30), (0, 1, 2, 4), Verdict.DIVERGED),  # none of the baseline's lasts
        ((4, 5), (0, 1, 2, 3, 4, 5), Verdict.DIVERGED),  # more tokens than a move spoils
    ],
)
def test_a_move_that_lasts_in_the_baseline_may_last_in_the_candidate(
    baseline: tuple[int, ...], candidate: tuple[int, ...], verdict: Verdict, *, recorded: bool
) -> None:
    """Four of the first five tokens of one clean completion of a small random DeepSeek were rejected by up to 1.1 nats:
    an expert was another one in its prompt."""
    rng = np.random.default_rng(4)
    arms: dict[str, list[Completion]] = {"cpu/base": [], "cpu/mtp": []}
    known: dict[ScoreKey, TopLogprobs] = {}
    for at, text in enumerate(rng.permutation(np.arange(100, 160)).tolist() for _ in range(12)):
        for arm, made in arms.items():
            tokens, places, gap, moved = text, baseline if at < 4 else (), 0.8, 0.7
            if arm == "cpu/mtp" and at == 6:
                tokens, places, gap, moved = [*range(300, 360)], candidate, 2.2, 0.6
            off = {*places, *(place + 3 for place in places)} if moved == 0.7 else places
            of_own = dict.fromkeys(sorted(off), moved) if recorded else None
            top, own = rejected(tokens, dict.fromkeys(places, gap), of_own)
            known[ScoreKey(arm, f"p{at}", 0, 0)] = top
            made.append(completion(tokens, f"p{at}", prompt=[900 + at], logprobs=own))
    result = compare(*(capture(arm, *made) for arm, made in arms.items()), known)
    assert result.verdict is verdict
    assert bool(result.corrupt) is (verdict is Verdict.DIVERGED)
    assert ("conclude.in_a_row" in {one.id for one in result.reasons}) is not bool(result.corrupt)


@pytest.mark.parametrize(
    ("gaps", "moved", "verdict"),
    [
        ((0.75, 0.47, 1.03, 0.38), (0.8, 0.5, 0.51, -0.07), Verdict.INCONCLUSIVE),
        ((1.06, 1.38, 2.88, 0.72), (1.1, 1.4, 2.33, 0.75), Verdict.INCONCLUSIVE),
        ((0.75, 0.47, 1.03, 0.38), (0.05, 0.02, 0.01, 0.0), Verdict.DIVERGED),  # its engine knew how unlikely they are
        ((0.75, 0.47, 3.03, 0.38), (0.8, 0.5, 0.01, 0.07), Verdict.DIVERGED),  # of one of them
        ((4.06, 4.38, 4.88, 4.72), (4.1, 4.4, 4.33, 4.75), Verdict.DIVERGED),  # far more than the baseline moves
    ],
)
def test_a_move_of_several_tokens_is_measured_beside_the_baselines_largest(
    gaps: tuple[float, ...], moved: tuple[float, ...], verdict: Verdict
) -> None:
    """Two clean rows of tests/worlds where an expert's choice lasts, of 23,283 and 21,202 tokens an arm."""
    rng = np.random.default_rng(4)
    arms: dict[str, list[Completion]] = {"cpu/base": [], "cpu/mtp": []}
    known: dict[ScoreKey, TopLogprobs] = {}
    for at, text in enumerate(rng.permutation(np.arange(100, 160)).tolist() for _ in range(12)):
        for arm, made in arms.items():
            tokens, places, by = (text, {30: 1.2}, {30: 1.1, 33: 0.9}) if at == 2 else (text, {}, {})
            if arm == "cpu/mtp" and at == 6:
                tokens = [*range(300, 360)]
                places, by = (dict(zip((20, 22, 23, 26), some, strict=True)) for some in (gaps, moved))
            top, own = rejected(tokens, places, by)
            known[ScoreKey(arm, f"p{at}", 0, 0)] = top
            made.append(completion(tokens, f"p{at}", prompt=[900 + at], logprobs=own))
    assert compare(*(capture(arm, *made) for arm, made in arms.items()), known).verdict is verdict


@pytest.mark.parametrize(
    ("dtype", "farthest", "verdict", "accused"),
    [
        ("bfloat16", 1.8, Verdict.INCONCLUSIVE, []),
        ("bfloat16", 9.0, Verdict.DIVERGED, ["p1"]),  # no router moves a token so far
        ("float32", 1.8, Verdict.DIVERGED, ["p1", "p2", "p3", "p4"]),
    ],
)
def test_single_tokens_of_an_arm_in_other_precision_are_left_open(
    dtype: str, farthest: float, verdict: Verdict, accused: list[str]
) -> None:
    """vLLM in bfloat16 beside transformers in float32, a random DeepSeek: 16 of 64 sound rows were accused."""
    rng = np.random.default_rng(4)
    base, other, known = [], [], dict[ScoreKey, TopLogprobs]()
    for at, tokens in enumerate(rng.permutation(np.arange(100, 160)).tolist() for _ in range(12)):
        base.append(completion(tokens, f"p{at}", prompt=[900 + at]))
        said, gaps = tokens, {}
        if 1 <= at <= 4:
            said, gaps = [*tokens[:20], *range(300, 340)], {20: farthest if at == 1 else 0.9, 40: 0.7}
        other.append(completion(said, f"p{at}", prompt=[900 + at]))
        entries = [
            [[700, -0.1], [701, -0.2], [token, -0.1 - gaps[n]]] if n in gaps else [[token, -0.1], [998, -4.0]]
            for n, token in enumerate(said)
        ]
        known[ScoreKey("cpu/base", f"p{at}", 0, 0)] = score(tokens)
        known[ScoreKey("cpu/other", f"p{at}", 0, 0)] = TopLogprobs.from_json(entries)
    arms = (("cpu/base", base, "float32"), ("cpu/other", other, dtype))
    result = compare(*(capture(arm, *made, engine={"dtype": one}) for arm, made, one in arms), known)
    assert (result.verdict, sorted({one.request for one in result.corrupt})) == (verdict, accused)
    assert ("conclude.other_precision" in {one.id for one in result.reasons}) is (dtype == "bfloat16")
