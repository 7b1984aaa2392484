"""No server is accused for its habits; a fault on top of one is found, or the verdict says what it does not see."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from message_ids import ids_in
from server_habits import (
    EOS,
    FAULTS,
    HABITS,
    Pair,
    by_hand,
    detokenize,
    drawn,
    each,
    filled_up,
    fills_prompts_up,
    plain,
    planted,
    served,
    tokenizer,
    turned,
)
from worlds import FLAT, PEAKED, SURE, Shape

from parity.comparator import CompareOptions, compare
from parity.records import Capture, Key, Kind, TopLogprobs, Verdict

SAID = {
    "strips_leading_blanks": "text.habit_left",
    "strips_trailing_blanks": "text.habit_right",
    "strips_both_ends": "text.habit_both",
    "shows_special_tokens": "text.habit_ending",
    "begins_with_a_blank": "text.habit_blank",
    "ends_with_a_line_feed": "text.habit_put",
    "gives_empty_text": "text.habit_empty",
    "baseline_strips_blanks": "inputs.habit",
    "text_and_no_ids": "inputs.text_alone",
    "stripped_text_and_no_ids": "inputs.text_alone",
    "text_with_a_blank_and_no_ids": "inputs.text_alone",
    "scored_text_and_no_ids": "inputs.text_alone",
    "reports_no_prompt": "inputs.no_prompts",
    "baseline_reports_no_prompt": "inputs.no_prompts",
    "begins_the_prompt_with_bos": "inputs.prompts_begun",
    "echoes_tokens": "inputs.echo",
    "echoes_text": "text.habit_echo",
    "echoes_text_and_gives_no_ids": "inputs.echo",
    "echoes_stripped_text_and_gives_no_ids": "inputs.echo",
    "echoes_text_after_a_blank_and_gives_no_ids": "inputs.text_alone",
    "echoes_the_prompt_and_a_blank_and_gives_no_ids": "inputs.echo",
    "cuts_prompts_from_the_left": "inputs.prompts_cut",
    "cuts_prompts_and_begins_them_with_bos": "inputs.some_prompts_begun",
    "begins_prompts_with_bos_and_cuts_them": "inputs.prompts_cut",
    "says_it_read_less_of_the_prompt": "inputs.prompts_cut",
    "drops_the_eos": "inputs.eos_kept_by_one",
    "drops_the_eos_but_its_logprobs": "inputs.lists_of_end",
    "says_stop_always": "inputs.never_length",
    "ends_at_its_context": "inputs.context",
    "gives_logprobs_of_the_first_token": "inputs.lists_first",
    "gives_logprobs_but_for_the_first_token": "inputs.lists_but_first",
    "gives_the_prompts_logprobs_too": "inputs.lists_of_prompt",
    "gives_certain_logprobs": "inputs.certain",
    "gives_logprobs_at_another_temperature": "inputs.other_temperature",
    "gives_null_for_some_tokens": "inputs.no_number",
    "gives_null_for_the_eos": "inputs.no_number_of_end",
    "gives_probabilities": "numbers.probabilities",
    "gives_base_2_logprobs": "numbers.base_2",
    "gives_base_10_logprobs": "numbers.base_10",
    "gives_positive_logprobs": "numbers.negated",
    "counts_the_eos_in_its_usage": "counts.ends",
    "counts_no_eos": "counts.kept",
    "counts_otherwise": "inputs.counts_otherwise",
    "counts_with_another_tokenizer": "inputs.counts_unlike",
    "counts_the_prompt_too": "inputs.counts_unlike",
    "counts_reasoning_that_it_does_not_give": "inputs.counts_unlike",
    "says_reasons_that_nobody_knows": "inputs.unknown_reasons",
    "gives_no_reason_and_says_so": "inputs.every_answer",
    "gives_fewer_samples_than_asked": "missing.by_none",
}
"""What the verdict says of a habit; nothing where it hides nothing."""

OPEN = {
    "begins_the_prompt_with_bos",
    "cuts_prompts_from_the_left",
    "cuts_prompts_and_begins_them_with_bos",
    "begins_prompts_with_bos_and_cuts_them",
    "says_it_read_less_of_the_prompt",
    "counts_otherwise",
    "counts_with_another_tokenizer",
    "counts_the_prompt_too",
    "counts_reasoning_that_it_does_not_give",
    "counts_nothing",
    "says_what_of_the_prompt_was_not_cached",
    "gives_no_reason_and_says_so",
    "gives_fewer_samples_than_asked",
}
"""Habits that leave something open, so that nothing may be called PASS."""

NEEDS_TOKENIZER = {name for name in HABITS if name.endswith("no_ids")}

UNSEEN = {
    "begins_the_prompt_with_bos": set(FAULTS),  # another question: nothing is compared
    "text_and_no_ids": {"drop5"},  # two ways to go on that the lists do not tell apart
    "stripped_text_and_no_ids": {"drop5"},
    "text_with_a_blank_and_no_ids": {"drop5"},
    "echoes_text_and_gives_no_ids": {"drop5"},
    "echoes_stripped_text_and_gives_no_ids": {"drop5"},
    "echoes_text_after_a_blank_and_gives_no_ids": {"drop5"},
    "echoes_the_prompt_and_a_blank_and_gives_no_ids": {"drop5"},
    "cuts_prompts_and_begins_them_with_bos": set(FAULTS),
    "begins_prompts_with_bos_and_cuts_them": set(FAULTS) - {"dup8"},  # its prompt alone is as long as the context
    "says_what_of_the_prompt_was_not_cached": {"leak12", "sub-random"},  # in rows that seem to answer half a prompt
}
"""Faults that nobody can see any more; the verdict is not PASS then."""


@pytest.mark.parametrize("with_text_check", [True, False])
@pytest.mark.parametrize("name", HABITS)
def test_a_habit_is_no_fault(name: str, with_text_check: bool) -> None:
    result = HABITS[name](plain()).asked(with_text_check=with_text_check)
    assert not result.corrupt
    is_open = name in OPEN or (not with_text_check and name in NEEDS_TOKENIZER)
    assert result.verdict is (Verdict.INCONCLUSIVE if is_open else Verdict.PASS)
    expected = "text.habit_more" if name == "echoes_text" and not with_text_check else SAID.get(name)
    assert expected is None or expected in ids_in(result)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", HABITS)
def test_a_fault_is_found_under_a_habit(name: str, fault: str) -> None:
    pair = HABITS[name](planted(fault))
    result = pair.asked()
    assert {one.key for one in result.corrupt} <= {pair.faulty}
    if fault in UNSEEN.get(name, ()):
        assert result.verdict is Verdict.INCONCLUSIVE
    else:
        assert result.corrupt


NEEDS_A_SERVER = NEEDS_TOKENIZER | {
    "cuts_prompts_from_the_left",
    "cuts_prompts_and_begins_them_with_bos",
    "begins_prompts_with_bos_and_cuts_them",
    "gives_logprobs_at_another_temperature",
}
"""Habits that a script of one's own has not: it has token ids and knows what it asked."""


