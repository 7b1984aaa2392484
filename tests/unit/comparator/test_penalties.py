"""Gaps under penalties against a model that has the logits, and what of them a short list still says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import planted_set
import pytest
from captures import capture, completion, scores, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparator import Comparison, compare
from parity.comparator.reference.gaps import gap_instead, token_gaps
from parity.comparator.reference.penalties import Penalised, Penalties
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.surprisal import shows_penalties, tail_logs
from parity.records import RUN, Capture, Completion, Header, Key, Kind, ScoreKey, TopLogprobs, Verdict

VOCABULARY = 48
PROMPT = np.array([1, 2, 3, 5, 8, 13])


@dataclass(frozen=True)
class Model:
    """Logits by the last two tokens, as bf16 kernels would give them but for the rounding."""

    seed: int = 0
    centre: float = 9.0

    def logits(self, before: list[int]) -> np.ndarray:
        seed = hash((self.seed, *before[-2:])) % 2**32
        drawn = np.random.default_rng(seed)
        return np.asarray(drawn.normal(self.centre, 1.5, VOCABULARY) + drawn.normal(0, 0.5))


def penalised(logits: np.ndarray, prompt: list[int], out: list[int], asked: Penalties) -> np.ndarray:
    """Token by token, as vLLM's `apply_penalties` says."""
    found = logits.copy()
    for token, added in asked.bias:
        found[token] += added
    counted = out[: len(out) - asked.late_by] if asked.late_by else out
    for token in range(len(found)):
        if token in counted or (token in prompt and not asked.skips_prompt):
            found[token] = found[token] / asked.repetition if found[token] > 0 else found[token] * asked.repetition
        times = counted.count(token) + (prompt.count(token) if asked.counts_prompt else 0)
        found[token] -= asked.frequency * times + asked.presence * (times > 0)
    return found


def generate(model: Model, asked: Penalties, length: int, noise: float = 0.0, seed: int = 0) -> list[int]:
    out: list[int] = []
    drawn = np.random.default_rng(seed)
    for _ in range(length):
        logits = model.logits([*PROMPT.tolist(), *out]) + drawn.normal(0, noise, VOCABULARY)
        out.append(int(penalised(logits, PROMPT.tolist(), out, asked).argmax()))
    return out


def score(model: Model, out: list[int], top: int, *, recorded: bool = True) -> TopLogprobs:
    """The best `top` tokens and, where it is not one of them, the chosen one."""
    entries, sums = [], []
    for position, token in enumerate(out):
        logits = model.logits([*PROMPT.tolist(), *out[:position]])
        sums.append(float(np.log(np.exp(logits).sum())))
        best = np.argsort(-logits)[:top].tolist()
        listed = best if token in best else [token, *best]
        entries.append([[one, float(logits[one]) - sums[-1]] for one in listed])
    found = TopLogprobs.from_json(entries)
    return replace(found, logsumexp=np.array(sums)) if recorded else found


def true_gaps(model: Model, out: list[int], asked: Penalties) -> np.ndarray:
    found = []
    for position, token in enumerate(out):
        logits = model.logits([*PROMPT.tolist(), *out[:position]])
        left = penalised(logits, PROMPT.tolist(), out[:position], asked)
        found.append(float(left.max() - left[token]))
    return np.array(found)


asked_for = st.builds(
    Penalties,
    repetition=st.sampled_from([1.0, 1.05, 1.2, 1.5]),
    presence=st.sampled_from([0.0, 0.1, 0.7, 2.0, -0.5]),
    frequency=st.sampled_from([0.0, 0.1, 0.5, 2.0, -0.3]),
    bias=st.sampled_from([(), ((4, 2.0), (7, -3.0))]),
    counts_prompt=st.booleans(),
    skips_prompt=st.booleans(),
    late_by=st.sampled_from([0, 0, 1]),
)
streams = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=24)


