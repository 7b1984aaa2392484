"""Reasons say what is so: what is missing is named, and no step asks for what is there."""

from __future__ import annotations

import numpy as np
from captures import TEXT, capture, completion, header
from worlds import BASE, FLAT, World, speculating

from parity.comparator import Comparison, compare
from parity.records import Capture, Kind, ScoreKey, Scores, TopLogprobs
from parity.records.next_steps import Step


def ids_of(result: Comparison) -> set[str]:
    return {one.id for one in (*result.reasons, *result.notes)}


def sure_of(*arms: Capture, off: int = 0) -> Scores:
    """Each token is next to certain; another one is, where it is `off`."""

    def entry(token: int) -> list[list[float]]:
        return [[token + off, -0.01], [token, -9.0]] if off else [[token, -0.01]]

    return {
        ScoreKey(arm.header.arm, *one.key): TopLogprobs.from_json([entry(int(token)) for token in one.token_ids])
        for arm in arms
        for one in arm
    }


def rows(name: str, *others: int) -> Capture:
    """Eight of 40 tokens; those at the places `others` are other ones from the twentieth on."""
    made = []
    for n in range(8):
        tokens = np.random.default_rng(n).choice(TEXT, 40)
        if n in others:
            tokens[20:] = np.random.default_rng(100 + n).choice(TEXT, 20)
        made.append(completion(tokens, f"p{n}"))
    return capture(name, *made, max_tokens=40)


def test_too_few_requests_are_named_where_both_arms_are_scored() -> None:
    world = World(1, FLAT)
    asked = world.requests(4, seed=1)
    arms = [world.run(asked, arm, max_tokens=32, temperature=1.0).capture for arm in (BASE, speculating(2))]
    result = compare(*arms, world.score(*arms))
    assert "conclude.too_few_requests" in ids_of(result)
    assert "conclude.likelihood_not_compared" not in ids_of(result)
    half = compare(*arms, world.score(arms[1]))
    assert "conclude.too_few_requests" not in ids_of(half)


def test_rejected_scores_are_not_asked_for_again() -> None:
    base, other = rows("cpu/base"), rows("cpu/mtp", *range(8))
    result = compare(base, other, {**sure_of(base, off=1), **sure_of(other)})
    assert "conclude.unjudged_without_scores" in ids_of(result)
    steps = [one.step for one in result.next_steps if one.settles == "conclude.unjudged_without_scores"]
    assert steps == [Step.REFERENCE]


def test_where_all_rows_are_wrong_from_the_start_no_logprob_is_called_missing() -> None:
    def arm(name: str, shift: int) -> Capture:
        made = []
        for n in range(8):
            tokens = np.random.default_rng(n + shift).choice(TEXT, 24)
            own = TopLogprobs.from_json([[[int(token), -0.01]] for token in tokens])
            made.append(completion(tokens, f"p{n}", logprobs=own))
        return capture(name, *made, engine={"logprobs_mode": "raw_logprobs"}, max_tokens=24)

    base, other = arm("cpu/base", 0), arm("cpu/mtp", 50)
    scores = {**sure_of(base), **sure_of(other, off=1)}
    result = compare(base, other, scores)
    assert {one.position for one in result.corrupt if one.kind is not Kind.LOGPROB_MISMATCH} >= {0}
    said = [str(one) for one in (*result.reasons, *result.notes)]
    assert any("a fault comes before the first token that could be tested" in one for one in said)
    assert not any("no token has a logprob of its own" in one for one in said)


def test_an_end_that_nothing_shows_is_said_to_be_unjudged() -> None:
    """A server that leaves the EOS out: where its text is another one, nothing says whether it should end there."""
    rng = np.random.default_rng(0)
    streams = [rng.choice(TEXT, 60) for _ in range(8)]
    base = capture("cpu/base", *(completion(tokens, f"p{n}") for n, tokens in enumerate(streams)), max_tokens=60)
    ended, known = [], {}
    for n in range(2):
        tokens = [*streams[n][:10], *rng.choice(TEXT, 6 + n)]
        lists = [[[int(token), -0.5], [900, -0.6]] for token in tokens]
        lists[10].append([int(streams[n][10]), -0.55])
        ended.append(completion(tokens, f"p{n}", finish="stop"))
        known[ScoreKey("server", f"p{n}", 0, 0)] = TopLogprobs.from_json(lists)
    served = {"served": {"server": {"dialect": "openai"}, "token_source": "server"}}
    rest = [completion(tokens, f"p{n}") for n, tokens in enumerate(streams)]
    result = compare(base, capture(header("server", extra=served, max_tokens=60), *ended, *rest[2:]), known)
    assert result.stats.near_tie == 2
    assert "conclude.ends_unseen" in ids_of(result)
    whole = compare(base, capture(header("server", extra=served, max_tokens=60), *rest), known)
    assert "conclude.ends_unseen" not in ids_of(whole)
