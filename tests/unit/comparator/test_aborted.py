"""Completions that their client aborted while they ran: where one of them ends, nobody chose to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from captures import TEXT, capture, completion, score, texts

from parity.comparator import compare
from parity.records import Completion, ScoreKey, Verdict


def cut(one: Completion, tokens: int) -> Completion:
    return replace(one, token_ids=one.token_ids[:tokens], finish_reason="abort", aborted=True)


def test_an_end_that_nobody_chose_is_no_turned_choice() -> None:
    rows = [completion(TEXT, f"p{number}") for number in range(8)]
    aborted_rows = [cut(one, 10) if number % 2 else one for number, one in enumerate(rows)]
    for arms in ((rows, aborted_rows), (aborted_rows, rows)):
        result = compare(capture("cpu/base", *arms[0]), capture("cpu/mtp", *arms[1]))
        assert result.verdict is Verdict.PASS
        assert result.stats.moved
        assert result.stats.moved.turned == 0
        assert result.stats.moved.tokens == 4 * len(TEXT) + 4 * 10


def test_a_choice_that_was_turned_before_the_end_counts() -> None:
    """What the longer one says after the abort is judged by its score."""
    other = (*TEXT[:20], 777, *TEXT[21:])
    base = capture("cpu/base", cut(completion(TEXT), 10))
    made = capture("cpu/mtp", completion(other))
    result = compare(base, made, {ScoreKey("cpu/mtp", "p0", 0, 0): score(other, {20: 0.1})})
    assert result.stats.moved
    assert (result.stats.moved.turned, result.stats.moved.tokens) == (1, len(TEXT))


def test_rounds_in_which_clients_abort_are_no_change_of_the_engine() -> None:
    rng = np.random.default_rng(7)
    rows = [completion(TEXT, f"p{number}", round=round_) for round_ in range(150) for number in range(8)]
    late = [cut(one, 5) if one.key.round >= 120 and rng.random() < 0.9 else one for one in rows]
    result = compare(capture("cpu/base", *rows), capture("cpu/mtp", *late))
    assert result.verdict is Verdict.PASS
    assert isinstance(result.stats.over_rounds, dict)
    assert not any(one.changed for one in result.stats.over_rounds.values())


def test_equal_samples_are_no_copies_beside_a_baseline_whose_samples_were_aborted() -> None:
    """Penalties leave no chance to reckon with; the baseline's samples would be equal, had they run to their end."""
    rows = [completion(TEXT[:40], f"p{number}", sample=sample) for number in range(6) for sample in range(3)]
    short = [cut(one, 25 + 3 * one.key.sample) if one.key.request in {"p0", "p1", "p2"} else one for one in rows]
    asked = {"temperature": 0.5, "presence_penalty": 0.5, "max_tokens": 40, "n": 3}
    base, made = capture("cpu/base", *short, **asked), capture("cpu/mtp", *rows, **asked)
    assert not compare(base, made).corrupt


def test_drawn_completions_of_no_token_are_compared() -> None:
    """Found by simulation: aborted before their first token, with only some tokens allowed."""
    rng = np.random.default_rng(5)
    rows = [completion(rng.choice(TEXT, 20), f"p{number}", top_p=0.9) for number in range(6)]
    rows[2] = cut(rows[2], 0)
    asked = {"temperature": 1.0, "allowed_token_ids": [*TEXT], "max_tokens": 20}
    arms = [capture(name, *rows, **asked) for name in ("cpu/base", "cpu/mtp")]
    scores = {ScoreKey(arm.header.arm, *one.key): score(one.token_ids.tolist()) for arm in arms for one in arm}
    assert compare(*arms, scores).verdict is not Verdict.DIVERGED


def test_a_baseline_that_was_aborted_did_not_end_where_it_should_not() -> None:
    """Speculation hands out several tokens a step: the same abort leaves such an arm a token or two more."""
    rows = [completion(TEXT, f"p{number}") for number in range(8)]
    base, made = [cut(one, 10) for one in rows], [cut(one, 12) for one in rows]
    scores = {ScoreKey("cpu/mtp", *one.key): score(one.token_ids.tolist()) for one in made}
    result = compare(capture("cpu/base", *base), capture("cpu/mtp", *made), scores)
    assert result.verdict is Verdict.PASS
    assert not [one for one in texts(result.reasons) if "ends where it should not" in one]
