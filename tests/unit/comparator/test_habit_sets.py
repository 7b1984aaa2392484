"""Servers with several habits at once: sets that once accused somebody, and a few that are drawn at random."""

from __future__ import annotations

import pytest
from habit_sets import (
    CLASHES,
    SERVERS_ALONE,
    STAGES,
    TURNED,
    Attempt,
    Stage,
    answer,
    attempt,
    attempts,
    can_be,
    server,
)
from server_habits import HABITS, plain

ONCE_ACCUSED = [
    Attempt(
        ("counts_the_prompt_too", "echoes_the_prompt_and_a_blank_and_gives_no_ids"),
        ("echoes_tokens",),
        fault="sub-random",
    ),
    Attempt(("begins_prompts_with_bos_and_cuts_them",), ("cuts_prompts_from_the_left",), world="peaked 404 at 0"),
    Attempt(
        (),
        ("ends_at_its_context", "says_stop_always", "scored_text_and_no_ids"),
        world="peaked 384 at 0",
        scored=False,
    ),
    Attempt(("drops_the_eos_but_its_logprobs",), ("counts_the_prompt_too",), world="peaked 373 at 0", by_script=True),
    Attempt(
        ("gives_logprobs_at_another_temperature",),
        ("gives_base_2_logprobs", "says_empty_reasons"),
        world="sure 374 at 0",
    ),
    Attempt(
        ("echoes_text_after_a_blank_and_gives_no_ids",),
        ("says_stop_always", "scored_text_and_no_ids"),
        fault="dup8",
    ),
    Attempt(
        ("shows_special_tokens", "says_reasons_that_nobody_knows"),
        ("echoes_tokens",),
        world="flat 377 at 0",
        by_script=True,
        shown=False,
    ),
    Attempt(("says_stop_sequence_and_max_tokens", "text_with_a_blank_and_no_ids"), world="peaked 8 at 0"),
    Attempt(("echoes_the_prompt_and_a_blank_and_gives_no_ids",), world="flat 10 at 0", scored=False),
    Attempt((), ("text_with_a_blank_and_no_ids",), world="flat 49 at 0", scored=False),
    Attempt(("strips_leading_blanks", "text_with_a_blank_and_no_ids"), scored=False, fault="dup8"),
    Attempt(
        ("gives_base_2_logprobs", "rounds_logprobs_to_one_place"),
        ("says_reasons_in_capitals",),
        world="sure 48 at 1",
        shown=False,
    ),
    Attempt(("gives_base_2_logprobs",), ("says_stop_always",), world="sure 83 at 1", scored=False),
    Attempt(
        ("cuts_prompts_and_begins_them_with_bos", "gives_base_2_logprobs"),
        ("cuts_prompts_and_begins_them_with_bos", "gives_base_2_logprobs"),
        world="peaked 242 at 0",
    ),
    Attempt(
        (),
        ("says_stop_always", "echoes_the_prompt_and_a_blank_and_gives_no_ids"),
        scored=False,
        shown=False,
        fault="dup8",
    ),
    Attempt(("strips_both_ends",), ("begins_prompts_with_bos_and_cuts_them",), world="sure 82 at 0"),
    Attempt(
        ("begins_prompts_with_bos_and_cuts_them", "rounds_logprobs_to_one_place", "drops_the_eos_but_its_logprobs")
    ),
    Attempt(
        ("begins_prompts_with_bos_and_cuts_them", "shows_special_tokens", "gives_no_reason_and_says_so"),
        world="flat 360 at 1",
        scored=False,
        shown=False,
    ),
    Attempt(("ends_at_its_context", "rounds_logprobs_to_two_places"), world="flat 80 at 1", scored=False, shown=False),
    Attempt(
        ("begins_prompts_with_bos_and_cuts_them",),
        ("cuts_prompts_and_begins_them_with_bos",),
        scored=False,
        fault="garbled-random6",
    ),
    Attempt(("text_and_no_ids",), ("ends_at_its_context", "stripped_text_and_no_ids"), world="sure 123 at 0"),
    Attempt(("ends_at_its_context", "echoes_stripped_text_and_gives_no_ids"), fault="drop5"),
    Attempt(
        ("echoes_stripped_text_and_gives_no_ids",),
        ("shows_special_tokens", "gives_no_text"),
        shown=False,
        fault="garbled-random6",
    ),
    Attempt(
        ("gives_probabilities", "rounds_logprobs_to_two_places", "lists_fewer_than_asked"),
        ("gives_probabilities", "rounds_logprobs_to_two_places", "lists_fewer_than_asked"),
        world="peaked 122 at 1",
    ),
    Attempt(
        ("gives_the_prompts_logprobs_too", "reports_no_prompt"), ("gives_the_prompts_logprobs_too", "reports_no_prompt")
    ),
    Attempt(
        ("rounds_logprobs_to_two_places",),
        ("rounds_logprobs_to_two_places",),
        world="flat 161 at 0",
        scored=False,
        shown=False,
    ),
    Attempt(
        ("drops_the_eos_but_its_logprobs", "begins_with_a_blank", "says_empty_reasons"),
        world="flat 203 at 0.8",
        by_script=True,
    ),
    Attempt(("strips_trailing_blanks",), ("rounds_logprobs_to_one_place",), shown=False, fault="leak12"),
    Attempt(("strips_trailing_blanks",), ("echoes_text",), shown=False, fault="leak12"),
    Attempt(
        (),
        ("drops_the_eos_but_its_logprobs", "echoes_tokens", "names_the_eos_in_words"),
        world="flat 281 at 0",
        by_script=True,
    ),
    Attempt(("shows_special_tokens",), world="sure 282 at 0", scored=False, by_script=True),
    Attempt(("echoes_tokens", "shows_special_tokens"), world="sure 360 at 0"),
    Attempt(("drops_the_eos", "counts_otherwise"), ("drops_the_eos", "counts_otherwise"), world="flat 362 at 0"),
    Attempt(
        ("text_with_a_blank_and_no_ids",),
        ("ends_at_its_context", "echoes_the_prompt_and_a_blank_and_gives_no_ids"),
        fault="drop5",
    ),
    Attempt(
        ("ends_at_its_context", "counts_the_eos_in_its_usage", "text_and_no_ids"), world="peaked 801 at 0", shown=False
    ),
    Attempt(
        ("drops_the_eos_but_its_logprobs", "gives_the_prompts_logprobs_too", "reports_no_prompt"),
        ("drops_the_eos_but_its_logprobs", "gives_the_prompts_logprobs_too", "reports_no_prompt"),
        world="peaked 1202 at 1",
        by_script=True,
    ),
    Attempt(
        (),
        ("begins_prompts_with_bos_and_cuts_them", "says_stop_always", "echoes_stripped_text_and_gives_no_ids"),
        fault="eos",
    ),
    Attempt(("cuts_prompts_from_the_left",), ("begins_the_prompt_with_bos",), world="sure 1602 at 0", scored=False),
    Attempt(
        ("begins_prompts_with_bos_and_cuts_them", "text_and_no_ids"),
        ("cuts_prompts_and_begins_them_with_bos",),
        world="flat 1602 at 0",
    ),
]
"""Each accused a healthy row, or a healthy run."""


