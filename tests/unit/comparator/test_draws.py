"""Draws of a whole arm: wrong by a little everywhere, or in one part of the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from captures import completion
from msgspec import structs
from worlds import FLAT, PEAKED, SURE, Shape, speculating
from worlds.faults import sampled
from worlds.seen_as import AT_FAULT, VIEWS
from worlds.trials import Faulty, Setting, Trial, clean, judge
from worlds.unseen import unseen

from parity.comparator.detect.shared_noise import Row, agreement, factors, shares_noise
from parity.comparator.detect.whole_draws import ArmsDraws
from parity.comparator.population.drawn import test_draws as draws_test
from parity.comparator.population.drawn_findings import PROVEN
from parity.comparator.population.moved import most
from parity.comparator.reference.draw_sums import FEWEST, NAMES, AtPlaces, DrawSums, numbers_of, sums_of
from parity.comparator.reference.drawn_lists import Cut, Draws
from parity.comparator.reference.temperature import drawn_from, shows_cut
from parity.comparator.statistics import bennett, binomial_tail
from parity.records import Key, Kind, TopLogprobs, Verdict
from parity.records.next_steps import Step

ALPHA = 0.001 / 8
NO_CUT = Cut()


def _draws(rng: np.random.Generator, count: int, temperature: float, cut: Cut, width: int = 8) -> Draws:
    """Tokens drawn at a temperature from lists that name every token but one."""
    logits = rng.normal(0.0, 2.0, (count, width + 1))
    logits[:, :width] = -np.sort(-logits[:, :width], axis=1)
    logits[:, width] = logits[:, width - 1] - 0.5
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    lists = Draws(logs[:, :width], np.exp(logs[:, width]), np.zeros(count, dtype=np.int64), 1)
    weights = drawn_from(lists, temperature, cut)
    reach = np.cumsum(weights, axis=1)
    drawn = (reach < rng.random((count, 1)) * reach[:, -1:]).sum(axis=1)
    return structs.replace(lists, drawn=drawn)


def _arm(
    seed: int, drawn_at: float, asked: float, cut: Cut = NO_CUT, asked_cut: Cut | None = None
) -> dict[Key, DrawSums]:
    rng = np.random.default_rng(seed)
    rows = [_draws(rng, 100, drawn_at, cut) for _ in range(40)]
    sums, _ = sums_of(rows, [np.arange(100)] * len(rows), asked, asked_cut or cut)
    return {Key(f"r{number}", 0, 0): one for number, one in enumerate(sums)}


def _tested(base: dict[Key, DrawSums], arm: dict[Key, DrawSums], asked: float):
    known = {key: completion([1], key.request, prompt=[1] * (1 + number % 9)) for number, key in enumerate(arm)}
    return draws_test(ArmsDraws(base, arm), known, asked, 0.001, ALPHA)


@pytest.mark.parametrize("cut", [Cut(), Cut(top_k=4), Cut(top_p=0.8), Cut(min_p=0.1)], ids=str)
@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_numbers_have_the_mean_and_the_variance_that_are_said(temperature: float, cut: Cut) -> None:
    made = _draws(np.random.default_rng(5), 40_000, temperature, cut)
    found, spread, room = numbers_of(made, temperature, cut)
    error = np.sqrt(spread.sum(axis=0))
    assert (np.abs(found.sum(axis=0)) < 4 * error + 1e-9).all()
    assert (found**2).sum(axis=0) == pytest.approx(spread.sum(axis=0), rel=0.1)
    assert room.mean() == pytest.approx((made.drawn != 0).mean(), abs=0.01)


def test_a_cut_off_that_is_one_token_too_narrow_shows_at_its_edge() -> None:
    """In no other number as clearly: that token weighs little."""
    asked, drawn = Cut(top_k=7), Cut(top_k=6)
    made = _draws(np.random.default_rng(7), 20_000, 1.0, drawn)
    found, spread, _ = numbers_of(made, 1.0, asked)
    known = shows_cut(made, 1.0, asked)
    errors = found[known].sum(axis=0) / np.sqrt(np.maximum(spread[known].sum(axis=0), 1e-12))
    edge = NAMES.index("edge")
    assert errors[edge] < -8
    assert errors.argmin() == edge
    assert not numbers_of(made, 1.0, NO_CUT)[0][:, edge].any()


def test_arms_that_draw_as_asked_are_told_apart_by_nobody() -> None:
    for seed in range(20):
        odd, _ = _tested(_arm(2 * seed, 0.8, 0.8), _arm(2 * seed + 1, 0.8, 0.8), 0.8)
        assert odd is not None
        assert odd.p_value > 0.001


def test_a_temperature_as_large_as_is_said_would_be_seen() -> None:
    base = _arm(1, 0.8, 0.8)
    _, seen = _tested(base, _arm(2, 0.8, 0.8), 0.8)
    assert seen is not None
    assert seen.temperature_times is not None
    assert 1.0 < seen.temperature_times < 1.3
    hotter = [_tested(base, _arm(100 + n, 0.8 * seen.temperature_times, 0.8), 0.8)[0] for n in range(20)]
    assert sum(one is not None and one.p_value < ALPHA for one in hotter) >= 17
    assert np.median([one.times for one in hotter if one]) == pytest.approx(seen.temperature_times, abs=0.06)


def test_a_cut_off_that_takes_too_much_is_seen() -> None:
    base, tighter = _arm(1, 1.0, 1.0, Cut(top_p=0.9)), _arm(2, 1.0, 1.0, Cut(top_p=0.75), Cut(top_p=0.9))
    odd, _ = _tested(base, tighter, 1.0)
    assert odd is not None
    assert odd.p_value < ALPHA


def test_one_round_alone_is_named() -> None:
    base = {Key(key.request, turn, 0): one for turn in range(4) for key, one in _arm(turn, 1.0, 1.0).items()}
    arm = {
        Key(key.request, turn, 0): one
        for turn in range(4)
        for key, one in _arm(10 + turn, 0.8 if turn == 3 else 1.0, 1.0).items()
    }
    odd, _ = draws_test(ArmsDraws(base, arm), {key: completion([1], key.request) for key in arm}, 1.0, 0.001, ALPHA)
    assert odd is not None
    assert odd.p_value < ALPHA
    assert str(odd.part) == "in round 3"


def test_too_few_tokens_say_nothing() -> None:
    one = {Key("r0", 0, 0): DrawSums(np.ones(len(NAMES)), np.ones(len(NAMES)), 1.0, FEWEST - 1)}
    assert draws_test(ArmsDraws(one, one), {Key("r0", 0, 0): completion([1], "r0")}, 1.0, 0.0, ALPHA) == (None, None)


@pytest.mark.parametrize(("hits", "total", "chance"), [(20, 100, 0.1), (9, 1000, 0.002), (620, 1000, 0.5)])
def test_bennett_bounds_the_binomial(hits: int, total: int, chance: float) -> None:
    bound = bennett(hits - total * chance, total * chance * (1 - chance), 1.0)
    tail = binomial_tail(hits, total, chance)
    assert tail <= bound <= tail**0.6


@pytest.mark.parametrize(("count", "mean"), [(0, 2.9957), (5, 10.513), (57, 71.0)])
def test_the_most_that_a_count_leaves_possible(count: int, mean: float) -> None:
    """Figures of scipy.stats.chi2.ppf(0.95, 2 * count + 2) / 2."""
    assert most(count) == pytest.approx(mean, rel=2e-2)
    assert not math.isnan(most(count))


def _fault(name: str, size: str):
    return next(replace(one, family="hunted") for one in unseen() if (one.name, one.size) == (name, size))


def test_a_temperature_that_is_a_little_off_is_seen_where_both_arms_are_scored() -> None:
    trial = Faulty(78, FLAT, first=16).trial(_fault("temperature", "0.9 for 0.8"), 3)
    result = judge(VIEWS["no own logprobs"](trial)).result
    assert result.verdict is Verdict.DIVERGED
    assert "draws" in result.stats.sampling.failed
    half = judge(VIEWS["differing scored"](trial)).result
    assert half.verdict is Verdict.INCONCLUSIVE
    assert Step.SCORE in [one.step for one in half.next_steps]


def test_penalties_larger_than_asked_are_seen_within_the_tolerance() -> None:
    trial = Faulty(40_000, FLAT, first=16).trial(_fault("presence penalty", "0.6 for 0.5"), 3)
    result = judge(VIEWS["no own logprobs"](trial)).result
    assert result.verdict is Verdict.DIVERGED
    assert "larger penalties than asked" in " ".join(map(str, result.reasons)) + " ".join(
        str(one.evidence.why) for one in result.corrupt
    )


def _shifted(places: int):
    return lambda top: replace(top, ids=np.roll(top.ids, places, 0), values=np.roll(top.values, places, 0))


@pytest.fixture(scope="module")
def clean_draws() -> Trial:
    setting = Setting("drawn", FLAT, 32, {"temperature": 0.8, "presence_penalty": 0.5, "max_tokens": 64})
    (trial,) = clean(setting, 901, arms=(speculating(2),))
    assert judge(trial).result.verdict is Verdict.PASS
    return trial


@pytest.mark.parametrize(
    ("wrong", "whose"),
    [
        (_shifted(1), "both"),
        (_shifted(-1), "both"),
        (_shifted(1), "cuda/base"),
        (_shifted(1), "cuda/mtp-k2"),
        (lambda top: replace(top, values=top.values * 2), "both"),
    ],
    ids=["late", "early", "the baseline's late", "the candidate's late", "after a temperature"],
)
def test_scores_of_something_else_accuse_nobody_of_drawn_tokens(
    clean_draws: Trial, wrong: Callable[[TopLogprobs], TopLogprobs], whose: str
) -> None:
    scores = {key: wrong(top) if whose in ("both", key.arm) else top for key, top in clean_draws.scores.items()}
    result = judge(replace(clean_draws, scores=scores)).result
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE


def test_scores_of_other_requests_accuse_nobody_of_drawn_tokens(clean_draws: Trial) -> None:
    keys, tops = list(clean_draws.scores), list(clean_draws.scores.values())
    result = judge(replace(clean_draws, scores=dict(zip(keys, tops[5:] + tops[:5], strict=True)))).result
    assert not result.corrupt
    assert "mixed up" in str(result.reasons[0])


@pytest.mark.parametrize(
    ("name", "size"), [("temperature", "0.9 for 0.8"), ("top-p", "0.8 for 0.9"), ("presence penalty ignored", "1.5")]
)
def test_a_baseline_that_draws_otherwise_does_not_accuse_the_candidate(name: str, size: str) -> None:
    trial = VIEWS["no own logprobs"](Faulty(40_000, FLAT, first=16).trial(_fault(name, size), 3))
    assert judge(trial).result.verdict is Verdict.DIVERGED
    turned = judge(replace(trial, baseline=trial.candidate, candidate=trial.baseline)).result
    assert turned.verdict is Verdict.INCONCLUSIVE
    assert not turned.corrupt
    assert Step.SWAP in [one.step for one in turned.next_steps]


def test_a_baseline_that_draws_beyond_its_cut_off_does_not_accuse_the_candidate() -> None:
    """Its tokens are less likely than the candidate's, and those are likelier than the lists of 20 explain; but none of
    them lies as far off as the baseline's least likely ones."""
    fault = next(one for one in sampled() if one.name == "min_p ignored")
    trial = VIEWS[AT_FAULT](Faulty(503, FLAT, first=16, logprobs=5).trial(replace(fault, family="hunted"), 2))
    result = judge(trial).result
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.corrupt
    assert Step.SWAP in [one.step for one in result.next_steps]


