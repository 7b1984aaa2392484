"""The table of sampling parameters: rows say what they are read as, refused for, sent as and compared by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from parity.errors import ParityError, said_by
from parity.language import render
from parity.records.sampling import (
    Effect,
    Form,
    Parameter,
    Sampling,
    asked,
    forget,
    parameter,
    parameters,
    read_values,
    register,
)

TOP_A = Parameter(name="top_a", form=Form.NUMBER, default=0.0, effect=Effect.DRAWS, help="Top-a.", least=0, most=1)


@pytest.fixture
def top_a() -> Iterator[Parameter]:
    yield register(TOP_A)
    forget(TOP_A)


def read(**given: Any) -> Sampling:
    return Sampling().having(read_values(given, lambda name, problem: ParityError(f"{name} {problem}")))


def test_what_a_value_must_be_is_a_message_in_every_language() -> None:
    with pytest.raises(TypeError) as refused:
        Form.TOKENS.read("x")
    said = said_by(refused.value)
    assert render(said, "en") == 'must be a list of token ids, not "x"'
    assert render(said, "zh") == '必须是 token id 列表，不能是 "x"'


def test_what_is_read_is_written_again() -> None:
    given = {
        "temperature": 1, "stop": ["a", "b"], "bad_words": ["x"], "allowed_token_ids": [3, 4],
        "structured_outputs": {"json": {"type": "object"}}, "logit_bias": {"7": -1.5}, "seed": None,
    }  # fmt: skip
    sampling = read(**given)
    assert sampling.temperature == 1.0
    assert sampling.logit_bias == {7: -1.5}
    assert {name: sampling.to_json()[name] for name in given} == given
    assert read(**sampling.to_json()) == sampling


def test_what_plans_had_from_the_beginning_is_always_written_and_what_came_later_where_it_is_asked_for() -> None:
    assert list(Sampling().to_json()) == [
        "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "max_tokens", "min_tokens", "n", "seed", "stop", "stop_token_ids", "ignore_eos", "skip_special_tokens",
        "logprobs",
    ]  # fmt: skip
    assert "bad_words" in read(bad_words=["x"]).to_json()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"max_tokens": "8"}, 'max_tokens must be a whole number, not "8"'),
        ({"max_tokens": True}, "max_tokens must be a whole number"),
        ({"min_p": None}, "min_p must be a number, not null"),
        ({"ignore_eos": 1}, "ignore_eos must be true or false"),
        ({"stop": [1]}, "stop must be a list of strings"),
        ({"allowed_token_ids": ["a"]}, "allowed_token_ids must be a list of token ids"),
        ({"logit_bias": {"a": 1}}, "logit_bias must be an object of numbers by token id"),
        ({"structured_outputs": {"yaml": "x"}}, "structured_outputs must be an object with one of json, regex"),
        ({"structured_outputs": {"regex": "a", "grammar": "b"}}, "not 2 of them"),
        ({"structured_outputs": {}}, "not 0 of them"),
        ({"structured_outputs": {"choice": [1]}}, "has a choice that is"),
        ({"beam": 3}, "beam is not a sampling parameter this parity knows"),
        ({"guided_decoding": {}}, "guided_decoding is not a sampling parameter this parity knows"),
    ],
)
def test_a_value_of_another_form_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParityError) as caught:
        read(**given)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("given", "problem", "hint"),
    [
        ({"temperature": -1.0}, "temperature is -1", "give 0 to 2"),
        ({"temperature": 5.0}, "temperature is 5", "give 0 to 2"),
        ({"top_k": -1}, "top_k is -1", "give 0 or more"),
        ({"top_p": 0.0}, "top_p is 0", "give more than 0"),
        ({"min_p": 2.0}, "min_p is 2", "give 0 to 1"),
        ({"presence_penalty": -3.0}, "presence_penalty is -3", "give -2 to 2"),
        ({"stop": ("",)}, 'stop has [""]', "leave out texts that are empty"),
        ({"allowed_token_ids": (-1,)}, "allowed_token_ids has [-1]", "token ids below 0"),
        ({"allowed_token_ids": ()}, "allowed_token_ids is empty", "name at least one"),
        ({"min_tokens": 200}, "min_tokens is 200, max_tokens 128", "at most"),
        ({"n": 2}, "greedy decoding gives the same sample 2 times", "--temperature"),
    ],
)
def test_a_value_out_of_range_is_refused(given: dict[str, Any], problem: str, hint: str) -> None:
    with pytest.raises(ParityError) as caught:
        Sampling().having(given).check()
    assert problem in str(caught.value)
    assert hint in str(caught.value.hint)


def test_a_parameter_of_later_is_one_like_the_others(top_a: Parameter) -> None:
    sampling = read(top_a=0.5, top_p=0.9)
    assert sampling.value("top_a") == 0.5
    assert sampling.to_json()["top_a"] == 0.5
    assert (top_a, 0.5) in list(sampling)
    assert parameter("top_a") in asked()
    with pytest.raises(ParityError, match="top_a is 2"):
        sampling.having({"top_a": 2.0}).check()
    assert Sampling().value("top_a") == 0.0


def test_names_are_taken_once(top_a: Parameter) -> None:
    for row in (Parameter(name="top_a", form=Form.FLAG, default=False, effect=Effect.ENDS), parameter("stop")):
        assert row is not None
        with pytest.raises(ValueError, match="already"):
            register(row)
    assert [row.name for row in parameters()].count("top_a") == 1


def test_a_value_is_plain_whichever_way_its_absence_is_written() -> None:
    for name, ways in {
        "stop": [None, [], ()], "top_k": [None, 0, -1], "logit_bias": [None, {}], "min_p": [None, 0, 0.0],
    }.items():  # fmt: skip
        row = parameter(name)
        assert row is not None
        assert len({repr(row.plain(way) or None) for way in ways}) == 1, name


def test_a_parameter_of_the_random_choice_means_nothing_in_greedy_decoding() -> None:
    top_p, stop, temperature = parameter("top_p"), parameter("stop"), parameter("temperature")
    assert top_p is not None
    assert stop is not None
    assert temperature is not None
    assert not top_p.means_something(0.5, 0.0)
    assert top_p.means_something(0.5, 0.7)
    assert stop.means_something(("a",), 0.0)
    assert temperature.means_something(0.7, 0.7)