@pytest.mark.parametrize("name", sorted(set(HABITS) - NEEDS_A_SERVER))
def test_a_habit_of_a_script_is_no_fault_either(name: str) -> None:
    result = by_hand(HABITS[name](plain())).asked()
    assert not result.corrupt
    assert result.verdict is not Verdict.DIVERGED


@pytest.mark.parametrize("sides", ["candidate", "baseline", "both"])
@pytest.mark.parametrize("name", sorted(set(HABITS) - NEEDS_A_SERVER))
def test_a_habit_of_either_script_is_no_fault_without_a_tokenizer(name: str, sides: str) -> None:
    made = plain() if sides == "baseline" else HABITS[name](plain())
    if sides != "candidate":
        made = turned(HABITS[name](turned(made)))
    result = by_hand(made).asked(with_text_check=False)
    assert not result.corrupt
    assert result.verdict is not Verdict.DIVERGED


@pytest.mark.parametrize("name", sorted(HABITS))
def test_a_habit_is_no_fault_where_tokens_are_drawn(name: str) -> None:
    """No completion of one arm is the other's, so that none shows what the arms write alike."""
    made = HABITS[name](drawn(FLAT, 6))
    for pair in (made, by_hand(made)) if name not in NEEDS_A_SERVER else (made,):
        result = pair.asked()
        assert not result.corrupt
        assert result.verdict is not Verdict.DIVERGED