def _listing(trial: Trial, width: int) -> Trial:
    """Scores of the `width` best and the chosen token."""

    def cut(top: TopLogprobs) -> TopLogprobs:
        order = np.argsort(-np.nan_to_num(top.values[:, :-1], nan=-np.inf), axis=1)[:, :width]
        kept = np.concatenate([order, np.full((len(order), 1), top.ids.shape[1] - 1)], axis=1)
        return TopLogprobs(np.take_along_axis(top.ids, kept, 1), np.take_along_axis(top.values, kept, 1))

    return replace(trial, scores={key: cut(top) for key, top in trial.scores.items()})


def test_which_arm_draws_beyond_a_cut_off_is_asked_where_the_lists_show_it() -> None:
    """Lists of 20 leave out where it lies at many places: by those a sound arm seems to be off, and farther."""
    trial = Faulty(510, FLAT, first=16, logprobs=5).trial(_fault("top-p", "0.95 for 0.9"), 4)
    found = judge(VIEWS["scored"](trial)).result
    assert found.verdict is Verdict.DIVERGED
    turned = judge(VIEWS[AT_FAULT](trial)).result
    assert "conclude.baseline_draws" in [one.id for one in turned.reasons]
    assert not turned.corrupt
    for view in ("scored", AT_FAULT):
        short = judge(VIEWS[view](_listing(trial, 5))).result
        assert "conclude.draws_of_either" in [one.id for one in short.reasons]
        # What lies beyond it whatever the lists leave out is the candidate's, and adds up.
        assert [one.kind for one in short.corrupt] == ([Kind.BEYOND_CUTOFF] if view == "scored" else [])
        assert Step.SCORE_TOP in [one.step for one in short.next_steps] or short.corrupt


