"""Requests of a server's own steps, named by the ids of its answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from step_world import World

from parity.capture.steps import RowSteps, StepRequest
from parity.pipeline.server_steps import arms_by_answers, named_by_server
from parity.records import Capture, Completion, Header, Key


def completion(key: Key, answer: str) -> Completion:
    return Completion(key, np.array([1]), np.array([2]), None, None, None, server={"id": answer})


CAPTURE = Capture(
    Header("server/base", "server", "base", "tiny"),
    {
        key: completion(key, answer)
        for key, answer in (
            (Key("a", 0, 0), "cmpl-1f"),
            (Key("b", 2, 0), "cmpl-1f0"),
            (Key("c", 0, 0), "chatcmpl-7"),
            (Key("c", 0, 1), "chatcmpl-7"),
        )
    },
    {},
)


def steps_of(*names: str) -> RowSteps:
    requests = {number: StepRequest(number=number, engine_id=name) for number, name in enumerate(names)}
    return replace(World(0).recorded(), requests=requests)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cmpl-1f-0-9d21ab44", Key("a", 0, 0)),
        ("cmpl-1f0-0", Key("b", 2, 0)),
        ("0_chatcmpl-7-aa", Key("c", 0, 0)),
        ("1_chatcmpl-7-aa", Key("c", 0, 1)),
        ("2_chatcmpl-7-aa", None),
        ("cmpl-2-0", None),
        ("", None),
    ],
)
def test_a_request_is_the_completion_of_its_answer(name: str, key: Key | None) -> None:
    assert named_by_server(CAPTURE, steps_of(name)).requests[0].key == key


def test_what_has_a_name_keeps_it() -> None:
    steps = World(1).recorded()
    assert named_by_server(CAPTURE, steps) is steps


def test_the_arms_are_those_of_the_answers() -> None:
    other = replace(CAPTURE, header=Header("other", "server", "base", "tiny"), completions={})
    assert arms_by_answers([other, CAPTURE], steps_of("cmpl-1f-0-9d21ab44", "cmpl-2-0")) == ["server/base"]
    assert arms_by_answers([other, CAPTURE], steps_of("cmpl-2-0")) == []


def test_a_server_that_was_both_arms_has_steps_of_both() -> None:
    key = Key("a", 0, 0)
    other = replace(
        CAPTURE, header=Header("server/again", "server", "again", "tiny"), completions={key: completion(key, "cmpl-9")}
    )
    assert arms_by_answers([CAPTURE, other], steps_of("cmpl-1f-0", "cmpl-9-0")) == ["server/base", "server/again"]