@pytest.mark.parametrize(
    ("shape", "seed", "of_candidate", "of_baseline"),
    [
        (PEAKED, 5, (), ()),  # one token throughout, which lists name twice
        (PEAKED, 5, ("says_9999_for_what_it_does_not_list",), ()),
        (FLAT, 6, ("counts_the_eos_in_its_usage", "gives_no_logprobs"), ()),
        (FLAT, 5, ("says_stop_always", "ends_at_its_context"), ()),
        (PEAKED, 7, ("drops_the_eos_but_its_logprobs", "gives_logprobs_but_for_the_first_token"), ()),
        (FLAT, 7, ("says_stop_always", "text_and_no_ids"), ()),
        (SURE, 6, ("says_stop_always", "text_and_no_ids"), ("text_and_no_ids",)),
        (FLAT, 7, (), ("drops_the_eos_but_its_logprobs", "gives_no_reason_and_says_so")),
    ],
)
def test_habits_are_no_fault_where_tokens_are_drawn(
    shape: Shape, seed: int, of_candidate: tuple[str, ...], of_baseline: tuple[str, ...]
) -> None:
    made = drawn(shape, seed)
    for name in of_candidate:
        made = HABITS[name](made)
    made = turned(made)
    for name in of_baseline:
        made = HABITS[name](made)
    made = turned(made)
    by_scripts = (made, by_hand(made)) if not {*of_candidate, *of_baseline} & NEEDS_A_SERVER else (made,)
    for pair in by_scripts:
        for with_text_check in (True, False):
            result = pair.asked(with_text_check=with_text_check)
            assert not result.corrupt
            assert result.verdict is not Verdict.DIVERGED


TOGETHER = [
    ("strips_trailing_blanks", "echoes_text"),
    ("echoes_tokens", "strips_leading_blanks"),
    ("shows_special_tokens", "begins_with_a_blank"),
    ("shows_special_tokens", "strips_trailing_blanks"),
    ("drops_the_eos_but_its_logprobs", "says_empty_reasons"),
    ("gives_the_prompts_logprobs_too", "drops_the_eos_but_its_logprobs"),
    ("counts_the_eos_in_its_usage", "gives_empty_text"),
    ("says_stop_always", "counts_the_eos_in_its_usage"),
    ("ends_at_its_context", "says_no_finish_reason"),
    ("counts_the_eos_in_its_usage", "says_reasons_in_capitals"),
    ("shows_special_tokens", "drops_the_eos_but_its_logprobs"),
    ("drops_the_eos_but_its_logprobs", "gives_logprobs_but_for_the_first_token"),
    ("gives_logprobs_but_for_the_first_token", "drops_the_eos"),
    ("gives_the_prompts_logprobs_too", "gives_logprobs_but_for_the_first_token"),
    ("echoes_tokens", "says_stop_always"),
    ("says_stop_always", "echoes_tokens"),
    ("ends_at_its_context", "says_stop_always"),
    ("drops_the_eos_but_its_logprobs", "echoes_tokens"),
    ("lists_the_chosen_token_alone", "gives_certain_logprobs"),
]


@pytest.mark.parametrize("by_script", [False, True], ids=["server", "script"])
@pytest.mark.parametrize("names", TOGETHER, ids="-".join)
def test_two_habits_at_once_are_no_fault(names: tuple[str, str], by_script: bool) -> None:
    def made(pair: Pair) -> Pair:
        pair = HABITS[names[1]](HABITS[names[0]](pair))
        return by_hand(pair) if by_script else pair

    for with_text_check in (True, False):
        result = made(plain()).asked(with_text_check=with_text_check)
        assert not result.corrupt
        assert result.verdict is not Verdict.DIVERGED
    pair = made(planted("garbled-random6"))
    assert {one.key for one in pair.asked().corrupt} == {pair.faulty}


