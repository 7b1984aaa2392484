"""Lists that hold the chosen token with what is no logprob beside it: null, infinity, a number above zero."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from captures import TEXT, capture, completion, score
from worlds import FLAT, PEAKED, Shape, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Setting, clean, judge

from parity.comparator import compare
from parity.comparator.reference.copies import chance_logs
from parity.comparator.reference.drawn_lists import Cut
from parity.comparator.reference.gaps import batched_token_gaps, gap_of_other, token_gaps
from parity.comparator.reference.surprisal import tail_logs
from parity.records import Key, Kind, ScoreKey, TokenIds, TopLogprobs, Verdict

NO_LOGPROBS = [math.nan, math.inf, 0.02]


def holding(value: float, *, first: bool) -> TopLogprobs:
    """Three places; at the second the chosen token, 7, has `value`."""
    there = [[7, value], [8, -2.0]]
    return TopLogprobs.from_json([[[7, -0.1], [8, -3.0]], there if first else there[::-1], [[7, -0.2], [8, -4.0]]])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("value", NO_LOGPROBS)
def test_such_a_token_is_unknown_and_not_unlikely(value: float, first: bool) -> None:
    top, tokens = holding(value, first=first), np.array([7, 7, 7])
    for gaps in (token_gaps(top, tokens), *batched_token_gaps([(top, tokens)] * 2)):
        assert np.isnan(gaps.gap).tolist() == [False, True, False]
        assert gaps.best_id.tolist() == [7, -1, 7]
    assert gap_of_other(top, 1, 7) is None
    assert gap_of_other(top, 1, 9) == (0.0, False)


@pytest.mark.parametrize("value", NO_LOGPROBS[:2])
def test_no_sampler_is_asked_about_it(value: float) -> None:
    top, tokens = holding(value, first=True), np.array([7, 7, 7])
    assert np.isnan(tail_logs(top, tokens, 1.0, 100)).tolist() == [False, True, False]
    assert np.isnan(chance_logs(top, tokens, 1.0, Cut())).tolist() == [False, True, False]


def test_minus_infinity_says_that_it_cannot_come() -> None:
    top, tokens = holding(-math.inf, first=True), np.array([7, 7, 7])
    assert token_gaps(top, tokens).gap[1] == math.inf


def with_holes(top: TopLogprobs, tokens: TokenIds, value: float, seed: int) -> TopLogprobs:
    """At one place in twenty the chosen token has `value`."""
    hit = np.random.default_rng(seed).random(len(top)) < 0.05
    return replace(top, values=np.where((top.ids == tokens[:, None]) & hit[:, None], value, top.values))


@pytest.mark.parametrize("value", NO_LOGPROBS)
@pytest.mark.parametrize(
    ("shape", "asked"),
    [
        (PEAKED, {}),
        (FLAT, {"repetition_penalty": 1.2}),
        (PEAKED, {"temperature": 1.0}),
        (FLAT, {"temperature": 0.8, "top_k": 20, "top_p": 0.9}),
    ],
    ids=["greedy", "penalty", "drawn", "cut off"],
)
def test_scores_with_holes_accuse_nobody(shape: Shape, asked: dict[str, float], value: float) -> None:
    (sound,) = clean(Setting("", shape, 32, {"max_tokens": 64, **asked}), 1, arms=(speculating(2),))
    arms = {one.header.arm: one for one in (sound.baseline, sound.candidate)}
    for holed in (tuple(arms), (sound.candidate.header.arm,)):
        scores = {
            key: with_holes(top, arms[key.arm].completions[Key(*key[1:])].token_ids, value, row)
            if key.arm in holed
            else top
            for row, (key, top) in enumerate(sound.scores.items())
        }
        for view in ("scored", "differing scored", "candidate, no own"):
            found = judge(VIEWS[view](replace(sound, scores=scores))).result
            assert not found.corrupt, (view, holed, [str(one.evidence.why) for one in found.corrupt])
            assert not any("scores reject" in str(one) for one in found.reasons)


def test_samples_are_no_copies_because_nobody_knows_how_likely_they_are() -> None:
    both = [completion(TEXT[:2], sample=number) for number in range(2)]
    other = [completion(TEXT[2:4]), completion(TEXT[4:6], sample=1)]
    known = score(TEXT[:2])
    top = replace(known, values=np.where(known.ids == np.array(TEXT[:2])[:, None], np.nan, known.values))
    scores = {ScoreKey("cpu/mtp", "p0", 0, number): top for number in range(2)}
    result = compare(
        capture("cpu/base", *other, temperature=1.0, n=2), capture("cpu/mtp", *both, temperature=1.0, n=2), scores
    )
    assert not any(one.kind is Kind.DUPLICATE_COMPLETION for one in result.findings)
    assert result.verdict is not Verdict.PASS


@pytest.mark.parametrize("left", [0, 5])
def test_scores_of_a_repetition_penalty_may_be_empty(left: int) -> None:
    """As where a script wrote the records and nothing in them."""
    asked = {"max_tokens": 16, "repetition_penalty": 1.2}
    (sound,) = clean(Setting("", FLAT, 12, asked), 1, arms=(speculating(2),))
    nothing = TopLogprobs(np.empty((0, 0), dtype=np.int64), np.empty((0, 0)))
    scores = {
        key: TopLogprobs(top.ids[:left], top.values[:left]) if left and row % 2 else nothing
        for row, (key, top) in enumerate(sound.scores.items())
    }
    found = judge(replace(sound, scores=scores)).result
    assert found.verdict is Verdict.INCONCLUSIVE
    assert not found.corrupt
