"""Sampling parameters of requests' own on real vLLM, all in one batch: each does what it says, to its own request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_plan import make_plan
from plans import plan_of

from parity.capture import check_capture, read_capture
from parity.comparator import CompareOptions, compare
from parity.pipeline.analyse import detokenizer
from parity.records import Capture, Key
from parity.run import Backend, run_arm

pytestmark = pytest.mark.engine

ALLOWED = list(range(5, 16))
STOP_IDS = list(range(256, 400))
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "ages": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name", "ages"],
}
OWN: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop": {"stop": ["e"], "min_tokens": 3},
    "bad": {"bad_words": ["and"]},
    "allowed": {"allowed_token_ids": ALLOWED},
    "presence": {"presence_penalty": 2.0},
    "choice": {"structured_outputs": {"choice": ["yes", "no"]}},
    "regex": {"structured_outputs": {"regex": "[0-9]{3}"}},
    "bias": {"logit_bias": {"7": 100.0}},
    "warm": {"temperature": 2.0, "seed": 3},
    "included": {"stop": ["e"], "include_stop_str_in_output": True},
    "stop id": {"stop_token_ids": STOP_IDS, "min_tokens": 2},
    "special": {"skip_special_tokens": False, "ignore_eos": True},
    "json": {"structured_outputs": {"json": SCHEMA}},
    "grammar": {"structured_outputs": {"grammar": 'root ::= "a" ("b" | "c")* "d"'}},
    "warm rules": {"temperature": 1.5, "seed": 5, "bad_words": ["the", "and"], "min_tokens": 5, "stop": [" a"]},
    "warm json": {"temperature": 1.5, "seed": 6, "structured_outputs": {"json": SCHEMA}},
}
"""Each asked of the same prompt."""


@pytest.fixture(scope="module")
def capture(cpu: Backend, interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """What `cpu/base` says, from one engine start; `cpu/mtp` is left out, since it takes no logit_bias."""
    plan = make_plan(cpu)
    prompt = plan["requests"][0]
    plan["requests"] = [{**prompt, "id": name, **({"sampling": own} if own else {})} for name, own in OWN.items()]
    plan["arms"][1] = {**plan["arms"][0], "name": "cpu/again"}
    path = tmp_path_factory.mktemp("sampling") / "cpu-base.jsonl"
    with run_arm(plan_of(plan), "cpu/base", path, path.with_suffix(".log")) as session:
        session.generate()
    assert check_capture(path) == []
    return read_capture(path)


def said(capture: Capture, request: str) -> list[int]:
    return [int(token) for token in capture.completions[Key(request, 0, 0)].token_ids]


def test_each_request_gets_what_it_asked_for(capture: Capture) -> None:
    plain = said(capture, "plain")
    assert len(plain) == 16
    assert set(said(capture, "allowed")) <= set(ALLOWED)
    assert set(said(capture, "bias")) == {7}
    assert said(capture, "warm") != plain
    presence = said(capture, "presence")
    assert len(set(presence)) / len(presence) > len(set(plain)) / len(plain)
    stopped = capture.completions[Key("stop", 0, 0)]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", "e")
    assert len(stopped.token_ids) > 3
    texts = {name: capture.completions[Key(name, 0, 0)].text or "" for name in OWN}
    assert " and" in texts["plain"]
    assert " and" not in texts["bad"]
    assert texts["choice"] in ("yes", "no")
    assert len(texts["regex"]) == 3
    assert texts["regex"].isdigit()


def test_the_capture_says_what_each_was_asked(capture: Capture) -> None:
    for name, own in OWN.items():
        completion = capture.completions[Key(name, 0, 0)]
        assert completion.sampling == own
        assert capture.sampling_of(completion) == {**capture.header.sampling, **own}
    assert capture.header.engine["dropped"] == {}


def test_an_engine_that_keeps_the_rules_is_not_accused_of_breaking_one(capture: Capture, cpu: Backend) -> None:
    model = Path(make_plan(cpu)["model"]["path"])
    again = replace(capture, header=replace(capture.header, arm="cpu/again"))
    for tokenizer in (detokenizer(model), None):
        result = compare(capture, again, options=CompareOptions(detokenize=tokenizer))
        assert result.corrupt == []
        assert not [reason for reason in result.reasons if "rule" in str(reason)]


def test_each_rule_that_the_engine_kept_can_be_broken(capture: Capture, cpu: Backend) -> None:
    """The completions that had no rules of their own, as if each had been asked for with the rules of another."""
    model = Path(make_plan(cpu)["model"]["path"])
    plain = capture.completions[Key("plain", 0, 0)]
    for name in ("stop", "bad", "allowed", "choice", "regex", "json", "grammar"):
        key = Key(name, 0, 0)
        broken = replace(plain, key=key, sampling=OWN[name])
        candidate = replace(
            capture,
            header=replace(capture.header, arm="cpu/again"),
            completions={**capture.completions, key: broken},
        )
        result = compare(capture, candidate, options=CompareOptions(detokenize=detokenizer(model)))
        assert {finding.request for finding in result.corrupt} == {name}
