"""Scores that are not of the completions they name accuse nobody, and the verdict says what is wrong with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from message_ids import ids_in
from server_habits import Pair, detokenize, drawn, plain, planted
from worlds import FLAT
from wrong_scores import RECORDS, SCORES, exchanged, with_records

from parity.capture.score_columns import PackedScores
from parity.comparator import CompareOptions, compare
from parity.records import Capture, Key, TopLogprobs, Verdict


@pytest.mark.parametrize("name", SCORES)
def test_scores_of_something_else_accuse_nobody(name: str) -> None:
    result = SCORES[name](plain()).asked()
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE
    whys = "scores.reject_all", "scores.other_arms", "scores.other_side", "scores.other_requests", "inputs.scores_are"
    assert ids_in(result) & set(whys)


WHY = {
    "shifted_to_the_next_token": "scores.early",
    "shifted_to_the_last_token": "scores.late",
    "without_the_first_token": "scores.early",
    "of_the_other_arm": "scores.other_side",
    "as_logits": "numbers.subtract",
    "with_every_token_certain": "numbers.too_much",
    "in_thousandths": "numbers.too_little",
    "mixed_up": "scores.mixed_up",
    "of_another_tokenizer": "scores.other_tokens",
    "of_another_model": "scores.other_model",
    "of_probabilities": "numbers.take_logs",
    "with_the_other_sign": "numbers.negate",
    "to_base_10": "numbers.times_ln_10",
}


@pytest.mark.parametrize("name", WHY)
def test_the_verdict_says_what_is_wrong_with_the_scores(name: str) -> None:
    assert WHY[name] in ids_in(SCORES[name](plain()).asked())


@pytest.mark.parametrize("fault", ["drop5", "garbled-random6"])
@pytest.mark.parametrize("name", ["shifted_to_the_next_token", "of_a_misspelt_arm", "of_probabilities"])
def test_without_the_scores_the_fault_is_still_looked_for(name: str, fault: str) -> None:
    pair = SCORES[name](planted(fault))
    assert {one.key for one in pair.asked().corrupt} == {pair.faulty}


def test_of_scores_of_nearly_one_arms_name_it_is_asked() -> None:
    pair = plain()
    near = {key._replace(arm=key.arm.replace("mtp", "mpt")): top for key, top in pair.scores.items()}
    result = replace(pair, scores=near).asked()
    assert result.corrupt == []
    (said,) = (one for one in result.notes if one.id == "scores.misspelt")
    assert (said.parameters["named"], said.parameters["arm"]) == ("cpu/mpt", "cpu/mtp")
    assert "scores.misspelt" not in ids_in(pair.asked())


def test_a_misspelt_arm_is_named_with_its_neighbour() -> None:
    (reason,) = (one for one in SCORES["of_a_misspelt_arm"](plain()).asked().reasons if one.id == "scores.other_arms")
    assert reason.parameters["near"] == "cpu/base"


# ------------------------------------------------------------------ a few records of a good file


def pairs() -> dict[str, Pair]:
    return {"greedy": plain(), "drawn": drawn(FLAT, 3, scored=True)}


SAYS = {
    "early": "scores.record_early",
    "late": "scores.record_late",
    "without_the_first": "scores.record_early",
    "one_list_twice": "scores.record_late",
    "one_list_lost": "scores.record_early",
    "after_lists_of_the_prompt": "scores.record_late",
}


@pytest.mark.parametrize("of", ["greedy", "drawn"])
@pytest.mark.parametrize("name", SAYS)
def test_a_record_at_fault_is_left_out_and_named(of: str, name: str) -> None:
    changed, keys = with_records(pairs()[of], name, 1)
    result = changed.asked()
    assert result.corrupt == []
    (said,) = (one for one in result.notes if one.id == "scores.records")
    assert str(next(iter(keys))) in str(said.parameters["names"])
    assert SAYS[name] in ids_in(result)


def test_records_of_one_arm_that_are_all_no_logprobs_are_left_out() -> None:
    pair = drawn(FLAT, 3, scored=True)
    arm = pair.candidate.header.arm
    changed = {key: RECORDS["beside_the_best"](top) if key.arm == arm else top for key, top in pair.scores.items()}
    result = replace(pair, scores=changed).asked()
    assert result.corrupt == []
    assert {"scores.record_numbers", "scores.contradicted", "inputs.scores_are"} & ids_in(result)


@pytest.mark.parametrize("of", ["greedy", "drawn"])
def test_of_a_large_file_the_same_records_are_left_out(of: str) -> None:
    changed, keys = with_records(pairs()[of], "late", 3)
    table = PackedScores()
    for line, (key, top) in enumerate(changed.scores.items()):
        table.add(key, top, line)
    few = changed.asked()
    many = compare(changed.baseline, changed.candidate, table.whole(), CompareOptions(detokenize=detokenize))
    assert many.to_json() == few.to_json()
    arm = changed.candidate.header.arm
    kept = table.without({arm: frozenset(keys)})
    assert set(kept) == {key for key in table if key.arm != arm or Key(*key[1:]) not in keys}
    assert len(kept) == len(list(kept.tops())) == len(table) - len(keys)
    scored = kept.by_arm()[arm]
    assert [scored.row(name) for name in keys] == [None] * len(keys)
    assert [scored.row(name) for name in scored] == list(range(len(scored)))
    assert dict(scored.lengths()) == {name: len(top) for name, top in scored.items()}


def test_own_logprobs_of_another_kind_do_not_refute_the_scores() -> None:
    """A server gives them after its temperature; only what is said to be raw is of the same numbers."""
    pair = drawn(FLAT, 3, scored=True)

    def heated(arm: Capture) -> Capture:
        completions = {
            key: replace(one, logprobs=one.logprobs and TopLogprobs(one.logprobs.ids, one.logprobs.values * 3.0))
            for key, one in arm.completions.items()
        }
        return replace(arm, completions=completions)

    changed = replace(pair, baseline=heated(pair.baseline), candidate=heated(pair.candidate))
    assert "scores.contradicted" not in ids_in(changed.asked())


@pytest.mark.parametrize("of", ["greedy", "drawn"])
@pytest.mark.parametrize("name", sorted(RECORDS.keys() - SAYS))
def test_one_record_of_other_numbers_accuses_nobody(of: str, name: str) -> None:
    result = with_records(pairs()[of], name, 1)[0].asked()
    assert result.corrupt == []
    if of == "drawn":
        assert {"scores.record_numbers", "inputs.scores_are"} & ids_in(result)


@pytest.mark.parametrize("of", ["greedy", "drawn"])
@pytest.mark.parametrize("count", [2, 4])
def test_records_that_changed_places_are_left_out(of: str, count: int) -> None:
    changed, keys = exchanged(pairs()[of], count)
    result = changed.asked()
    assert result.corrupt == []
    (said,) = (one for one in result.reasons if one.id == "scores.records_of_others")
    assert said.parameters["count"] == len(keys)


@pytest.mark.parametrize("of", ["greedy", "drawn"])
def test_of_scores_that_are_mostly_at_fault_none_is_used(of: str) -> None:
    pair = pairs()[of]
    rolled = {
        key: TopLogprobs(*(np.concatenate([each[:9], each[8:-1]]) for each in (top.ids, top.values)))
        for key, top in pair.scores.items()
    }
    result = replace(pair, scores=rolled).asked()
    assert result.corrupt == []
    assert result.verdict is Verdict.INCONCLUSIVE
    assert {"scores.most_records", "scores.reject_all", "scores.not_naming"} & {one.id for one in result.reasons}


@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_scores_of_one_arm_at_another_temperature_accuse_nobody(temperature: float) -> None:
    pair = drawn(FLAT, 3, scored=True)

    def heated(top: TopLogprobs) -> TopLogprobs:
        values = top.values / temperature
        return TopLogprobs(top.ids, values - np.log(np.nansum(np.exp(values), axis=1, keepdims=True)) - 0.01)

    changed = {key: heated(top) if key.arm == pair.candidate.header.arm else top for key, top in pair.scores.items()}
    result = replace(pair, scores=changed).asked()
    assert result.corrupt == []
    assert {"scores.contradicted"} <= {one.id for one in result.reasons}


def test_what_is_infinite_in_a_score_is_no_opinion() -> None:
    pair, rng = plain(), np.random.default_rng(0)
    holed = {
        key: TopLogprobs(top.ids, np.where(rng.random(top.values.shape) < 0.05, -np.inf, top.values))
        for key, top in pair.scores.items()
    }
    assert replace(pair, scores=holed).asked().corrupt == []


@pytest.mark.parametrize("fault", ["drop5", "garbled-random6"])
def test_numbers_that_add_up_to_anything_everywhere_are_no_fault_of_a_record(fault: str) -> None:
    """Somebody made them up: the one of a faulty completion is as good as the others."""
    pair = planted(fault)
    by_hand = {
        key: TopLogprobs(top.ids, np.where(np.arange(top.ids.shape[1]) < 3, top.values / 3, top.values))
        for key, top in pair.scores.items()
    }
    assert {one.key for one in replace(pair, scores=by_hand).asked().corrupt} == {pair.faulty}


@pytest.mark.parametrize("fault", ["drop5", "garbled-random6"])
def test_a_fault_beside_a_record_at_fault_is_found(fault: str) -> None:
    pair = planted(fault)
    changed, keys = with_records(pair, "late", 3)
    found = {one.key for one in changed.asked().corrupt}
    assert found == {pair.faulty} - keys


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_a_record_without_lists_beside_one_with_some_ends_nothing(side: str) -> None:
    pair = SCORES["shifted_to_the_next_token"](plain())
    name = getattr(pair, side).header.arm
    assert pair.scores
    empty = {
        key: TopLogprobs(top.ids[:, :0], top.values[:, :0]) if key.arm == name else top
        for key, top in pair.scores.items()
    }
    assert not compare(pair.baseline, pair.candidate, empty).corrupt
