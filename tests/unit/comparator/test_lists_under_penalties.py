"""Lists of an arm's own logprobs under penalties, without scores: how far a token lies off is known in part only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from captures import capture, completion

from parity.comparator import compare
from parity.comparator.reference.gaps import token_gaps
from parity.comparator.reference.logit_range import bounds
from parity.comparator.reference.penalties import ANY_LOGIT, Penalised, Penalties
from parity.comparator.reference.scores import Reference
from parity.records import Capture, ScoreKey, TopLogprobs, Verdict

RULES = {"repetition_penalty": 1.15, "presence_penalty": 0.7, "logit_bias": {"7": 4.0}}
SAID = (20, 21, 20, 22, 20, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)
TOP = (41, 42)


def _arm(name: str, token: int, values: dict[int, float], rules: Mapping[str, Any] = RULES) -> Capture:
    """SAID with certainty, then a token of which the list says so much: the best one, said before, is pushed down."""
    first = [[[one, -0.001], [one + 100, -8.0], [one + 200, -8.2], [one + 300, -8.4]] for one in SAID]
    last = [[token, values[token]], *([one, value] for one, value in values.items() if one != token)]
    lists = TopLogprobs.from_json([*first, last])
    return capture(name, completion((*SAID, token), logprobs=lists), max_tokens=17, **rules)


def _compared(apart: float) -> Verdict:
    """The baseline chose TOP[0], a little better to it; to the candidate, the other one is better by so much."""
    base = _arm("cuda/base", TOP[0], {20: -1.16, TOP[0]: -2.53, TOP[1]: -2.59, 43: -2.94})
    other = _arm("cuda/mtp", TOP[1], {20: -1.22, TOP[0]: -2.41 - apart, TOP[1]: -2.41, 43: -3.6})
    return compare(base, other).verdict


def test_a_near_tie_that_the_lists_do_not_decide_accuses_nobody() -> None:
    """The baseline's list does not say how far its own best lies above, as a token with a bias is not listed; the
    candidate's puts the baseline's token a little beyond the tolerance at least."""
    assert _compared(0.28) is Verdict.INCONCLUSIVE


def test_a_token_that_the_baselines_list_puts_little_below_accuses_nobody() -> None:
    """Its list bounds that to 0.24 to 0.4 nats, for the best one is pushed down by an unknown part of its logit. The
    candidate's leaves the baseline's token out, which is more than the tolerance below."""
    rules = {"repetition_penalty": 1.15}
    base = _arm("cuda/base", TOP[0], {TOP[0]: -2.53, 20: -2.01, TOP[1]: -2.77, 43: -2.81}, rules)
    other = _arm("cuda/mtp", TOP[1], {TOP[1]: -2.6, 20: -2.02, 44: -2.62, 43: -2.9}, rules)
    assert compare(base, other).verdict is Verdict.INCONCLUSIVE


def test_a_gap_that_may_be_within_the_tolerance_accuses_nobody() -> None:
    """The baseline's lists bound it to 0.07 to 0.2508 nats, in four completions, and its scores show no noise."""
    rules = {"repetition_penalty": 1.15}

    def four(name: str, token: int, values: dict[int, float]) -> Capture:
        rows = []
        for apart in range(0, 80, 20):
            said = [one + apart for one in SAID]
            first = [[[one, -0.001], [one + 100, -8.0], [one + 200, -8.2], [one + 300, -8.4]] for one in said]
            last = sorted(([one + apart, value] for one, value in values.items()), key=lambda one: one[0] != token)
            lists = TopLogprobs.from_json([*first, last])
            rows.append(completion((*said, token + apart), f"p{apart}", logprobs=lists))
        return capture(name, *rows, max_tokens=17, **rules)

    base = four("cuda/base", TOP[0], {TOP[0]: -2.53, 20: -2.01, TOP[1]: -2.6, 43: -2.81})
    other = four("cuda/mtp", TOP[1], {TOP[1]: -2.6, 20: -2.02, 44: -2.62, 43: -2.9})
    sure = {
        ScoreKey("cuda/base", *one.key): TopLogprobs.from_json(
            [[[int(t), -0.001], [int(t) + 100, -8.0]] for t in one.token_ids]
        )
        for one in base
    }
    result = compare(base, other, sure)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "conclude.unjudged" in {one.id for one in result.reasons}


def test_lists_that_hold_their_own_token_for_better_by_far_accuse_nobody() -> None:
    assert _compared(0.9) is Verdict.INCONCLUSIVE


def test_a_token_that_its_own_list_rejects_as_well_is_a_fault() -> None:
    base = _arm("cuda/base", TOP[0], {20: -1.16, TOP[0]: -2.53, TOP[1]: -3.43, 43: -2.94})
    other = _arm("cuda/mtp", TOP[1], {20: -1.16, TOP[0]: -2.51, TOP[1]: -3.41, 43: -2.95})
    assert compare(base, other).verdict is Verdict.DIVERGED


