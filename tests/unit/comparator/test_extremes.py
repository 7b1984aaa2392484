"""Extreme requests: on clean arms nobody is accused, and faults are no PASS."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captures import TEXT, VOCABULARY, capture, completion, header
from worlds import BASE, FLAT, PEAKED, Shape, Truth, World, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Trial, judge
from worlds.world import WORDS

from parity.comparator import CompareOptions, compare
from parity.comparator.reference.drawn_lists import listed_width
from parity.records import RUN, Capture, Completion, Kind, ScoreKey, TopLogprobs, Verdict

FORCED: tuple[Mapping[str, Any], ...] = (
    {"temperature": 1.0, "logit_bias": {"7": 100.0}},
    {"temperature": 1.0, "allowed_token_ids": [4]},
    {"temperature": 2.0},
    {},
)
"""Requests of which some leave no choice, so that all their samples are the same."""


@pytest.mark.parametrize("view", ["scored", "lists, unscored", "no own logprobs"])
@pytest.mark.parametrize(
    ("shape", "seed", "asked", "own"),
    [
        (PEAKED, 2, {"temperature": 1e-5}, ()),
        (PEAKED, 1, {"temperature": 0.01}, ()),
        (PEAKED, 1, {"temperature": 3.0}, ()),
        (FLAT, 3, {"temperature": 5.0}, ()),
        (FLAT, 10, {"n": 3}, FORCED),
    ],
)
def test_nobody_is_accused(
    shape: Shape, seed: int, asked: Mapping[str, Any], own: tuple[Mapping[str, Any], ...], view: str
) -> None:
    world = World(seed, shape)
    requests = world.requests(48, own=own)
    arms = [world.run(requests, arm, max_tokens=64, logprobs=5, **asked).capture for arm in (BASE, speculating(2))]
    options = CompareOptions(detokenize=WORDS)
    trial = Trial("", seed, arms[0], arms[1], world.score(*arms), Truth(), options)
    for one in (trial, replace(trial, baseline=arms[1], candidate=arms[0])):
        result = judge(VIEWS[view](one)).result
        assert not result.corrupt
        assert result.verdict is not Verdict.DIVERGED


EXTREME: Mapping[str, Mapping[str, Any]] = {
    "one token": {"max_tokens": 1},
    "one token, drawn": {"max_tokens": 1, "temperature": 1.0},
    "nearly greedy": {"temperature": 0.02},
    "cut off": {"temperature": 1.0, "top_p": 0.01},
    "biased away": {"logit_bias": {str(token): -100.0 for token in range(1, 60)}},
    "eight samples": {"n": 8},
    "three rounds": {"rounds": 3},
}


def extreme(name: str, requests: int = 24) -> tuple[World, Trial]:
    """Clean arms that were asked so."""
    world = World(21, FLAT)
    asked = {"max_tokens": 32, "logprobs": 5, **EXTREME[name]}
    arms = [world.run(world.requests(requests), arm, **asked).capture for arm in (BASE, speculating(2))]
    options = CompareOptions(detokenize=WORDS)
    return world, Trial("", 21, arms[0], arms[1], world.score(*arms), Truth(), options)


@pytest.mark.parametrize("name", EXTREME)
def test_completions_in_any_order_and_of_large_ids_are_no_fault(name: str) -> None:
    _, trial = extreme(name)
    keys = list(trial.candidate.completions)
    random.Random(0).shuffle(keys)
    mixed = replace(trial.candidate, completions={key: trial.candidate.completions[key] for key in keys})
    for one in (replace(trial, candidate=mixed), _of_large_ids(trial)):
        for view in ("scored", "lists, unscored", "nothing"):
            result = judge(VIEWS[view](one)).result
            assert not result.corrupt
            assert result.verdict is not Verdict.DIVERGED


def _of_large_ids(trial: Trial) -> Trial:
    """All ids as near to 2 ** 31 as they can be."""
    more = 2**31 - 1 - 512

    def lists(top: TopLogprobs | None) -> TopLogprobs | None:
        return None if top is None else replace(top, ids=np.where(top.ids < 0, top.ids, top.ids + more))

    def moved(one: Completion) -> Completion:
        prompt, tokens = one.prompt_token_ids + more, one.token_ids + more
        return replace(one, prompt_token_ids=prompt, token_ids=tokens, logprobs=lists(one.logprobs), text=None)

    def arm(one: Capture) -> Capture:
        said = dict(one.header.sampling)
        if bias := EXTREME["biased away"]["logit_bias"] if "logit_bias" in said else None:
            said["logit_bias"] = {str(int(token) + more): value for token, value in bias.items()}
        ends = tuple(token + more for token in one.header.eos_token_ids or ())
        header = replace(one.header, vocab_size=2**31, eos_token_ids=ends, sampling=said)
        return replace(one, header=header, completions={key: moved(row) for key, row in one.completions.items()})

    scores = {key: made for key, top in trial.scores.items() if (made := lists(top)) is not None}
    sides = arm(trial.baseline), arm(trial.candidate)
    return replace(trial, baseline=sides[0], candidate=sides[1], scores=scores, options=CompareOptions())


@pytest.mark.parametrize("name", EXTREME)
def test_missing_completions_accuse_no_other(name: str) -> None:
    _, trial = extreme(name)
    gone = set(list(trial.candidate.completions)[::5])
    kept = {key: one for key, one in trial.candidate.completions.items() if key not in gone}
    found = judge(replace(trial, candidate=replace(trial.candidate, completions=kept))).result
    assert {(one.key, one.kind) for one in found.corrupt} == {(key, Kind.MISSING_COMPLETION) for key in gone}


@pytest.mark.parametrize("name", EXTREME)
def test_answers_of_others_are_no_pass(name: str) -> None:
    """Every fifth completion is that of the request after it."""
    world, trial = extreme(name)
    rows = dict(trial.candidate.completions)
    requests = sorted({key.request for key in rows})
    after = dict(zip(requests, [*requests[1:], requests[0]], strict=True))
    hit = {
        key
        for key in list(rows)[::5]
        if rows[key].token_ids.tolist() != rows[key._replace(request=after[key.request])].token_ids.tolist()
    }
    assert hit
    for key in hit:
        other = trial.candidate.completions[key._replace(request=after[key.request])]
        rows[key] = replace(other, key=key, prompt_token_ids=rows[key].prompt_token_ids, logprobs=None)
    wrong = replace(trial.candidate, completions=rows)
    found = judge(replace(trial, candidate=wrong, scores=world.score(trial.baseline, wrong))).result
    assert found.verdict is not Verdict.PASS
    assert {one.key for one in found.corrupt if one.request != RUN and one.kind is not Kind.NONDETERMINISM} <= hit


def test_lists_of_no_token_are_no_lists() -> None:
    assert listed_width([TopLogprobs(np.empty((0, 5), dtype=np.int64), np.empty((0, 5)))], [np.arange(0)]) == 0


@pytest.mark.parametrize("scored", [False, True])
def test_answers_without_tokens_are_compared(scored: bool) -> None:
    """Drawn, with lists that are as empty as they are."""
    nothing = TopLogprobs.from_json([])
    rows = [completion([], f"p{n}", sample=s, finish="stop", logprobs=nothing) for n in range(4) for s in range(2)]
    arms = [capture(name, *rows, temperature=0.8, n=2) for name in ("cpu/base", "cpu/other")]
    known = {ScoreKey(arm.header.arm, *key): nothing for arm in arms for key in arm.completions} if scored else None
    result = compare(*arms, known)
    assert result.corrupt == []


@pytest.mark.parametrize(("size", "said"), [(1000, "outside the vocabulary of 1000"), (None, "of no vocabulary")])
def test_what_is_no_token_id_where_nobody_names_the_vocabulary(size: int | None, said: str) -> None:
    arms = [
        capture(header(arm, vocab_size=size), completion(tokens))
        for arm, tokens in (("cpu/base", TEXT), ("cpu/x", (-1, *TEXT[1:])))
    ]
    (found,) = compare(*arms).corrupt
    assert (found.kind, found.position) == (Kind.INVALID_TOKEN, 0)
    assert said in str(found.evidence.why)


@pytest.mark.parametrize("temperature", [1e-300, 5e-324])
def test_a_temperature_next_to_nothing_is_compared(temperature: float) -> None:
    """vLLM takes 0.01 for it; its square is no number that a float holds."""
    arms = [capture(name, *(completion(TEXT, f"p{n}") for n in range(8)), temperature=temperature) for name in "ab"]
    result = compare(*arms)
    assert not result.corrupt


END = VOCABULARY + 2
"""A token that was added to the tokenizer."""


@pytest.mark.parametrize("shown_by", ["ends", "prompts", "baseline", "nothing"])
def test_tokens_that_vocab_size_leaves_out_are_no_fault(shown_by: str) -> None:
    prompt = (1, END, 2) if shown_by == "prompts" else (1, 2)
    said = [completion([100 + n, END, 200 + n], f"p{n}", finish="stop", prompt=prompt) for n in range(4)]
    base, other = capture("own/one", *said), capture("own/two", *said)
    if shown_by == "ends":
        base, other = (replace(one, header=replace(one.header, eos_token_ids=(END,))) for one in (base, other))
    if shown_by in ("nothing", "prompts", "ends"):
        base = base.but({one.key: replace(one, token_ids=one.token_ids % END) for one in said})
    result = compare(base, other)
    assert [one.kind for one in result.corrupt if one.kind is Kind.INVALID_TOKEN] == (
        [Kind.INVALID_TOKEN] * 4 if shown_by == "nothing" else []
    )
    assert ("inputs.more_ids" in [one.id for one in result.notes]) is (shown_by != "nothing")
