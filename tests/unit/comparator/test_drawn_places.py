"""Tokens that are drawn otherwise at one place of every completion, each of which may have been drawn as asked."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from captures import capture, completion, texts
from worlds import BASE, FLAT, PEAKED, Fault, World, catalogue, speculating
from worlds.choosing import Lapse

from parity.comparator import Comparison, compare
from parity.comparator.detect.drawn_places import ALL, LAST, SINGLE, STEPS, TURNS, in_words, name_of, places_in
from parity.comparator.stats import Stats
from parity.records import Capture, Key, Kind, SpecTrace, TokenIds, Verdict
from parity.store.connection import to_text

ROWS, TOKENS = 96, 24
WARM = {"temperature": 1.0, "max_tokens": TOKENS, "ignore_eos": True}


@cache
def world() -> World:
    return World(31, PEAKED)


def arm(lapse: Lapse | None = None, *, base: bool = False, rows: int = ROWS) -> Capture:
    fault = None if lapse is None else Fault("planted", "", "places", (), lapse=lapse, rules={"temperature": 1.0})
    asked = world().requests(rows, seed=5)
    return world().run(asked, BASE if base else speculating(2), fault=fault, **WARM).capture


def compared(base: Capture, other: Capture) -> Comparison:
    return compare(base, other, world().score(base, other))


def of_places(result: Comparison) -> list[str]:
    return texts([one.evidence.why for one in result.corrupt if getattr(one.evidence, "test", None) == "places"])


@pytest.mark.parametrize(
    ("lapse", "place"),
    [
        (Lapse(stop=1, values={"temperature": 0.0}), "the first output token"),
        (Lapse(start=TOKENS - 1, values={"temperature": 0.0}), "the last output token that the limit allows"),
        (Lapse(start=5, stop=6, values={"temperature": 0.0}), "output token 6"),
        (Lapse(step=1, values={"temperature": 0.0}), "token 2 of each decode step"),
    ],
    ids=["first", "last", "sixth", "second of a step"],
)
def test_greedy_tokens_at_one_place_are_found_and_named(lapse: Lapse, place: str) -> None:
    result = compared(arm(base=True), arm(lapse))
    assert result.verdict is Verdict.DIVERGED
    (why,) = of_places(result)
    assert why.startswith(f"{place} of the candidate's samples")
    assert "looks as if drawn at temperature 0, asked for was 1" in why
    (found,) = [one for one in result.corrupt if one.evidence.test == "places"]  # type: ignore[attr-defined]
    assert (found.kind, found.request) == (Kind.WRONG_TEMPERATURE, "*")
    assert {one.key for one in result.corrupt if one.request != "*"} == set()


def test_a_clean_arm_is_not_accused_and_says_what_it_could_have_missed() -> None:
    base, other = arm(base=True), arm()
    clean = compared(base, other)
    assert clean.verdict is Verdict.PASS
    assert clean.stats.sampling
    assert clean.stats.sampling.adjusted["places"] > 0.01
    said = {one.fault: one for one in clean.stats.missed}["first_greedy"]
    assert (said.rate, said.needed) == (None, 10 * ROWS)  # it would be seen only in all of them
    words = f"greedy decoding of the first token alone in any share of so few completions (about {10 * ROWS} would"
    assert words in texts(clean.reasons)[1]
    greedy = arm(Lapse(stop=1, values={"temperature": 0.0}))
    assert of_places(compared(base, greedy))


def test_what_the_baseline_does_as_well_is_a_habit() -> None:
    lapse = Lapse(stop=1, values={"temperature": 0.0})
    base = arm(lapse, base=True)
    assert of_places(compared(base, arm(lapse))) == []


def test_without_lists_of_the_baseline_nothing_is_said() -> None:
    base, other = arm(base=True), arm(Lapse(stop=1, values={"temperature": 0.0}))
    bare = replace(base, completions={key: replace(one, logprobs=None) for key, one in base.completions.items()})
    result = compare(bare, other, world().score(other))
    assert of_places(result) == []


def test_completions_with_a_fault_of_their_own_do_not_speak_for_a_place() -> None:
    base, other = arm(base=True), arm()
    rng = np.random.default_rng(3)
    some = dict(other.completions)
    for key in list(some)[::16]:
        tokens = some[key].token_ids.copy()
        tokens[4:14] = rng.integers(1, PEAKED.vocabulary, size=10)
        some[key] = replace(some[key], token_ids=tokens, logprobs=None)
    result = compared(base, replace(other, completions=some))
    assert result.verdict is Verdict.DIVERGED
    assert of_places(result) == []


def test_places_by_powers_of_two_by_step_and_by_turn() -> None:
    tokens, places = list(range(12)), np.arange(12)
    traced = completion(tokens, "traced", spec=SpecTrace(np.array([2, 0, 1, 2, 0, 0]), np.full(6, 2)), max_tokens=12)
    plain = completion(tokens, "plain")
    arm = capture("cpu/mtp", traced, plain, max_tokens=None)
    by_two, by_step, alone, last = places_in(arm, [traced.key], [places], 2)
    assert by_two.tolist() == [0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    assert by_step.tolist() == [ALL, *(STEPS + one for one in (0, 1, 2, 0, 0, 1, 0, 1, 2, 0, 0))]
    assert alone.tolist() == [ALL, ALL, *(SINGLE + one for one in range(2, 12))]
    assert last.tolist() == [ALL] * 11 + [LAST]
    _, by_turn, _, nothing = places_in(arm, [plain.key], [places], 2)
    assert by_turn.tolist() == [ALL, *(TURNS + one % 3 for one in range(11))]
    assert nothing.tolist() == [ALL] * 12
    assert set(places_in(arm, [plain.key], [places], None)[1].tolist()) == {ALL}
    both = places_in(arm, [traced.key, plain.key], [places[3:], places[:5]], 2)
    apart = places_in(arm, [traced.key], [places[3:]], 2), places_in(arm, [plain.key], [places[:5]], 2)
    assert [one.tolist() for one in both] == [[*a.tolist(), *b.tolist()] for a, b in zip(*apart, strict=True)]


@pytest.mark.parametrize(
    ("number", "name", "words"),
    [
        (0, "0", "the first output token"),
        (1, "1", "output token 2"),
        (2, "2-3", "output tokens 3 to 4"),
        (4, "8-15", "output tokens 9 to 16"),
        (SINGLE + 5, "5", "output token 6"),
        (STEPS, "step 0", "token 1 of each decode step"),
        (TURNS + 1, "turn 1", "output token 2 of each turn of drafts"),
        (LAST, "last", "the last output token that the limit allows"),
        (ALL, "all", "every output token"),
    ],
)
def test_places_have_names(number: int, name: str, words: str) -> None:
    assert name_of(number) == name
    assert texts([in_words(number)]) == [words]


@pytest.mark.parametrize("name", ["first token drawn hotter", "third token of each step drawn greedily"])
def test_the_catalogue_plants_what_it_says(name: str) -> None:
    (fault, *_) = [one for one in catalogue() if one.name == name]
    small = World(8, FLAT)
    asked = small.requests(32)
    plain = small.run(asked, speculating(2), temperature=1.0, max_tokens=32).capture
    planted = small.run(asked, speculating(2), fault=fault, max_tokens=32).capture
    first = {_parts(plain.completions[key].token_ids, one.token_ids) for key, one in planted.completions.items()}
    assert len(first) > 1
    assert first == {0, None} if "first" in name else 0 not in first


def _parts(a: TokenIds, b: TokenIds) -> int | None:
    """The first place at which two streams differ."""
    size = min(len(a), len(b))
    places = np.flatnonzero(a[:size] != b[:size])
    return int(places[0]) if len(places) else None


@pytest.mark.parametrize("logprob", [-9999.0, -1e30])
def test_tokens_that_cannot_come_at_any_temperature_prove_nothing(logprob: float) -> None:
    """Servers write -9999 for them. Found by fuzzing: a p-value was no number, and the report of the run ended."""
    base, other = arm(base=True), arm()
    scores = world().score(base, other)
    first = next(one for one in scores if one.arm == other.header.arm)
    top = scores[first]
    chosen = int(other.completions[Key(first.request, first.round, first.sample)].token_ids[3])
    values = top.values.copy()
    values[3, top.ids[3] == chosen] = logprob
    assert (values != top.values).any()
    result = compare(base, other, {**scores, first: replace(top, values=values)})
    assert result.stats.sampling
    assert all(0.0 <= p <= 1.0 for p in result.stats.sampling.p_values.values())
    assert of_places(result) == []
    assert Stats.from_json(json.loads(to_text(result.stats.to_json()))).sampling