@pytest.mark.parametrize("one", ONCE_ACCUSED, ids=str)
def test_nobody_is_accused_of_habits_that_once_were_faults(one: Attempt) -> None:
    found = answer(one)
    assert not found.accused
    assert not found.missed


@pytest.mark.parametrize("habits", [2, 3])
def test_random_sets_of_habits_accuse_nobody(habits: int) -> None:
    bad = [str(found.attempt) for found in map(answer, attempts(7000, 40, habits)) if found.bad]
    assert not bad


def test_every_habit_of_a_server_has_its_stage() -> None:
    assert STAGES.keys() | TURNED == HABITS.keys()
    assert not STAGES.keys() & TURNED
    assert set(STAGES.values()) == set(Stage)


def test_no_server_has_two_habits_of_one_stage_or_two_that_clash() -> None:
    assert not can_be(("says_eos_token", "says_stop_always"))
    assert not can_be(("echoes_tokens", "echoes_text"))
    assert can_be(("echoes_tokens", "says_stop_always"))
    for some, others, why in CLASHES:
        assert {*some, *others} <= STAGES.keys()
        assert why


def test_an_attempt_is_drawn_from_its_number() -> None:
    some = [attempt(number, 3) for number in range(200)]
    assert some == [attempt(number, 3) for number in range(200)]
    assert len(set(map(str, some))) == 200
    for one in some:
        assert can_be(one.of_candidate)
        assert can_be(one.of_baseline)
        assert not (one.by_script and SERVERS_ALONE & {*one.of_candidate, *one.of_baseline})
    assert {bool(one.world) for one in some} == {bool(one.fault) for one in some} == {True, False}


def test_a_server_applies_its_habits_in_the_order_of_stages() -> None:
    names = ("drops_the_eos", "counts_otherwise")
    pair = server(plain(), names[::-1])
    stopped = [one for one in pair.candidate if one.finish_reason == "stop"]
    assert stopped
    for one in stopped:
        assert one.server == {
            "usage": {"completion_tokens": len(one.token_ids) + 1, "prompt_tokens": len(one.prompt_token_ids)}
        }


@pytest.mark.parametrize("fault", ["loop3", "sub-random"])
def test_a_planted_fault_is_still_found_under_sets_of_habits(fault: str) -> None:
    one = Attempt(("begins_with_a_blank", "counts_the_eos_in_its_usage"), ("says_stop_always",), fault=fault)
    pair = one.pair()
    assert {found.key for found in pair.asked().corrupt} == {pair.faulty}
