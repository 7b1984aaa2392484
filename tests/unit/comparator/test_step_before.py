"""Tokens drawn from the logits of the step before: found by what that step's list says of them, and nobody else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import texts
from worlds import BASE, FLAT, PEAKED, ROUGH, Fault, Shape, World, speculating
from worlds.choosing import Lapse
from worlds.trials import Judged, Trial, judge
from worlds.world import WORDS

from parity.comparator import CompareOptions
from parity.comparator.reference.drawn_lists import Cut, draws_of
from parity.comparator.reference.step_before import RATES, log_ratios, redrawn, won
from parity.records import Kind, ScoreKey, TopLogprobs, Verdict

ROWS, TOKENS = 64, 64
KINDS = ("unjustified", "duplication", "garbled")
NOBODY = Fault("clean", "", "drawn", KINDS)
ARM = replace(speculating(2), draws=1)


def stale(every: int, share: float = 0.1) -> Fault:
    return Fault("stale", f"1 in {every}", "drawn", KINDS, lapse=Lapse(stale="own", rate=1 / every), share=share)


def trial(shape: Shape, fault: Fault, seed: int, **sampling: float) -> Trial:
    """Without own logprobs, by which such tokens show."""
    asked = {"temperature": 1.0, "max_tokens": TOKENS, "logprobs": None, **sampling}
    world = World(seed, shape)
    requests = world.requests(ROWS)
    base = world.run(requests, BASE, **asked).capture
    made = world.run(requests, ARM, fault=fault, fault_seed=seed, **asked)
    scores = world.score(base, made.capture)
    return Trial("stale", seed, base, made.capture, scores, made.truth, CompareOptions(detokenize=WORDS))


def exchanged(some: Trial) -> Judged:
    return judge(replace(some, baseline=some.candidate, candidate=some.baseline))


@pytest.mark.parametrize("shape", [FLAT, PEAKED, ROUGH], ids=["flat", "peaked", "rough"])
def test_rows_with_such_steps_are_found_and_no_others(shape: Shape) -> None:
    some = trial(shape, stale(10), 71)
    said = judge(some)
    assert said.result.verdict is Verdict.DIVERGED
    assert said.hit >= 5
    assert said.found >= 0.6 * said.hit
    assert not said.accused
    named = [one for one in said.result.corrupt if one.kind is Kind.UNJUSTIFIED]
    if shape is not PEAKED:  # there they say again what was said
        assert any("as if drawn from the logits of" in one for one in texts([one.evidence.why for one in named]))
    other = exchanged(some)
    assert (other.result.verdict, other.result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert any("the baseline itself is drawn otherwise than asked" in one for one in texts(other.result.reasons))


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 0.6}, {"temperature": 1.5}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.05}],
    ids=str,
)
@pytest.mark.parametrize("shape", [FLAT, PEAKED, ROUGH], ids=["flat", "peaked", "rough"])
def test_sound_rows_win_next_to_nothing(shape: Shape, sampling: dict[str, float]) -> None:
    some = trial(shape, NOBODY, 72, **sampling)
    cut = Cut.of({**some.candidate.header.sampling, **sampling})
    logs = []
    for one in some.candidate:
        top = some.scores[ScoreKey(some.candidate.header.arm, *one.key)]
        draws, places = draws_of(top, one.token_ids, 20, 512)
        temperature = sampling.get("temperature", 1.0)
        logs.append(won(log_ratios(top, one.token_ids, draws, places, temperature, cut)).log_won)
    assert max(logs) < np.log(ROWS) + 3
    assert float(np.exp(logs).mean()) < 1


@pytest.mark.parametrize("sampling", [{"temperature": 0.6}, {"top_p": 0.9}, {"top_k": 20}], ids=str)
def test_they_are_found_at_other_temperatures_and_with_cut_offs(sampling: dict[str, float]) -> None:
    said = judge(trial(PEAKED, stale(8), 73, **sampling))
    assert said.found >= 0.6 * said.hit > 2
    assert not said.accused


def test_a_bet_is_fair_whatever_the_lists_leave_out() -> None:
    """What it wins on average at one place, over all tokens that can be drawn there."""
    rng = np.random.default_rng(5)
    vocabulary, width = 60, 8
    own, before = (np.log(rng.dirichlet(np.full(vocabulary, 0.3))) for _ in range(2))
    lists = [np.argsort(-one)[:width] for one in (before, own)]
    total = 0.0
    for token, chance in enumerate(np.exp(own)):
        tokens = np.array([lists[0][0], token])
        ids = np.array([[*lists[0], tokens[0]], [*lists[1], token]])
        values = np.array([before[ids[0]], own[ids[1]]])
        top = TopLogprobs(ids, values)
        ratios = log_ratios(top, tokens, *draws_of(top, tokens, width, vocabulary), 1.0, Cut())
        total += float(chance) * np.exp(won(ratios).log_won)
    assert 1 - max(RATES) < total <= 1


def test_scores_that_are_shifted_by_a_place_accuse_nobody() -> None:
    """Then each token of both arms looks so."""
    some = trial(PEAKED, NOBODY, 74)
    shifted = {
        key: TopLogprobs(np.roll(top.ids, 1, axis=0), np.roll(top.values, 1, axis=0))
        for key, top in some.scores.items()
    }
    result = judge(replace(some, scores=shifted)).result
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.corrupt


@pytest.mark.parametrize("shape", [FLAT, PEAKED], ids=["flat", "peaked"])
def test_a_pass_says_about_how_many_would_be_found(shape: Shape) -> None:
    clean = judge(trial(shape, NOBODY, 75)).result
    assert clean.verdict is Verdict.PASS
    said = {one.fault: one for one in clean.stats.missed}["step_before"]
    assert "the logits of the step before taken at one step in 10" in " ".join(texts(clean.reasons))
    hit = judge(trial(shape, stale(10, share=1.0), 75))
    assert hit.found / hit.hit >= said.seen - 0.1
    assert said.seen > 0.2


@pytest.mark.filterwarnings("error")
def test_nothing_is_drawn_where_the_step_before_lists_nothing() -> None:
    values = np.log(np.full((8, 3), 0.3))
    values[3] = np.nan
    top = TopLogprobs(np.tile(np.arange(3), (8, 1)), values)
    lists, tokens = redrawn(top, np.zeros(8, dtype=np.int64), 1.0, every=2)
    assert tokens[4] == 0
    assert len(lists) == len(tokens) == 8
