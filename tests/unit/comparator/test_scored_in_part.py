"""`--score differing`: of the baseline's completions only those are scored that differ. They say what is rejected in
both arms alike, and are too few, and chosen, to measure a noise by."""

from __future__ import annotations

import numpy as np
import pytest
from captures import TEXT, capture, completion, score, texts
from worlds import BASE, FLAT, ROUGH, Fault, World, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, judge

from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Kind, ScoreKey, TopLogprobs, Verdict

CLEAN = Fault("clean", "", "hunted", ())


def seen(
    gap: float, *, own: float | None = None, equal_scored: bool = False, tolerance: str | float = 0.25
) -> Comparison:
    """One completion in two differs, by a token `gap` nats below the best; the baseline's own scores have no gap. own:
    the engines' own logprob of that token, over the score."""
    lone = [*TEXT[:10], 700, *TEXT[11:]]
    scored = score(lone, {10: gap}, TEXT)
    known = {ScoreKey("cpu/mtp", "p0", 0, 0): scored, ScoreKey("cpu/base", "p0", 0, 0): score(TEXT, {})}
    if equal_scored:
        known[ScoreKey("cpu/base", "p1", 0, 0)] = known[ScoreKey("cpu/mtp", "p1", 0, 0)] = score(TEXT, {})
    logprobs: dict[str, TopLogprobs | None] = {"base": None, "mtp": None}
    if own is not None:
        for arm, tokens, top in (("base", list(TEXT), score(TEXT, {})), ("mtp", lone, scored)):
            said = np.where(top.ids == np.array(tokens)[:, None], top.values, -np.inf).max(axis=1)
            said[10] += own if arm == "mtp" else 0.0
            logprobs[arm] = TopLogprobs(np.array(tokens)[:, None], said[:, None])
    arms = [
        capture(f"cpu/{arm}", completion(tokens, "p0", logprobs=logprobs[arm]), completion(TEXT, "p1"))
        for arm, tokens in (("base", TEXT), ("mtp", lone))
    ]
    return compare(*arms, known, CompareOptions(tolerance))


def test_they_do_not_narrow_what_is_left_in_doubt() -> None:
    every = seen(0.4, own=0.0, equal_scored=True)  # no token of the baseline lies so far below
    assert [one.id for one in every.reasons] == ["conclude.alone"]
    few = seen(0.4, own=0.0)
    assert few.verdict is Verdict.INCONCLUSIVE
    assert "--score all" in " ".join(texts(few.reasons))


def test_they_calibrate_no_tolerance() -> None:
    assert seen(0.2, equal_scored=True, tolerance="auto").verdict is Verdict.DIVERGED
    few = seen(0.2, tolerance="auto")
    assert not few.corrupt
    assert any("--tolerance auto needs scores" in note for note in texts(few.notes))


def test_they_say_nothing_of_how_far_own_logprobs_lie_from_scores() -> None:
    assert Kind.LOGPROB_MISMATCH in {one.kind for one in seen(0.1, own=-4.5, equal_scored=True).corrupt}
    assert not seen(0.1, own=-4.5).corrupt


@pytest.mark.parametrize("seed", [2700061, 2700063, 2700143])
def test_arms_that_are_alike_are_not_accused_of_what_the_scores_reject_in_both(seed: int) -> None:
    """Experts far apart. In one of them gaps of completions that differ seem far larger than the baseline's: those that
    are equal, and have none, are missing."""
    trial = Faulty(seed, ROUGH, first=16, logprobs=5).trial(CLEAN, 4)
    for view in ("differing scored", "differing, no own", "candidate scored"):
        result = judge(VIEWS[view](trial)).result
        assert not result.corrupt, view
        assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("scored", "verdict"), [(3, Verdict.INCONCLUSIVE), (24, Verdict.PASS)])
def test_few_scored_ones_of_many_drawn_are_no_pass(scored: int, verdict: Verdict) -> None:
    world = World(3, FLAT)
    asked = world.requests(24)
    base, other = (world.run(asked, arm, max_tokens=32, temperature=0.8).capture for arm in (BASE, speculating(2)))
    known = world.score(base, other)
    of_other = [key for key in known if key.arm == other.header.arm]
    result = compare(base, other, {key: top for key, top in known.items() if key not in of_other[scored:]})
    assert result.verdict is verdict
    assert ("conclude.random_few_scored" in [one.id for one in result.reasons]) is (scored == 3)


def test_all_scored_are_enough_whatever_of_them_is_counted() -> None:
    """Of completions with one noise one counts in the run's tests; nobody says that the others are not scored."""
    world = World(9001, FLAT)
    asked = world.requests(96)
    rules = {"temperature": 0.8, "max_tokens": 32, "one_noise": True}
    base, other = (world.run(asked, arm, **rules).capture for arm in (BASE, speculating(1)))
    ids = [one.id for one in compare(base, other, world.score(base, other)).reasons]
    assert "conclude.noise_shared" in ids
    assert "conclude.random_few_scored" not in ids
