"""What a clean run says that it could have missed, held to what it does miss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import capture, completion, score, texts
from worlds import BASE, FLAT, PEAKED, Shape, World, speculating

from parity.comparator import Comparison, compare
from parity.records import Capture, ScoreKey, TopLogprobs, Verdict

ROWS = 48


def drawn(shape: Shape, temperature: float) -> tuple[World, Capture, Capture, Comparison]:
    world = World(9, shape)
    asked = world.requests(ROWS, seed=9)
    base, other = (
        world.run(asked, arm, max_tokens=48, temperature=temperature).capture for arm in (BASE, speculating(2))
    )
    return world, base, other, compare(base, other, world.score(base, other))


@pytest.mark.parametrize(
    ("shape", "temperature"), [(FLAT, 0.6), (FLAT, 1.0), (PEAKED, 0.8)], ids=["flat", "hot", "peaked"]
)
def test_random_tokens_are_found_about_as_often_as_is_said(shape: Shape, temperature: float) -> None:
    world, base, other, clean = drawn(shape, temperature)
    assert clean.verdict is Verdict.PASS
    said = {one.fault: one for one in clean.stats.missed}["random_tokens"]
    rng = np.random.default_rng(4)
    faulty = {}
    for key, one in other.completions.items():
        tokens = one.token_ids.copy()
        place = int(rng.integers(0, max(1, len(tokens) - 8)))
        tokens[place : place + 8] = rng.integers(1, shape.vocabulary, size=len(tokens[place : place + 8]))
        faulty[key] = replace(one, token_ids=tokens, logprobs=None)
    damaged = replace(other, completions=faulty)
    result = compare(base, damaged, world.score(base, damaged))
    found = len({one.key for one in result.corrupt} & faulty.keys()) / ROWS
    assert found >= said.seen - 0.2  # real garbage is followed by tokens that do not fit it
    if said.rate is not None:
        assert said.rate == pytest.approx(1 - 0.05 ** (1 / (said.seen * ROWS)))
        assert f"8 random tokens in a row in fewer than {said.rate:.2%}" in texts(clean.reasons)[1]


def test_where_no_draw_is_surprising_a_pass_excludes_little() -> None:
    """A high temperature flattens what is flat already: garbage looks like a draw."""
    _, _, _, clean = drawn(FLAT, 1.5)
    said = {one.fault: one for one in clean.stats.missed}["random_tokens"]
    assert said.seen < 0.2
    assert clean.stats.fault_rate_not_excluded is None or clean.stats.fault_rate_not_excluded > 0.2


def test_after_near_ties_only_what_was_judged_counts() -> None:
    stream = list(range(100, 160))
    other = [*stream[:20], 777, *range(300, 339)]
    base = [completion(stream, f"p{n}") for n in range(40)]
    parted = [completion(other if n < 10 else stream, f"p{n}") for n in range(40)]
    known = {ScoreKey("cpu/mtp", f"p{n}", 0, 0): score(other, {20: 0.1}, stream) for n in range(10)}
    scored = compare(capture("cpu/base", *base), capture("cpu/mtp", *parted), known)
    (wrong,) = scored.stats.missed
    assert wrong.fault == "wrong_token"
    assert wrong.rate == pytest.approx(1 - 0.05 ** (1 / 40), rel=0.01)
    clean = compare(capture("cpu/base", *base), capture("cpu/mtp", *base))
    assert [one.fault for one in clean.stats.missed] == ["other_token"]
    assert "a token other than the baseline's in fewer than 7.22%" in texts(clean.reasons)[1]


def test_where_some_part_unjudged_another_token_is_not_excluded() -> None:
    """In a quarter of the completions there is one, which its own list supports: a PASS must not say that this would
    have been seen."""
    stream = list(range(100, 160))
    other = [*stream[:20], 777, *range(300, 339)]
    own = score(other, {20: 0.1}, stream)
    usual = TopLogprobs.from_json([[[token, -0.1], [777, -0.2]] for token in stream])
    base = [completion(stream, f"p{n}", logprobs=usual) for n in range(40)]
    parted = [completion(other, f"p{n}", logprobs=own) if n < 10 else base[n] for n in range(40)]
    result = compare(capture("cpu/base", *base), capture("cpu/mtp", *parted))
    assert result.stats.near_tie == 10
    assert [one.fault for one in result.stats.missed] == ["wrong_token"]


def test_where_so_few_choices_exclude_nothing_no_rate_is_said() -> None:
    few, more = (
        texts(compare(*(capture(arm, completion([101] * count)) for arm in ("cpu/base", "cpu/other"))).reasons)
        for count in (1, 40)
    )
    assert any(reason.endswith("1 greedy choice is not the reference's: so few exclude nothing") for reason in few)
    assert any("turn fewer than" in reason for reason in more)
