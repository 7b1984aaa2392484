"""Clean arms in odd situations: whatever a run asks for, nobody is accused of what an engine does in good health.

Every pair is made by the small engine of tests/worlds in two orders of summation, so that near-ties fall either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from worlds import BASE, FLAT, PEAKED, SURE, Shape, World, speculating
from worlds.trials import Trial, crossed, scored
from worlds.world import WORDS, Asked, Truth

from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Capture, Completion, Key, ScoreKey, Scores, TopLogprobs, Verdict

REQUESTS = 24


@dataclass(frozen=True, slots=True)
class Odd:
    """What is asked, and what is done to both captures afterwards."""

    sampling: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[Mapping[str, Any], ...] = ()
    shape: Shape = FLAT
    prompts: Callable[[World], Sequence[Asked]] | None = None
    lengths: tuple[int, int] = (6, 24)
    requests: int = REQUESTS
    rounds: int = 1
    logprobs: int | None = 0
    mode: str = "all"
    change: Callable[[Capture, Capture, Scores], tuple[Capture, Capture, Scores]] | None = None


def each(arm: Capture, change: Callable[[int, Completion], Completion]) -> Capture:
    return replace(arm, completions={key: change(n, one) for n, (key, one) in enumerate(arm.completions.items())})


def cut(one: Completion, length: int) -> Completion:
    lists = None if one.logprobs is None else one.logprobs.part(stop=length)
    return replace(one, token_ids=one.token_ids[:length], logprobs=lists)


def abort_some(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """Every fifth row of the candidate and every seventh of the baseline, in the middle."""

    def aborted(every: int) -> Callable[[int, Completion], Completion]:
        def change(number: int, one: Completion) -> Completion:
            if number % every:
                return one
            return replace(cut(one, len(one.token_ids) // 2), aborted=True, finish_reason="abort")

        return change

    arms = each(baseline, aborted(7)), each(candidate, aborted(5))
    sizes = {(arm.header.arm, *key): len(one.token_ids) for arm in arms for key, one in arm.completions.items()}
    return *arms, {key: top.part(stop=sizes[tuple(key)]) for key, top in scores.items()}


def shuffle(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    keys = list(candidate.completions)
    order = np.random.default_rng(3).permutation(len(keys))
    return baseline, replace(candidate, completions={keys[n]: candidate.completions[keys[n]] for n in order}), scores


def empty_some(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """Every fourth row says nothing but its end, in both arms; the EOS stands in the tokens."""

    def change(number: int, one: Completion) -> Completion:
        if number % 4:
            return one
        lists = None if one.logprobs is None else TopLogprobs(np.array([[0]]), np.array([[-0.01]]))
        return replace(one, token_ids=np.array([0], dtype=np.int64), finish_reason="stop", logprobs=lists)

    arms = each(baseline, change), each(candidate, change)
    short = {(arm.header.arm, *key) for arm in arms for key, one in arm.completions.items() if len(one.token_ids) == 1}
    end = TopLogprobs(np.array([[0, 7]]), np.array([[-0.01, -5.0]]))
    return *arms, {key: end if tuple(key) in short else top for key, top in scores.items()}


def nothing_at_all(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """Every fourth row has no token, in both arms, as servers give it that leave out the EOS."""

    def change(number: int, one: Completion) -> Completion:
        return replace(cut(one, 0), finish_reason="stop", logprobs=None) if number % 4 == 0 else one

    arms = each(baseline, change), each(candidate, change)
    sizes = {(arm.header.arm, *key): len(one.token_ids) for arm in arms for key, one in arm.completions.items()}
    return *arms, {key: top for key, top in scores.items() if sizes[tuple(key)]}


def padded_lists(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """Ids of the padding of the embedding stand at the end of lists."""

    def padded(top: TopLogprobs) -> TopLogprobs:
        ids = np.concatenate([top.ids, np.full((len(top), 1), 600)], axis=1)
        return replace(top, ids=ids, values=np.concatenate([top.values, np.full((len(top), 1), -30.0)], axis=1))

    return baseline, candidate, {key: padded(top) for key, top in scores.items()}


def tied(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """Logprobs in steps of an eighth: many are equal."""

    def coarse(top: TopLogprobs) -> TopLogprobs:
        return replace(top, values=np.minimum((top.values * 8).round() / 8, 0.0))

    def own(number: int, one: Completion) -> Completion:
        return replace(one, logprobs=None if one.logprobs is None else coarse(one.logprobs))

    return each(baseline, own), each(candidate, own), {key: coarse(top) for key, top in scores.items()}


def chosen_twice(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """The chosen token stands in the list a second time, as in vLLM's before 0.9."""
    arms = {arm.header.arm: arm for arm in (baseline, candidate)}

    def twice(key: ScoreKey, top: TopLogprobs) -> TopLogprobs:
        tokens = arms[key.arm].completions[Key(*key[1:])].token_ids[:, None]
        own = np.where(top.ids == tokens, top.values, -np.inf).max(axis=1, keepdims=True)
        return replace(
            top, ids=np.concatenate([tokens, top.ids], axis=1), values=np.concatenate([own, top.values], axis=1)
        )

    return baseline, candidate, {key: twice(key, top) for key, top in scores.items()}


