"""Samplers that weigh a part of the vocabulary wrongly: each token is likely enough, too many of some come."""

from __future__ import annotations

import numpy as np
import pytest
from captures import capture, completion

from parity.comparator import Comparison, compare
from parity.records import Capture, Kind, RunEvidence, ScoreKey, Scores, TopLogprobs

VOCABULARY, ROWS, LENGTH, LISTED = 512, 48, 64, 20


def arm(
    name: str, seed: int, weigh: np.ndarray | None = None, *, rounds: int = 1, copies: bool = False, **sampling: float
) -> tuple[Capture, Scores]:
    """Completions of one model, whose drawn tokens are weighed anew; scores are the model's, with rounding. `copies`:
    each round draws by the same numbers."""
    model = np.random.default_rng(1)
    logits = np.sort(model.gumbel(size=(ROWS, LENGTH, LISTED)), axis=2)[:, :, ::-1] * 1.5
    ids = np.stack([[model.permutation(VOCABULARY)[:LISTED] for _ in range(LENGTH)] for _ in range(ROWS)])
    rows, scores = [], {}
    for round_ in range(rounds):
        rng = np.random.default_rng(seed if copies else seed + 1000 * round_)
        for row in range(ROWS):
            logs = logits[row] - np.log(np.exp(logits[row]).sum(1, keepdims=True))
            drawn = logs + (0 if weigh is None else np.log(weigh[ids[row]])) + rng.gumbel(size=logs.shape)
            tokens = ids[row][np.arange(LENGTH), drawn.argmax(1)]
            one = completion(tokens, f"p{row}", round=round_, prompt=[1, 2, row])
            rows.append(one)
            noisy = logs + 0.02 * rng.normal(size=logs.shape)
            noisy -= np.log(np.exp(noisy).sum(1, keepdims=True)) + 0.01  # as if a hundredth were not listed
            scores[ScoreKey(name, *one.key)] = TopLogprobs(ids[row], noisy)
    asked = {"temperature": 1.0, "max_tokens": LENGTH, **sampling}
    return capture(name, *rows, vocab_size=VOCABULARY, **asked), scores


def weights(which: np.ndarray, times: float) -> np.ndarray:
    return np.where(which, times, 1.0)


IDS = np.arange(VOCABULARY)
LEANS = {
    "every second": (IDS % 2 == 0, 2.0, "divided by 2"),
    "a shard": (IDS * 4 // VOCABULARY == 2, 0.4, "shard 3 of 4"),
}


def leaning(result: Comparison) -> list[str]:
    found = (one for one in result.corrupt if isinstance(one.evidence, RunEvidence) and one.evidence.test == "leaning")
    return [str(one.evidence.why) for one in found if one.kind is Kind.UNJUSTIFIED]


@pytest.mark.parametrize("name", LEANS)
def test_a_sampler_that_leans_to_some_ids_is_found(name: str) -> None:
    which, times, said = LEANS[name]
    baseline, scores = arm("cpu/base", 11)
    candidate, more = arm("cpu/mtp", 12, weights(which, times))
    (why,) = leaning(compare(baseline, candidate, {**scores, **more}))
    assert said in why


@pytest.mark.parametrize("name", LEANS)
def test_a_baseline_that_leans_accuses_nobody_of_it(name: str) -> None:
    which, times, _ = LEANS[name]
    baseline, scores = arm("cpu/base", 11, weights(which, times))
    for lean in (None, weights(which, times)):
        candidate, more = arm("cpu/mtp", 12, lean)
        assert not leaning(compare(baseline, candidate, {**scores, **more}))


@pytest.mark.parametrize("seed", range(4))
def test_clean_arms_do_not_lean(seed: int) -> None:
    """Nor do ten rounds that say the same: they are one."""
    baseline, scores = arm("cpu/base", 100 + seed)
    candidate, more = arm("cpu/mtp", 200 + seed, rounds=10 if seed == 0 else 1, copies=True)
    assert not leaning(compare(baseline, candidate, {**scores, **more}))


def test_where_more_than_the_temperature_decided_nothing_is_said() -> None:
    baseline, scores = arm("cpu/base", 11, top_p=0.9)
    candidate, more = arm("cpu/mtp", 12, weights(*LEANS["every second"][:2]), top_p=0.9)
    assert not leaning(compare(baseline, candidate, {**scores, **more}))
