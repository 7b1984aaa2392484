"""Plans of somebody else that ask for more than anybody waits for, or nest deeper than can be written again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from plans import fake_plan

from parity.errors import ParityError
from parity.plan import Plan


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: plan.update(rounds=10**12), "completions an arm"),
        (lambda plan: plan["sampling"].update(n=2**40), "completions an arm|n "),
        (lambda plan: plan["sampling"].update(max_tokens=2**62), "max_tokens is"),
        (lambda plan: plan["arms"][1]["engine"].update(a=nested(300)), "nested too deeply"),
        (lambda plan: plan["sampling"].update(temperature=nested(200)), "nested too deeply"),
        (lambda plan: plan["requests"][0].update(id="\ud800"), "cannot be written again"),
        (lambda plan: plan["arms"][1]["engine"].update(a=2**70), "cannot be written again"),
    ],
)
def test_it_is_refused_before_anything_starts(change: Callable[[dict[str, Any]], None], said: str) -> None:
    plan = json.loads(json.dumps(fake_plan().to_json()))
    assert Plan.from_json(json.loads(json.dumps(plan))).rounds
    change(plan)
    with pytest.raises(ParityError, match=said):
        Plan.from_json(plan)