def test_a_cut_off_is_shown_where_it_lies_in_the_list() -> None:
    logs = np.log(np.array([[0.5, 0.3, 0.15], [0.4, 0.2, 0.1]]))
    lists = Draws(logs, np.array([0.05, 0.3]), np.zeros(2, dtype=np.int64), 5)
    assert shows_cut(lists, 1.0, Cut(top_p=0.9)).tolist() == [False, False]  # the last one listed may be the last kept
    assert shows_cut(lists, 1.0, Cut(top_p=0.7)).tolist() == [True, False]
    assert shows_cut(lists, 1.0, Cut(top_k=2)).tolist() == [True, True]
    assert shows_cut(lists, 1.0, Cut(top_k=3)).tolist() == [True, True]  # just behind the list
    assert shows_cut(lists, 1.0, Cut(top_k=4)).tolist() == [False, False]
    assert shows_cut(lists, 0.8, Cut()).tolist() == [True, True]


@pytest.mark.parametrize("requests", [16, 64])
def test_one_noise_for_all_requests_accuses_nobody(requests: int) -> None:
    """As with one seed for all of them: independent draws would cancel out, these add up."""
    asked = {"temperature": 0.8, "max_tokens": 64, "ignore_eos": True, "one_noise": True}
    found = []
    for seed in range(8):
        trial = next(clean(Setting("drawn", FLAT, requests, asked), 500 + seed, arms=(speculating(2),)))
        result = judge(trial).result
        assert not result.corrupt
        assert result.verdict is Verdict.INCONCLUSIVE
        found.append(result.stats.sampling.noise_shared_by)
    assert all("cuda/base" in one for one in found)


