"""Tokens a little beyond the tolerance, counted over the run: which arm has more, and each text once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from captures import capture, completion

from parity.comparator import Comparison, compare
from parity.records import ScoreKey, Scores, TopLogprobs, Verdict
from parity.records.next_steps import Step

LITTLE = 0.3
"""Nats below the best, beyond the tolerance."""
USUAL = 0.12
"""The largest gap of a healthy baseline here."""


def streams(count: int, seed: int = 5) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(100, 900, 40).tolist() for _ in range(count)]


def score(text: Sequence[int], gaps: Mapping[int, float], parts_at: int, rival: int) -> TopLogprobs:
    """Each token on top, or so many nats below the best one; the other arm's, where they part, beside it."""
    entries = []
    for at, token in enumerate(text):
        best = rival if at == parts_at else 999
        gap = gaps.get(at, 0.0)
        entries.append([[best, -0.1], [token, -0.1 - gap]] if gap else [[token, -0.1], [best, -0.1 - LITTLE]])
    return TopLogprobs.from_json(entries)


def of_either(count: int, *, in_baseline: bool) -> Comparison:
    """Of 40 completions, so many part at token 20, and what one arm says there lies a little below the best."""
    texts = streams(40)
    others = [[*text[:20], *other[20:]] for text, other in zip(texts, streams(40, 6), strict=True)]
    arms: dict[str, list[list[int]]] = {"cpu/base": texts, "cpu/other": [*others[:count], *texts[count:]]}
    off = "cpu/base" if in_baseline else "cpu/other"
    beside = dict(zip(arms, reversed(arms.values()), strict=True))
    scores: Scores = {
        ScoreKey(arm, f"p{n}", 0, 0): score(
            text, {20: LITTLE} if arm == off and n < count else {5: USUAL}, 20 if n < count else -1, beside[arm][n][20]
        )
        for arm, several in arms.items()
        for n, text in enumerate(several)
    }
    base, other = (
        capture(
            arm, *(completion(text, f"p{n}", prompt=(1, 2, n + 3)) for n, text in enumerate(several)), max_tokens=40
        )
        for arm, several in arms.items()
    )
    return compare(base, other, scores)


def test_a_baseline_that_lies_further_from_its_own_scores_is_named() -> None:
    result = of_either(24, in_baseline=True)
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    reason = result.reasons[0]
    assert (reason.id, reason.parameters["count"], reason.parameters["other"]) == ("conclude.baseline_in_doubt", 24, 0)
    assert {one.step for one in result.next_steps if one.settles == reason.id} == {Step.SWAP, Step.REFERENCE}
    assert of_either(24, in_baseline=False).verdict is Verdict.DIVERGED
    assert of_either(4, in_baseline=True).verdict is Verdict.PASS  # no more than chance


def over_rounds(*, in_baseline: bool, rounds: int = 24) -> Comparison:
    """One arm says the same in each round, a token a little below the best in it, and the other each time something
    else that its scores support."""
    same, *varied = streams(rounds + 1)
    varied = [[*same[:10], *text[10:]] for text in varied]
    steady, other = ("cpu/base", "cpu/other") if in_baseline else ("cpu/other", "cpu/base")
    texts = {steady: [same] * rounds, other: varied}
    scores: Scores = {
        ScoreKey(arm, "p0", n, 0): score(
            text, {30: LITTLE} if arm == steady else {15: USUAL}, 10, texts[other if arm == steady else steady][n][10]
        )
        for arm, several in texts.items()
        for n, text in enumerate(several)
    }
    base, candidate = (
        capture(arm, *(completion(text, round=n) for n, text in enumerate(texts[arm])), max_tokens=40)
        for arm in ("cpu/base", "cpu/other")
    )
    return compare(base, candidate, scores)


def test_what_an_arm_says_again_in_each_round_is_one_piece_of_evidence() -> None:
    for in_baseline in (False, True):
        result = over_rounds(in_baseline=in_baseline)
        assert not [one for one in result.corrupt if one.request == "*"]
        numerics = result.stats.numerics
        assert numerics
        assert numerics.p_values["doubt"] >= 0.5
        assert numerics.baseline_off == ()
