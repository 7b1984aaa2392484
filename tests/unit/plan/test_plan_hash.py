"""A plan as one number: made piece by piece, and the same as made at once."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from parity.pipeline.analyse import hash_of_captures, plan_of_captures
from parity.plan import Plan
from parity.plan.digest import plan_hash
from parity.records import Capture, Completion, Header, Key


def at_once(plan: Plan, sampling: Any) -> str:
    content = {
        "model": plan.model.fingerprint or plan.model.name,
        "rounds": plan.rounds or None,
        "sampling": sampling,
        "requests": [
            [one.id, one.prompt_token_ids, *([one.own_json()] if one.sampling else [])] for one in plan.requests
        ],
        "arms": [[arm.name, dict(arm.engine)] for arm in plan.arms],
        "baseline": plan.baseline,
    }
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


def capture(arm: str, requests: list[str]) -> Capture:
    sampling = {"temperature": 0.0, "max_tokens": 4, "n": 1}
    header = Header(arm, "a", arm[2:], "m", engine={"seed": 0, "dtype": "bfloat16"}, sampling=sampling)
    rows = [
        Completion(Key(name, number, 0), np.arange(number + 3), np.array([1]), None, "length", None)
        for number, name in enumerate(requests)
    ]
    return Capture(header, {one.key: one for one in rows}, {})


@pytest.mark.parametrize("requests", [[], ["p0"], ["p0", 'ä"b', "p0", "p2"]])
def test_captures_have_the_hash_of_their_plan(requests: list[str]) -> None:
    baseline, candidate = capture("a/base", requests), capture("a/mtp", [*requests, "more"])
    plan, sampling = plan_of_captures(baseline, [candidate]), baseline.header.sampling
    assert [one.id for one in plan.requests] == [*dict.fromkeys([*requests, "more"])]
    assert hash_of_captures(baseline, candidate) == plan_hash(plan, sampling=sampling) == at_once(plan, sampling)


def test_a_requests_own_parameters_count() -> None:
    plan = plan_of_captures(capture("a/base", ["p0", "p1"]), [capture("a/mtp", ["p0"])])
    first, second = plan.requests
    other = replace(plan, requests=(replace(first, sampling={"temperature": 0.5}), second))
    sampling = {"temperature": 0.0}
    assert plan_hash(other, sampling=sampling) == at_once(other, sampling)
    assert plan_hash(other, sampling=sampling) != plan_hash(plan, sampling=sampling)