def test_independent_draws_are_not_taken_for_one_noise(clean_draws: Trial) -> None:
    sampling = judge(clean_draws).result.stats.sampling
    assert sampling.noise_shared_by == ()
    assert {"likelihood", "surprisal", "length", "wording", "draws"} <= sampling.adjusted.keys()


def test_a_few_odd_places_are_not_taken_for_one_noise() -> None:
    """Draws that are the best token at some places, in all completions, are one-sided."""
    rng = np.random.default_rng(3)
    places = AtPlaces.none()
    for _ in range(200):
        row = _draws(rng, 64, 1.0, NO_CUT)
        row = structs.replace(row, drawn=np.where(np.arange(64) % 3 == 0, 0, row.drawn))
        places += sums_of([row], [np.arange(64)], 1.0, NO_CUT)[1]
    assert factors(places)[NAMES.index("rank")] > 2
    assert not shares_noise(places, is_baseline=False)
    assert shares_noise(places, is_baseline=True)


# ------------------------------------------------------------------ row against row


def _rows(seed: int, how: str, *, off: float = 0.0) -> list[Row]:
    """32 requests that each say their own, 128 tokens of a vocabulary of 60; their lists name them all but are `off` by
    so much. how: "apart", or what all of them share: "noise" of each token, or a number in the order of "ids" or of
    "likely" tokens."""
    rng = np.random.default_rng(seed)
    found = []
    shared = rng.random((128, 60)), rng.random((128, 1))
    openness = np.where(np.arange(128) % 8 == 0, 0.3, 2.0)[:, None]  # the same places are open in all of them
    for _ in range(32):
        logits = rng.normal(0.0, 2.0, (128, 60)) * openness
        noise, number = shared if how != "apart" else (rng.random((128, 60)), rng.random((128, 1)))
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        order = np.argsort(-chances, axis=1) if how == "likely" else np.tile(np.arange(60), (128, 1))
        reach = np.cumsum(np.take_along_axis(chances, order, axis=1), axis=1)
        by_number = np.take_along_axis(order, (reach < number).sum(axis=1, keepdims=True), axis=1)[:, 0]
        tokens = by_number if how in ("ids", "likely") else (-np.log(noise) / chances).argmin(axis=1)
        values = np.log(chances) * (1.0 + off)
        best = np.argsort(-values, axis=1)[:, :20]
        ids = np.concatenate([best, tokens[:, None]], axis=1)
        again = (best == tokens[:, None]).any(axis=1)
        ids[again, -1] = -1
        logs = np.take_along_axis(values, ids.clip(0), axis=1)
        logs[again, -1] = np.nan
        found.append(Row.of(tokens, TopLogprobs(ids, logs), 1.0))
    return found