@settings(max_examples=80, deadline=None)
@given(asked_for, streams, st.integers(0, 50))
def test_with_all_tokens_listed_the_gap_is_the_models(asked: Penalties, out: list[int], seed: int) -> None:
    model = Model(seed)
    found = token_gaps(score(model, out, VOCABULARY), np.array(out), Penalised(asked, PROMPT))
    assert found.gap == pytest.approx(true_gaps(model, out, asked), abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(asked_for, streams, st.integers(0, 50), st.integers(1, 8), st.booleans())
def test_with_a_short_list_the_gap_lies_between_its_bounds(
    asked: Penalties, out: list[int], seed: int, top: int, recorded: bool
) -> None:
    model = Model(seed)
    reach = Penalised(asked, PROMPT, (8.0, 18.0))  # the model's own lie between
    found = token_gaps(score(model, out, top, recorded=recorded), np.array(out), reach)
    true = true_gaps(model, out, asked)
    unit = max(1.0, asked.repetition)  # a gap of logits that a penalty magnifies is divided by as much
    assert (found.gap <= true + 1e-6).all()
    assert (true <= found.most * unit + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(asked_for.filter(lambda one: not one.late_by), streams, st.integers(0, 50), st.integers(0, VOCABULARY - 1))
def test_the_gap_of_another_token_is_that_of_the_stream_with_it(
    asked: Penalties, out: list[int], seed: int, other: int
) -> None:
    model, at = Model(seed), len(out) - 1
    found = gap_instead(score(model, out, VOCABULARY), at, other, np.array(out), Penalised(asked, PROMPT), own=out[at])
    assert found is not None
    assert found[0] == pytest.approx(true_gaps(model, [*out[:at], other], asked)[at], abs=1e-9)


def test_a_list_that_may_lack_the_best_token_says_how_many_it_needs() -> None:
    entries = [[[7, -0.1], [8, -2.9]], [[8, -0.7], [7, -0.9]]]
    found = token_gaps(
        TopLogprobs.from_json(entries), np.array([7, 8]), Penalised(Penalties(presence=2.0), np.array([7]))
    )
    assert found.undecided(0.25).tolist() == [False, False]  # the rest has less than what the penalty leaves
    found = token_gaps(
        TopLogprobs.from_json([*entries, [[8, -1.1], [7, -1.2]]]),
        np.array([7, 8, 8]),
        Penalised(Penalties(presence=2.0), np.array([7])),
    )
    assert found.undecided(0.25).tolist() == [False, False, True]
    assert found.wanted is not None
    left = 1 - np.exp(-1.1) - np.exp(-1.2)
    assert found.wanted[2] == np.ceil(2 + left * np.exp(3.1))


def test_a_token_that_a_bias_lifts_may_be_far_down_the_list_that_it_needs() -> None:
    """Token 9 is lifted by 6 nats and not listed: above -0.1 by that is whatever has more than -6.1."""
    entries = [[[7, -0.1], [8, -2.9]]]
    asked = Penalised(Penalties(bias=((9, 6.0),)), np.array([7]))
    found = token_gaps(TopLogprobs.from_json(entries), np.array([7]), asked)
    assert found.undecided(0.25).tolist() == [True]
    assert found.wanted is not None
    assert found.wanted[0] == np.ceil(2 + (1 - np.exp(-0.1) - np.exp(-2.9)) * np.exp(6.1))


@pytest.mark.parametrize(("vocabulary", "said"), [(60, "`--score-top 60` makes them"), (32_000, "may not make them")])
def test_no_list_length_is_promised_that_does_not_suffice(vocabulary: int, said: str) -> None:
    tokens = [7] * 8
    rows = completion(tokens, logit_bias={"9": 12.0}), completion([8, *tokens[1:]], logit_bias={"9": 12.0})
    top = TopLogprobs.from_json([[[8, -0.1], [7, -0.2]], *[[[7, -0.1], [8, -2.9]]] * 7])
    arms = [capture(name, one, vocab_size=vocabulary) for name, one in zip(("cpu/base", "cpu/mtp"), rows, strict=True)]
    result = compare(*arms, scores("cpu/mtp", p0=top))
    assert said in texts(result.reasons)[0]


# ---------------------------------------------------------------------------- whole comparisons


NAMES = {"repetition": "repetition_penalty", "presence": "presence_penalty", "frequency": "frequency_penalty"}


def captures(
    made: dict[str, list[list[int]]], asked: Penalties, own: dict[int, Penalties] | None = None
) -> list[Capture]:
    found = []
    for arm, rows in made.items():
        header = Header(arm, "sim", arm.split("/")[1], "hashes", vocab_size=VOCABULARY, sampling=sampling(asked))
        completions = {}
        for row, out in enumerate(rows):
            key = Key(f"p{row}", 0, 0)
            mine = sampling(own[row]) if own is not None and row in own else {}
            completions[key] = Completion(key, PROMPT, np.array(out), None, "length", None, sampling=mine)
        found.append(Capture(header, completions, {}, {}))
    return found


def sampling(asked: Penalties) -> dict[str, Any]:
    own = {"logit_bias": {str(token): added for token, added in asked.bias}} if asked.bias else {}
    return {"temperature": 0.0, "max_tokens": 64, **{name: getattr(asked, one) for one, name in NAMES.items()}, **own}


def named(asked: Penalties) -> str:
    return "+".join(
        f"{one}={getattr(asked, one):g}" for one in NAMES if getattr(asked, one) != getattr(Penalties(), one)
    )


def judged(asked: Penalties, did: Penalties, *, recorded: bool = True, rows: int = 6, top: int = 20) -> Comparison:
    models = [Model(seed) for seed in range(rows)]
    baseline = [generate(model, asked, 64, 0.02, seed) for seed, model in enumerate(models)]
    candidate = [generate(model, did, 64, 0.02, seed + 99) for seed, model in enumerate(models)]
    a, b = captures({"sim/base": baseline, "sim/mtp": candidate}, asked)
    scores = {
        ScoreKey(arm.header.arm, *key): score(models[row], one.token_ids.tolist(), top, recorded=recorded)
        for arm in (a, b)
        for row, (key, one) in enumerate(arm.completions.items())
    }
    return compare(a, b, scores)


LARGE = [
    Penalties(repetition=1.1), Penalties(repetition=1.2), Penalties(repetition=1.5), Penalties(presence=0.5),
    Penalties(presence=2.0), Penalties(frequency=0.5), Penalties(repetition=1.1, presence=0.3, frequency=0.2),
    Penalties(presence=-0.5),
]  # fmt: skip
SMALL = [Penalties(repetition=1.03), Penalties(repetition=1.05), Penalties(presence=0.2), Penalties(frequency=0.1)]
RECORDED = pytest.mark.parametrize("recorded", [True, False], ids=["logits", "logprobs"])


@pytest.mark.parametrize("asked", [*LARGE, *SMALL], ids=named)
@RECORDED
def test_arms_that_keep_to_their_penalties_are_not_accused(asked: Penalties, recorded: bool) -> None:
    assert not judged(asked, asked, recorded=recorded).corrupt


@pytest.mark.parametrize("asked", LARGE, ids=named)
@RECORDED
def test_penalties_that_were_ignored_are_found_and_named(asked: Penalties, recorded: bool) -> None:
    found = judged(asked, Penalties(), recorded=recorded)
    assert found.verdict is Verdict.DIVERGED
    assert "penalties.ignored" in {one.evidence.why.id for one in found.corrupt if one.kind is Kind.UNJUSTIFIED}


def test_a_bias_that_was_ignored_is_named_as_one() -> None:
    asked = Penalties(bias=tuple((token, -4.0) for token in range(3, 40)))
    found = judged(asked, Penalties(), top=40)
    assert "penalties.bias_ignored" in {one.evidence.why.id for one in found.corrupt if one.kind is Kind.UNJUSTIFIED}
    assert not judged(asked, asked, top=40).corrupt


@pytest.mark.parametrize("asked", SMALL, ids=named)
def test_penalties_too_small_for_any_token_are_found_over_the_run(asked: Penalties) -> None:
    found = judged(asked, Penalties(), rows=24)
    assert "penalties.run" in {one.evidence.why.id for one in found.corrupt}
    of_run = Counter(str(one.kind) for one in found.corrupt if one.request == RUN)
    assert found.stats.of_run == of_run
    assert sum(found.stats.first_faults.values()) == found.stats.corrupt + of_run.total()


@pytest.mark.parametrize(
    ("asked", "did", "why"),
    [
        (Penalties(frequency=1.0), Penalties(frequency=1.0, late_by=1), "penalties.late"),
        (Penalties(repetition=1.5), Penalties(repetition=1.5, skips_prompt=True), "penalties.prompt_skipped"),
        (Penalties(presence=2.0), Penalties(presence=2.0, counts_prompt=True), "penalties.prompt_counted"),
    ],
)
def test_penalties_applied_in_another_way_are_named(asked: Penalties, did: Penalties, why: str) -> None:
    found = judged(asked, did, rows=12)
    said = {one.evidence.why.id for one in found.corrupt}
    assert {one for one in said if one.startswith("penalties.")} - {"penalties.run"} == {why}


def test_the_range_of_the_logits_is_learnt_from_the_baseline() -> None:
    asked = Penalties(repetition=1.05)
    models = [Model(seed, centre=20.0) for seed in range(40)]
    rows = [generate(model, asked, 16, 0.02) for model in models]
    a, b = captures({"sim/base": rows, "sim/mtp": rows}, asked)
    keys = {ScoreKey("sim/base", f"p{row}", 0, 0): row for row in range(40)}
    scores = {key: score(models[row], rows[row], 20, recorded=False) for key, row in keys.items()}
    low, high = Reference(a, b, scores).shaping(next(iter(b))).logit_range
    sums = np.concatenate([score(models[row], rows[row], 5).logsumexp for row in range(40)])  # type: ignore[misc]
    assert low < np.percentile(sums, 1)
    assert np.percentile(sums, 99) < high
    assert high - low < 25


# ---------------------------------------------------------------------------- drawn at random


def drawn(model: Model, asked: Penalties, length: int, seed: int) -> list[int]:
    rng, out = np.random.default_rng(seed), []
    for _ in range(length):
        left = penalised(model.logits([*PROMPT.tolist(), *out]), PROMPT.tolist(), out, asked)
        weights = np.exp(left - left.max())
        out.append(int(rng.choice(VOCABULARY, p=weights / weights.sum())))
    return out


@pytest.mark.parametrize("asked", [Penalties(presence=2.0, frequency=1.0), Penalties(repetition=1.5)], ids=named)
def test_what_penalties_leave_of_a_distribution_is_what_tokens_are_drawn_from(asked: Penalties) -> None:
    logs = []
    for seed in range(40):
        out = drawn(Model(seed), asked, 24, seed)
        tokens = np.array(out)
        logs.append(tail_logs(score(Model(seed), out, 20), tokens, 1.0, VOCABULARY, Penalised(asked, PROMPT)))
    known = np.exp(np.concatenate(logs))
    for level in (0.01, 0.05, 0.2, 0.5):  # p-values, conservative
        assert (known <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / len(known))
    out = [7] * 24  # no sampler repeats a token under these
    unlikely = tail_logs(score(Model(0), out, 20), np.array(out), 1.0, VOCABULARY, Penalised(asked, PROMPT))
    raw = tail_logs(score(Model(0), out, 20), np.array(out), 1.0, VOCABULARY)
    assert unlikely.sum() < raw.sum()


def test_lists_without_logits_do_not_show_a_repetition_penalty() -> None:
    top = score(Model(), [1, 2, 3], 5, recorded=False)
    assert not shows_penalties(top, Penalised(Penalties(repetition=1.2), PROMPT))
    assert shows_penalties(top, Penalised(Penalties(presence=1.0), PROMPT))
    with pytest.raises(ValueError, match="do not show"):
        tail_logs(top, np.array([1, 2, 3]), 1.0, VOCABULARY, Penalised(Penalties(repetition=1.2), PROMPT))


# ---------------------------------------------------------------------------- a real engine


def test_a_real_engine_that_ignored_its_penalty_is_found_by_lists_of_two() -> None:
    """World A are the same prompts without a penalty, world B with a repetition penalty of 1.2 (planted_set.py)."""
    baseline, asked, _ = planted_set.clean("B")
    _, ignored, scores = planted_set.clean("A")
    limit = int(asked.header.sampling["max_tokens"])
    cut = {key: replace(one, token_ids=one.token_ids[:limit]) for key, one in ignored.completions.items()}
    tops = {key: TopLogprobs(top.ids[:limit], top.values[:limit]) for key, top in scores.items()}
    found = compare(baseline, replace(asked, completions=cut), tops)
    assert found.verdict is Verdict.DIVERGED
    reasons = [one.evidence.why.id for one in found.corrupt]
    assert "penalties.run" in reasons
    assert reasons.count("penalties.ignored") > len(cut) / 3