@pytest.mark.parametrize(
    "names",
    [
        ("stripped_text_and_no_ids", "says_stop_always"),
        ("says_stop_always", "echoes_text_and_gives_no_ids"),
        ("echoes_text", "stripped_text_and_no_ids"),
        ("echoes_tokens", "text_with_a_blank_and_no_ids"),
        ("ends_at_its_context", "text_and_no_ids"),
        ("shows_special_tokens", "text_and_no_ids"),
    ],
    ids="-".join,
)
def test_text_alone_with_another_habit_is_no_fault(names: tuple[str, str]) -> None:
    for with_text_check in (True, False):
        result = HABITS[names[1]](HABITS[names[0]](plain())).asked(with_text_check=with_text_check)
        assert not result.corrupt
        assert result.verdict is (Verdict.PASS if with_text_check else Verdict.INCONCLUSIVE)
    pair = HABITS[names[1]](HABITS[names[0]](planted("garbled-random6")))
    assert {one.key for one in pair.asked().corrupt} == {pair.faulty}


@pytest.mark.parametrize(
    ("of_candidate", "of_baseline"),
    [
        ("begins_with_a_blank", "drops_the_eos"),
        ("gives_logprobs_but_for_the_first_token", "baseline_drops_the_eos"),
        ("shows_special_tokens", "strips_both_ends"),
        ("strips_leading_blanks", "shows_special_tokens"),
        ("begins_with_a_blank", "shows_special_tokens"),
        ("drops_the_eos_but_its_logprobs", "echoes_text"),
        ("drops_the_eos_but_its_logprobs", "says_reasons_that_nobody_knows"),
        ("says_empty_reasons", "drops_the_eos"),
        ("gives_base_2_logprobs", "gives_no_logprobs"),
        ("gives_base_10_logprobs", "gives_logprobs_of_the_first_token"),
    ],
)
def test_each_arm_with_a_habit_of_its_own_is_no_fault(of_candidate: str, of_baseline: str) -> None:
    made = by_hand(turned(HABITS[of_baseline](turned(HABITS[of_candidate](plain())))))
    for with_text_check in (True, False):
        result = made.asked(with_text_check=with_text_check)
        assert not result.corrupt
        assert result.verdict is not Verdict.DIVERGED


@pytest.mark.parametrize(
    ("of_candidate", "of_baseline"),
    [
        ("stripped_text_and_no_ids", "gives_no_text"),
        ("text_with_a_blank_and_no_ids", "gives_no_text"),
        ("gives_no_text", "text_with_a_blank_and_no_ids"),
        ("stripped_text_and_no_ids", "says_empty_reasons"),
        ("text_with_a_blank_and_no_ids", "says_no_finish_reason"),
        ("says_stop_always", "text_and_no_ids"),
        ("baseline_strips_blanks", "text_with_a_blank_and_no_ids"),
        ("baseline_strips_blanks", "ends_at_its_context"),
        ("counts_the_eos_in_its_usage", "names_the_eos_in_words"),
        ("drops_the_eos", "names_the_eos_in_words"),
        ("begins_the_prompt_with_bos", "cuts_prompts_from_the_left"),
        ("cuts_prompts_from_the_left", "begins_the_prompt_with_bos"),
        ("cuts_prompts_and_begins_them_with_bos", "begins_the_prompt_with_bos"),
        ("begins_the_prompt_with_bos", "cuts_prompts_and_begins_them_with_bos"),
        ("echoes_tokens", "shows_special_tokens"),
        ("shows_special_tokens", "echoes_tokens"),
        ("echoes_text", "shows_special_tokens"),
    ],
)
def test_each_server_with_a_habit_of_its_own_is_no_fault(of_candidate: str, of_baseline: str) -> None:
    def made(pair: Pair) -> Pair:
        return turned(HABITS[of_baseline](turned(HABITS[of_candidate](pair))))

    for with_text_check in (True, False):
        result = made(plain()).asked(with_text_check=with_text_check)
        assert not result.corrupt
        assert result.verdict is not Verdict.DIVERGED
    pair = made(planted("garbled-random6"))
    result = pair.asked()
    assert {one.key for one in result.corrupt} <= {pair.faulty}
    assert result.verdict is not Verdict.PASS


@pytest.mark.parametrize("first", ["gives_empty_text", "gives_no_text"])
def test_a_server_that_shows_nothing_is_not_accused_of_ending_early(first: str) -> None:
    pair = HABITS["text_and_no_ids"](HABITS[first](plain()))
    result = pair.asked()
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert result.reasons[0].id == "inputs.silent"
    assert "conclude.no_pairs" not in ids_in(result)  # they are there
    at_once = {key: replace(one, server={"usage": {"completion_tokens": 1}})
               for key, one in pair.candidate.completions.items()}  # fmt: skip
    result = replace(pair, candidate=replace(pair.candidate, completions=at_once)).asked()
    assert {one.kind for one in result.corrupt} == {Kind.EARLY_STOP}