@pytest.mark.parametrize("how", ["noise", "ids", "likely"])
def test_requests_that_draw_by_the_same_numbers_are_seen(how: str) -> None:
    assert all((agreement(_rows(seed, how)) or 0.0) > PROVEN for seed in range(4))


@pytest.mark.parametrize("off", [0.0, 0.05, -0.05])
def test_requests_that_draw_apart_do_not_agree(off: float) -> None:
    """Whether the lists are theirs, or those of another temperature, which all rows miss alike."""
    assert all(agreement(_rows(seed, "apart", off=off)) is None for seed in range(8))


def test_an_arm_whose_requests_all_draw_alike_is_no_pass() -> None:
    fault = next(one for one in unseen() if one.name == "requests draw the same numbers")
    result = judge(Faulty(3, PEAKED, first=32).trial(fault, 2)).result
    assert result.verdict is not Verdict.PASS
    assert "cuda/mtp-k2" in result.stats.sampling.noise_shared_by


@pytest.mark.parametrize("shape", [FLAT, PEAKED], ids=["flat", "peaked"])
def test_an_engine_that_gives_all_requests_the_same_numbers_is_at_fault_where_parity_gave_each_its_own(
    shape: Shape,
) -> None:
    fault = next(one for one in unseen() if one.name == "requests draw the same numbers")
    trial = Faulty(5, shape, first=32).trial(fault, 2)
    by_parity = replace(trial.candidate.header, engine={**trial.candidate.header.engine, "asked": {}})
    result = judge(replace(trial, candidate=replace(trial.candidate, header=by_parity))).result
    assert "run.same_numbers" in [one.evidence.why.id for one in result.corrupt]
    assert not {"run.same_numbers"} & {one.evidence.why.id for one in judge(trial).result.corrupt}


@pytest.mark.parametrize("name", ["bad word said", "logit_bias ignored, -100 on 8 ids"])
def test_a_baseline_that_breaks_its_rules_everywhere_accuses_nobody_of_the_difference(name: str) -> None:
    """Its text is another one, so how likely it is and how noisy say nothing of the candidate."""
    fault = next(one for one in unseen() if f"{one.name}, {one.size}".startswith(name))
    trial = Faulty(90_001, SURE, first=16, logprobs=5).trial(replace(fault, family="hunted"), 3)
    assert not judge(VIEWS[AT_FAULT](trial)).result.corrupt