def without_scores(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    return baseline, candidate, {}


def of_candidate_alone(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    return baseline, candidate, {key: top for key, top in scores.items() if key.arm == candidate.header.arm}


def the_same_again(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """The arm against itself, under another name."""
    other = replace(baseline, header=replace(candidate.header, engine=baseline.header.engine), counters={})
    mine = {key._replace(arm=candidate.header.arm): top for key, top in scores.items() if key.arm == "cuda/base"}
    return baseline, other, {**scores, **mine}


def doubled(world: World) -> list[Asked]:
    """Every prompt is asked twice."""
    asked = world.requests(REQUESTS // 2)
    return [*asked, *(replace(one, id=f"again-{one.id}") for one in asked)]


def one_for_all(world: World) -> list[Asked]:
    """One prompt under many names."""
    (one,) = world.requests(1)
    return [Asked(f"r{n}", one.prompt) for n in range(REQUESTS)]


def one_decimal(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """The candidate's own logprobs are written with one decimal."""

    def own(number: int, one: Completion) -> Completion:
        top = one.logprobs
        return replace(one, logprobs=None if top is None else replace(top, values=top.values.round(1)))

    return baseline, each(candidate, own), scores


def alike(world: World) -> list[Asked]:
    """Prompts that differ in their last token but one."""
    (one,) = world.requests(1, lengths=(40, 41))
    return [Asked(f"r{n}", (*one.prompt[:-2], 20 + n, one.prompt[-1])) for n in range(REQUESTS)]


def few_shot(world: World) -> list[Asked]:
    """A long preamble that all prompts share."""
    (one,) = world.requests(1, lengths=(120, 121))
    return [Asked(each.id, (*one.prompt, *each.prompt)) for each in world.requests(REQUESTS)]


def own_answers(world: World) -> list[Asked]:
    """Prompts that hold what the model says to another one: outputs repeat prompts, their own and others'."""
    asked = world.requests(REQUESTS)
    made = world.run(asked, BASE, max_tokens=32).capture
    said = {key.request: one.token_ids.tolist() for key, one in made.completions.items()}
    return [Asked(f"q{n}", (*one.prompt, *said[one.id][:-1])) for n, one in enumerate(asked)]


def loops(world: World) -> list[Asked]:
    """Prompts that are a loop of a few tokens."""
    return [Asked(f"r{n}", tuple([5 + n, 9, 12 + n % 3] * 20)) for n in range(REQUESTS)]


def one_word(world: World) -> list[Asked]:
    return [Asked(f"r{n}", (1 + n,)) for n in range(REQUESTS)]


T1: dict[str, Any] = {"temperature": 1.0}
ODD: dict[str, Odd] = {
    "n of 4, drawn": Odd({**T1, "n": 4}),
    "n of 4, greedy": Odd({"n": 4}),
    "rounds with aborts": Odd(rounds=3, change=abort_some),
    "rounds with aborts, drawn": Odd(T1, rounds=3, change=abort_some),
    "one token": Odd({"max_tokens": 1}),
    "one token, drawn": Odd({**T1, "max_tokens": 1}),
    "two tokens": Odd({"max_tokens": 2}),
    "prompts that hold answers": Odd(prompts=own_answers),
    "prompts that hold answers, drawn": Odd({"temperature": 0.5}, prompts=own_answers),
    "loops": Odd({"max_tokens": 160, "ignore_eos": True}, shape=SURE, prompts=loops),
    "loops, drawn": Odd({"max_tokens": 160, "ignore_eos": True, "temperature": 0.7}, shape=SURE, prompts=loops),
    "long and sure": Odd({"max_tokens": 400, "ignore_eos": True}, shape=SURE, requests=8),
    "ends ignored": Odd({"ignore_eos": True}, shape=replace(PEAKED, ends=1 / 20)),
    "ends everywhere": Odd(shape=replace(PEAKED, ends=1 / 8)),
    "ends everywhere, drawn": Odd(T1, shape=replace(PEAKED, ends=1 / 8)),
    "stop tokens": Odd({"stop_token_ids": [2, 3, 9, 17, 30, 31]}),
    "stop tokens, drawn": Odd({**T1, "stop_token_ids": [2, 3, 9, 17, 30, 31]}),
    "min_tokens": Odd({"min_tokens": 20}, shape=replace(PEAKED, ends=1 / 8)),
    "min_tokens, drawn": Odd({**T1, "min_tokens": 20}, shape=replace(PEAKED, ends=1 / 8)),
    "limits of their own": Odd(own=tuple({"max_tokens": n} for n in (1, 2, 3, 5, 17, 40))),
    "limits of their own, drawn": Odd(T1, own=tuple({"max_tokens": n} for n in (1, 2, 3, 5, 17, 40))),
    "padding in lists": Odd(change=padded_lists),
    "padding in lists, drawn": Odd({**T1, "top_p": 0.9}, change=padded_lists),
    "ties": Odd(change=tied),
    "ties, drawn": Odd({**T1, "top_k": 8}, change=tied),
    "every prompt twice": Odd(prompts=doubled),
    "every prompt twice, drawn": Odd(T1, prompts=doubled),
    "every prompt twice, no scores": Odd(prompts=doubled, change=without_scores),
    "one prompt for all": Odd(prompts=one_for_all),
    "one prompt for all, penalty": Odd({"presence_penalty": 1.0}, prompts=one_for_all),
    "own logprobs of one decimal": Odd(change=one_decimal),
    "vocabulary of 50": Odd({"temperature": 0.0}, shape=replace(FLAT, vocabulary=50)),
    "prompts alike": Odd(prompts=alike),
    "prompts alike, cold": Odd({"temperature": 0.2}, prompts=alike),
    "prompts alike, no scores": Odd(prompts=alike, change=without_scores),
    "few-shot": Odd(prompts=few_shot),
    "few-shot, drawn": Odd({"temperature": 0.7}, prompts=few_shot),
    "prompts of one token": Odd(prompts=one_word),
    "prompts of one token, drawn": Odd(T1, prompts=one_word),
    "empty answers": Odd(change=empty_some),
    "empty answers, drawn": Odd(T1, change=empty_some),
    "no tokens at all": Odd(change=nothing_at_all),
    "no tokens at all, drawn": Odd(T1, change=nothing_at_all),
    "one request": Odd(requests=1),
    "one request, drawn": Odd({**T1, "n": 2}, requests=1),
    "another order": Odd(change=shuffle),
    "nearly no temperature": Odd({"temperature": 0.02}),
    "hot": Odd({"temperature": 2.0}),
    "hot and cut off": Odd({"temperature": 2.0, "top_p": 0.5, "top_k": 30}),
    "top_k of 1": Odd({**T1, "top_k": 1}),
    "top_k of 2": Odd({**T1, "top_k": 2}),
    "top_k of 20": Odd({**T1, "top_k": 20}),
    "top_k beyond the lists": Odd({**T1, "top_k": 50}),
    "top_p of 0.01": Odd({**T1, "top_p": 0.01}),
    "top_p of 0.5": Odd({**T1, "top_p": 0.5}),
    "top_p, cold": Odd({"temperature": 0.3, "top_p": 0.8}),
    "min_p of 1": Odd({**T1, "min_p": 1.0}),
    "min_p of 0.2": Odd({**T1, "min_p": 0.2}),
    "greedy and drawn": Odd(T1, own=({"temperature": 0.0}, {}, {"top_p": 0.7}, {"temperature": 0.3, "min_p": 0.1})),
    "drawn under penalties": Odd(
        {**T1, "top_p": 0.9}, own=({"presence_penalty": 1.0}, {"repetition_penalty": 1.3}, {})
    ),
    "drawn under a bias": Odd({**T1, "top_p": 0.9, "logit_bias": {"7": 4.0, "8": -100.0}}),
    "drawn from some ids": Odd({**T1, "top_k": 5, "allowed_token_ids": list(range(100))}),
    "bad words": Odd({"bad_ids": [[3], [4], [5, 6], [11]]}),
    "bad words, drawn": Odd({**T1, "bad_ids": [[3], [4], [5, 6], [11]]}),
    "drawn, own lists alone": Odd({**T1, "top_p": 0.9}, logprobs=20, mode="none"),
    "drawn, nothing to judge by": Odd(T1, logprobs=None, mode="none"),
    "drawn, candidate scored alone": Odd({**T1, "top_p": 0.9}, change=of_candidate_alone),
    "chosen token listed twice": Odd(change=chosen_twice),
    "chosen token listed twice, drawn": Odd({**T1, "top_k": 3}, change=chosen_twice),
    "against itself": Odd(change=the_same_again),
    "against itself, drawn": Odd(T1, change=the_same_again),
    "greedy, one list each": Odd(logprobs=1, mode="none"),
    "flat": Odd(shape=replace(FLAT, sure=0.0, open_strength=(0.0, 4.0))),
    "flat, drawn": Odd(T1, shape=replace(FLAT, sure=0.0, open_strength=(0.0, 4.0))),
}


def trial(odd: Odd, seed: int) -> Trial:
    world = World(seed, odd.shape)
    asked = (
        world.requests(odd.requests, lengths=odd.lengths, own=odd.own) if odd.prompts is None else odd.prompts(world)
    )
    same: dict[str, Any] = {"rounds": odd.rounds, "logprobs": odd.logprobs, "max_tokens": 48, **odd.sampling}
    baseline, candidate = (world.run(asked, arm, **same).capture for arm in (BASE, speculating(2)))
    scores = scored(world, baseline, candidate, odd.mode, {})
    if odd.change is not None:
        baseline, candidate, scores = odd.change(baseline, candidate, scores)
    made = Trial("", seed, baseline, candidate, scores, Truth(), CompareOptions(detokenize=WORDS))
    return crossed(world, made) if odd.sampling.get("temperature") and scores else made


def asked(one: Trial) -> Comparison:
    return compare(one.baseline, one.candidate, one.scores, one.options, one.crossed)


@pytest.mark.parametrize("name", ODD)
def test_nobody_is_accused(name: str) -> None:
    result = asked(trial(ODD[name], seed=len(name)))
    assert [(one.kind, str(one.evidence.why)) for one in result.corrupt] == []
    assert result.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