@pytest.mark.parametrize("others", ["budget", "length"])
def test_a_seldom_name_is_the_servers_own_where_it_has_none_of_the_others(others: str) -> None:
    pair = HABITS["says_reasons_that_nobody_knows"](plain())
    named = [key for key, one in pair.candidate.completions.items() if one.finish_reason == "natural"][:2]
    rows = {
        key: replace(one, finish_reason="natural" if key in named else others)
        for key, one in pair.candidate.completions.items()
        if key in named or one.finish_reason == "budget"
    }
    result = replace(pair, candidate=replace(pair.candidate, completions=rows)).asked()
    accused = {one.key for one in result.corrupt if one.kind is Kind.EARLY_STOP}
    assert accused == (set(named) if others == "length" else set())


def test_a_servers_chosen_logprobs_of_another_temperature_are_no_fault() -> None:
    listed = HABITS["gives_logprobs_at_another_temperature"](plain())
    result = HABITS["lists_the_chosen_token_alone"](listed).asked()
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])
    assert "inputs.as_other_temperature" in ids_in(result)


def test_a_servers_chosen_logprobs_of_another_place_are_a_fault() -> None:
    pair = HABITS["lists_the_chosen_token_alone"](plain())
    moved = {key: replace(one, logprobs=TopLogprobs(one.logprobs.ids, np.roll(one.logprobs.values, 1, axis=0)))
             for key, one in pair.candidate.completions.items() if one.logprobs is not None}  # fmt: skip
    result = replace(pair, candidate=replace(pair.candidate, completions=moved)).asked()
    assert {one.kind for one in result.corrupt} == {Kind.LOGPROB_MISMATCH}


def test_a_row_of_another_is_found_where_all_outputs_begin_with_their_prompt() -> None:
    pair = by_hand(HABITS["echoes_tokens"](plain()))
    rows = dict(pair.candidate.completions)
    one, other = list(rows)[3], list(rows)[7]
    rows[one], rows[other] = (
        replace(rows[a], token_ids=rows[b].token_ids, text=rows[b].text, logprobs=rows[b].logprobs)
        for a, b in ((one, other), (other, one))
    )
    found = replace(pair, candidate=replace(pair.candidate, completions=rows)).asked().corrupt
    assert {finding.key for finding in found} == {one, other}
    assert {finding.key for finding in found if str(finding.kind) == "row_leak"} == {one, other}


def test_scores_of_outputs_with_their_prompts_are_left_out_and_it_is_said() -> None:
    pair = by_hand(HABITS["echoes_tokens"](plain()))
    longer = {
        key: TopLogprobs(np.repeat(top.ids, 2, axis=0), np.repeat(top.values, 2, axis=0))
        for key, top in pair.scores.items()
    }
    result = replace(pair, scores=longer).asked()
    assert not result.corrupt
    assert "inputs.echo_scored" in ids_in(result)


def test_one_output_filled_up_with_stop_tokens_that_nobody_gave_is_no_fault() -> None:
    pair = by_hand(ends_alone(plain()))
    result = filled_up(pair, 1, 0).asked()
    assert not result.corrupt
    assert "inputs.padding" in ids_in(result)
    other = filled_up(pair, 1, 5).asked()  # with another token it may be an engine that went on
    assert (other.verdict, other.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert "inputs.perhaps_padding" in {one.id for one in other.reasons}


def ends_alone(pair: Pair) -> Pair:
    """The pair where one row alone ends at a stop token, without logprobs in the candidate."""
    ended = [key for key, one in pair.candidate.completions.items() if one.finish_reason == "stop"][1:]
    baseline, candidate = (
        replace(arm, completions={key: one for key, one in arm.completions.items() if key not in ended})
        for arm in (pair.baseline, pair.candidate)
    )
    unlisted = {key: replace(one, logprobs=None) for key, one in candidate.completions.items()}
    return replace(pair, baseline=baseline, candidate=replace(candidate, completions=unlisted))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", sorted(set(HABITS) - NEEDS_A_SERVER - set(UNSEEN)))
def test_a_fault_is_found_under_a_habit_of_a_script(name: str, fault: str) -> None:
    pair = by_hand(HABITS[name](planted(fault)))
    assert {one.key for one in pair.asked().corrupt} == {pair.faulty}


@pytest.mark.parametrize("token", [0, 1], ids=["eos", "a pad"])
@pytest.mark.parametrize("side", [0, 1], ids=["baseline", "candidate"])
def test_what_fills_every_output_up_is_left_out(side: int, token: int) -> None:
    pair = filled_up(plain(), side, token)
    result = pair.asked()
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])
    assert "inputs.padding" in ids_in(result)
    assert {one.key for one in filled_up(planted("drop5"), side, token).asked().corrupt} == {planted("drop5").faulty}


