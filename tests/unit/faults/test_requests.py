"""Rules of a request that are lost on its way in, and faults of whole runs: without an engine."""

from __future__ import annotations

import sys
from copy import copy
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from parity_backends.vllm import local
from parity_faults import catalogue, hooks, launch, planting, plants

ASKED = {
    "penalties_ignored": {"repetition_penalty": 1.2},
    "temperature_leak": {"temperature": 0.8},
    "bad_words_ignored": {"bad_words": ["no"], "_bad_words_token_ids": [[5]]},
    "allowed_ignored": {"allowed_token_ids": [1, 2]},
    "min_tokens_ignored": {"min_tokens": 9},
    "stop_ignored": {"stop": ["."], "stop_token_ids": [3]},
    "grammar_ignored": {"structured_outputs": {"regex": "[a-z]+"}},
}


class Status(Enum):
    WAITING = 1
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = 2


class Params(SimpleNamespace):
    def clone(self) -> Params:
        return copy(self)


def params(**given: Any) -> Params:
    plain: dict[str, Any] = {
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "temperature": 0.0,
        "bad_words": [],
        "_bad_words_token_ids": None,
        "allowed_token_ids": None,
        "min_tokens": 0,
        "stop": [],
        "stop_token_ids": [],
        "structured_outputs": None,
    }
    return Params(**{**plain, **given})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scheduler and a detokenizer of a few lines, wrapped as the engine's are; `requests` and `log` to look at."""

    class Scheduler:
        def __init__(self) -> None:
            self.requests: dict[str, Any] = {}

        def add_request(self, request: Any) -> None:
            self.requests[request.request_id] = request

    class BaseIncrementalDetokenizer:
        def __init__(self, request: Any) -> None:
            self.stop, self.stop_buffer_length = request.sampling_params.stop, 1

    module = ModuleType("vllm.v1.engine.detokenizer")
    module.BaseIncrementalDetokenizer = BaseIncrementalDetokenizer  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.v1", "vllm.v1.engine"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.detokenizer", module)
    state = hooks.State()
    log: list[dict[str, Any]] = []
    monkeypatch.setattr(state, "write", log.append)
    monkeypatch.setattr(hooks, "STATE", state)
    hooks.wrap_requests(Scheduler)
    return SimpleNamespace(scheduler=Scheduler(), detokenizer=BaseIncrementalDetokenizer, log=log, state=state)


def add(engine: Any, number: int, asked: Params) -> Any:
    grammar = SimpleNamespace() if asked.structured_outputs else None
    status = Status.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR if grammar else Status.WAITING
    request = SimpleNamespace(
        request_id=f"{number}-a1b2",
        prompt_token_ids=[number, 7],
        sampling_params=asked,
        structured_output_request=grammar,
        status=status,
    )
    engine.scheduler.add_request(request)
    return request


@pytest.mark.parametrize("name", plants.REQUEST)
def test_a_rule_is_lost_in_the_engine_alone_and_written_down(engine: Any, name: str) -> None:
    engine.state.configure(planting.parse(name), "-")
    asked = params(**ASKED[name])
    request = add(engine, 1, asked)
    assert asked == params(**ASKED[name])  # what the caller holds stays
    assert request.sampling_params == params()
    assert (request.structured_output_request, request.status) == (None, Status.WAITING)
    assert [one["record"] for one in engine.log] == ["installed", "planted"]


@pytest.mark.parametrize("name", plants.REQUEST)
def test_where_nothing_was_asked_nothing_is_planted(engine: Any, name: str) -> None:
    engine.state.configure(planting.parse(name), "-")
    assert add(engine, 1, params()).sampling_params == params()
    assert [one["record"] for one in engine.log] == ["installed"]


def test_a_temperature_is_that_of_another_request(engine: Any) -> None:
    add(engine, 1, params(temperature=0.2))
    engine.state.configure(planting.parse("temperature_leak"), "-")
    assert add(engine, 2, params(temperature=0.8)).sampling_params.temperature == 0.2


def test_stop_strings_are_lost_in_the_front_end_for_the_same_requests(engine: Any) -> None:
    engine.state.configure(planting.parse("stop_ignored:rate=0.5"), "-")
    lost = []
    for number in range(40):
        asked = params(stop=["."])
        seen = SimpleNamespace(request_id=f"{number}-c3d4", prompt_token_ids=[number, 7], sampling_params=asked)
        without = engine.detokenizer(seen).stop == []
        assert without == (add(engine, number, asked).sampling_params.stop == [])
        lost.append(without)
    assert 10 < sum(lost) < 30


def test_the_rate_is_a_share_of_the_requests_by_seed() -> None:
    def chosen(seed: int, rate: float) -> list[int]:
        state = hooks.State()
        state.planting = planting.Planting("stop_ignored", rate=rate, seed=seed)
        requests = [SimpleNamespace(request_id=f"{n}-ff", prompt_token_ids=[4, 5]) for n in range(1000)]
        return [n for n, request in enumerate(requests) if state.chooses(request)]

    few = chosen(1, 0.07)
    assert 40 < len(few) < 105
    assert few == chosen(1, 0.07)
    assert few != chosen(2, 0.07)
    assert len(chosen(1, 1.0)) == 1000


def test_options_of_whole_runs_stand_in_the_text() -> None:
    biased = planting.parse("logit_bias:millinats=20:share=4")
    assert (biased.millinats, biased.share) == (20, 4)
    assert planting.parse(biased.to_text()) == biased
    assert planting.parse("weight_quant").bits == 8
    with pytest.raises(ValueError, match="permille=3"):
        planting.parse("logit_bias:permille=3")


@pytest.mark.parametrize("name", catalogue.FAULTS)
def test_only_what_sits_in_the_model_runner_asks_for_the_first_one(name: str) -> None:
    variables = launch.environment(name)
    assert ("VLLM_USE_V2_MODEL_RUNNER" in variables) == (catalogue.FAULTS[name].layer == "runner")
    assert planting.parse(variables["PARITY_FAULT"]).fault == name


def test_a_control_has_the_rate_that_shows_it() -> None:
    assert planting.parse(local.plant("kv_fp8")["PARITY_FAULT"]).rate == 1.0
    assert planting.parse(local.plant("rope_off")["PARITY_FAULT"]).rate == 0.05
    assert planting.parse(local.plant("kv_fp8:rate=0.5")["PARITY_FAULT"]).rate == 0.5
    assert planting.parse(local.plant("row_swap")["PARITY_FAULT"]).rate == 0.1
