"""Sampling parameters of requests: through plan and file, and refused before an engine starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import parity
from parity.errors import ParityError
from parity.plan import Arm, Plan, Prompt, Sampling, build_plan, read_checkpoint, read_plan
from parity.plan.digest import plan_hash
from parity.plan.prompts import asking
from parity.records.engine_settings import pinned_settings
from parity.records.plan_digest import plan_digest

MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"
ENGINE = dict.fromkeys(pinned_settings(), 1)
BASE = Arm("cpu/base", "cpu", "base", ENGINE)
SPECULATING = replace(BASE, name="cpu/mtp", variant="mtp", engine={**ENGINE, "speculative_config": {"method": "mtp"}})
PLAIN = Prompt("a", token_ids=(3, 4, 5))


def planned(*own: dict[str, Any], arms: tuple[Arm, ...] = (BASE, SPECULATING), **sampling: Any) -> Plan:
    prompts = [PLAIN, *(asking(Prompt(f"own{i}", token_ids=(6, 7)), one) for i, one in enumerate(own))]
    return build_plan(read_checkpoint(MODEL), prompts, arms, sampling=Sampling(**sampling))


def test_a_requests_own_parameters_survive_the_file_and_leave_the_others_as_they_were(tmp_path: Path) -> None:
    own = {"temperature": 0.7, "stop": ("x",), "max_tokens": 9, "bad_words": ("the",), "seed": 3}
    plan = planned(own, {"structured_outputs": {"choice": ["yes", "no"]}})
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan.to_json()))
    assert read_plan(file) == plan
    written = json.loads(file.read_text())["requests"]
    assert set(written[0]) == {"id", "prompt", "prompt_token_ids"}
    assert written[1]["max_tokens"] == 9
    assert written[1]["sampling"] == {"temperature": 0.7, "stop": ["x"], "bad_words": ["the"], "seed": 3}
    assert plan.sampling_of(plan.requests[1]) == Sampling(**own)
    assert plan.sampling_of(plan.requests[0]) == plan.sampling


def test_what_a_request_asks_for_is_part_of_the_digest() -> None:
    plans = [planned(own) for own in ({}, {"top_p": 0.5}, {"top_p": 0.6})]
    assert len({plan_digest(plan.to_json()) for plan in plans}) == len({plan_hash(plan) for plan in plans}) == 3


@pytest.mark.parametrize(
    ("sampling", "own", "problem"),
    [
        ({"logit_bias": {4: 1.0}}, {}, "cpu/mtp speculates, and vLLM takes no logit_bias"),
        ({"min_p": 0.1, "temperature": 0.7}, {}, "takes no min_p together with speculative decoding (request a)"),
        ({}, {"logit_bias": {4: 1.0}}, "takes no logit_bias together with speculative decoding (request own0)"),
        ({"min_p": 0.1}, {"temperature": 0.7}, "takes no min_p together with speculative decoding (request own0)"),
        ({}, {"top_p": 1.5}, "request own0: top_p is 1.5"),
        ({}, {"min_tokens": 9, "max_tokens": 4}, "request own0: min_tokens is 9, max_tokens 4"),
        ({}, {"max_tokens": 500}, "request 'own0' has max_tokens 500, the plan 128"),
        ({}, {"stop_token_ids": (2048,)}, "request own0: stop_token_ids has the token id 2048, outside"),
        ({"allowed_token_ids": (5, 9999)}, {}, "request a: allowed_token_ids has the token id 9999, outside"),
    ],
)
def test_what_an_engine_would_refuse_is_said_before_one_starts(
    sampling: dict[str, Any], own: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ParityError) as caught:
        planned(own, **sampling)
    assert problem in str(caught.value)
    assert caught.value.hint is not None


@pytest.mark.parametrize("sampling", [{"min_p": 0.1}, {"min_p": 0.0, "temperature": 0.7}])
def test_what_means_nothing_is_not_refused(sampling: dict[str, Any]) -> None:
    assert planned(**sampling).arms[1] == planned().arms[1]


def test_arms_that_do_not_speculate_take_all_of_it() -> None:
    arms = (BASE, replace(BASE, name="cpu/other"))
    assert planned(arms=arms, logit_bias={4: 1.0}).sampling.logit_bias == {4: 1.0}


def test_a_request_that_says_how_it_ends_still_ends_at_the_other_eos_tokens() -> None:
    checkpoint = read_checkpoint(MODEL)
    both = replace(checkpoint, model=replace(checkpoint.model, eos_token_ids=(0, 2)))
    owns: list[dict[str, Any]] = [{"stop_token_ids": (7,)}, {"ignore_eos": True}, {"top_p": 0.5}]
    prompts = [asking(Prompt(f"p{i}", token_ids=(6, 7)), own) for i, own in enumerate(owns)]
    plan = build_plan(both, prompts, (BASE, SPECULATING))
    assert [plan.sampling_of(one).stop_token_ids for one in plan.requests] == [(2, 7), (), (2,)]