@pytest.mark.parametrize("echoes", [False, True])
@pytest.mark.parametrize("side", [0, 1], ids=["baseline", "candidate"])
def test_what_fills_every_prompt_up_is_left_out(side: int, echoes: bool) -> None:
    result = fills_prompts_up(plain(), side, echoes=echoes).asked()
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])
    assert ("inputs.echo" if echoes else "inputs.prompts_filled") in ids_in(result)
    pair = fills_prompts_up(planted("drop5"), 1, echoes=echoes)
    assert {one.key for one in pair.asked().corrupt} == {pair.faulty}


@pytest.mark.parametrize("with_text_check", [True, False])
def test_characters_may_be_decomposed(with_text_check: bool) -> None:
    """In a few texts: the others have none that could be."""
    pair = plain()
    rows = dict.fromkeys(list(pair.candidate.completions)[4:7], tokenizer().encode(" the naïve café").ids)
    arms = [
        replace(arm, completions={
            key: replace(one, token_ids=np.array(rows[key]), text=unicodedata.normalize(form, detokenize(rows[key])),
                         logprobs=None, max_tokens=len(rows[key])) if key in rows else one
            for key, one in arm.completions.items()
        })
        for form, arm in (("NFC", pair.baseline), ("NFD", pair.candidate))
    ]  # fmt: skip
    result = replace(pair, baseline=arms[0], candidate=arms[1], scores={}).asked(with_text_check=with_text_check)
    assert result.corrupt == []


def test_what_fills_some_outputs_up_is_a_fault() -> None:
    pair = filled_up(plain(), 1, 0, rows=5)
    assert len(pair.asked().corrupt) == 5
    header = pair.candidate.header
    run_here = replace(pair.candidate, header=replace(header, engine={**header.engine, "asked": {}}))
    assert replace(filled_up(replace(pair, candidate=run_here), 1, 0)).asked().corrupt


def test_the_pair_itself_is_clean() -> None:
    assert plain().asked().verdict is Verdict.PASS


@pytest.mark.parametrize("side", [0, 1])
def test_drawn_answers_of_about_one_length_may_lack_their_end(side: int) -> None:
    """A server leaves out the token that it stops at: all of its answers are a token shorter."""
    rng = np.random.default_rng(0)
    pair = drawn(PEAKED, 3)
    key = next(iter(pair.baseline.completions))

    def answers(arm: Capture) -> Capture:
        made = {}
        for number in range(400):
            tokens = np.append(rng.integers(300, 900, int(rng.normal(20, 1.5))), EOS)
            one = replace(arm.completions[key], key=Key(f"p{number}", 0, 0), token_ids=tokens, logprobs=None)
            made[one.key] = replace(one, finish_reason="stop", stop_reason=None)
        return replace(arm, completions=made)

    def without_end(arm: Capture) -> Capture:
        return served(each(arm, lambda one: replace(one, token_ids=one.token_ids[:-1])))

    keeps = [answers(arm) for arm in (pair.baseline, pair.candidate)]
    arms = [without_end(arm) if number == side else arm for number, arm in enumerate(keeps)]
    found = compare(*arms, {}, CompareOptions())
    assert found.stats.sampling is not None
    assert found.stats.sampling.adjusted["length"] > 0.001
    assert not found.corrupt
    shorter = each(arms[1], lambda one: replace(one, token_ids=one.token_ids[2:]))
    found = compare(arms[0], shorter, {}, CompareOptions())
    assert found.stats.sampling is not None
    assert found.stats.sampling.failed == ("length",)