def test_a_bias_is_divided_by_the_repetition_penalty_as_well() -> None:
    """log(sum(exp(logits))) is 9; token 7, said before and with a bias of 4, is chosen over one that is new."""
    normaliser, raw = 9.0, {7: -3.0, 41: -1.5}
    lists = TopLogprobs(np.array([[7, 41]]), np.array([[raw[7], raw[41]]]))
    penalised = Penalised(Penalties(1.2, bias=((7, 4.0),)), prompt=np.array([7]))
    _, most = bounds(lists, np.array([7]), penalised)
    at_most = ((raw[7] + 4.0) / 1.2 - raw[41]) / (1 - 1 / 1.2)
    assert np.isclose(most[0], at_most)
    assert normaliser < at_most


def test_a_baseline_that_leaves_a_bias_out_is_not_believed_over_a_candidate_that_keeps_it() -> None:
    """Token 7 is lifted by 100 nats. The baseline's lists are too short to show it, the candidate's put it first, and
    of the token that the baseline chose both say the same."""
    asked = {"logit_bias": {"7": 100.0}, "max_tokens": 16}
    theirs = TopLogprobs.from_json([[[41, -1.5]]] * 16)
    ours = TopLogprobs.from_json([[[7, -6.4], [41, -1.5]]] * 16)
    other = capture("cuda/mtp", completion([7] * 16, logprobs=ours), **asked)
    result = compare(capture("cuda/base", completion([41] * 16, logprobs=theirs), **asked), other)
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE


def test_drawn_tokens_do_not_say_where_the_logits_lie() -> None:
    """Drawn, a token that was said before is often chosen over a better new one, as if the penalty took nothing
    off."""
    again = TopLogprobs.from_json([[[20, -2.5], [43, -1.6], [44, -2.0]]] * 16)
    own = {"temperature": 1.0, "repetition_penalty": 1.5}
    rows = [completion([20] * 16, f"d{n}", logprobs=again, **own) for n in range(4)]
    base, other = (capture(name, *rows, max_tokens=16) for name in ("cuda/base", "cuda/mtp"))
    assert Reference(base, other, {}).shaping(rows[0]).logit_range == ANY_LOGIT


def test_bounds_hold_whatever_the_logits_are_where_a_penalty_raises() -> None:
    """A repetition penalty turns at a logit of 0: a gap has its least value there, between the values of a grid. (How
    much it magnifies noise turns there as well, which may hide a fault and accuses nobody.)"""
    rng = np.random.default_rng(3)
    for _ in range(1500):
        repetition = float(rng.choice([0.5, 0.8, 0.9]))
        asked = Penalties(repetition, float(rng.choice([0, 0.5])), float(rng.choice([0, 0.3])))
        logits = rng.normal(rng.uniform(-8, 12), rng.uniform(0.5, 4), 60)
        whole = np.log(np.exp(logits - logits.max()).sum()) + logits.max()
        chosen = int(np.argsort(-logits)[rng.integers(0, 60 if rng.random() < 0.5 else 4)])
        ids = np.array([[*np.argsort(-logits)[:8], chosen]])
        prompt = rng.integers(0, 60, 5)
        known = whole - rng.uniform(0, 15), whole + rng.uniform(0, 15)
        found = token_gaps(
            TopLogprobs(ids, logits[ids] - whole), np.array([chosen]), Penalised(asked, prompt, logit_range=known)
        )
        factor = np.where(np.isin(np.arange(60), prompt), np.where(logits > 0, 1 / repetition, repetition), 1.0)
        true = logits * factor
        gap = float(true.max() - true[chosen])
        assert found.gap[0] <= gap + 1e-6
        assert gap * repetition <= found.most[0] + 1e-6


def test_a_repetition_penalty_without_prompts_is_not_computed() -> None:
    """It moves the tokens of a prompt as well: 20 may stand there, and lie below 7 for that."""

    def verdict(prompt: tuple[int, ...]) -> Verdict:
        arms = [
            capture(
                name,
                *(completion(ids if at == 0 else [20, 22, 25], f"p{at}", prompt=prompt) for at in range(8)),
                repetition_penalty=1.2,
                max_tokens=3,
            )
            for name, ids in (("cpu/base", [20, 22, 25]), ("cpu/mtp", [7, 23, 26]))
        ]
        best = np.array([[20, 7, 9], [22, 23, 9], [25, 26, 9]])
        top = TopLogprobs(best, np.tile([-0.1, -3.0, -6.0], (3, 1)))
        return compare(*arms, {ScoreKey(arm.header.arm, *one.key): top for arm in arms for one in arm}).verdict

    assert verdict(()) is Verdict.INCONCLUSIVE
    assert verdict((1, 2)) is Verdict.DIVERGED
