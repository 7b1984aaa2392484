"""What a backend needs where requests are sampled with seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parity.pipeline.planning import PlanRequest, load_backends, make_plan
from parity.plan import Plan, Sampling
from parity.plan.matrix import parse_axis
from parity.run import Seeded

WANTED = {"temperature": 0.8, "max_tokens": 16}


def planned(sampling: dict[str, Any], backend: str = "cpu", **fields: Any) -> Plan:
    adapters = load_backends([backend])
    model = load_backends(["cpu"])["cpu"].default_model()
    return make_plan(PlanRequest(suite="smoke", model=model, sampling=Sampling(**sampling), **fields), adapters)


def settings(plan: Plan) -> set[tuple[Any, Any]]:
    return {(arm.engine["enable_chunked_prefill"], arm.engine["max_num_batched_tokens"]) for arm in plan.arms}


def test_a_cpu_takes_prompts_in_one_piece() -> None:
    """It cannot rewind a request's generator, and would do so at each cut."""
    plan = planned(WANTED, positive_controls=("loop:rate=0.5",))
    assert len(plan.arms) == 3
    assert settings(plan) == {(False, 2048)}
    backend = load_backends(["cpu"])["cpu"]
    assert isinstance(backend, Seeded)
    longest = backend.for_seeds({"enable_chunked_prefill": True, "max_num_batched_tokens": 2048, "max_model_len": 4096})
    assert longest["max_num_batched_tokens"] == 4096
    assert "--engine enable_chunked_prefill=false" in str(backend.explain("CPU Generator does not use offset"))


def test_a_temperature_of_one_request_counts(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Hello"}\n{"prompt": "Hello", "sampling": {"temperature": 0.8}}\n')
    model = load_backends(["cpu"])["cpu"].default_model()
    request = PlanRequest(prompts=prompts, model=model, sampling=Sampling(max_tokens=16))
    assert settings(make_plan(request, load_backends(["cpu"]))) == {(False, 2048)}


@pytest.mark.parametrize(
    ("sampling", "backend"),
    [({**WANTED, "temperature": 0.0}, "cpu"), ({**WANTED, "seed": None}, "cpu"), (WANTED, "cuda"), (WANTED, "ascend")],
)
def test_nothing_changes_elsewhere(sampling: dict[str, Any], backend: str) -> None:
    assert settings(planned(sampling, backend)) == {(True, 2048)}


def test_what_was_asked_for_stays() -> None:
    assert settings(planned(WANTED, engine={"enable_chunked_prefill": True})) == {(True, 2048)}
    both = planned(WANTED, vary=[parse_axis("enable_chunked_prefill=true,false")])
    assert settings(both) == {(True, 2048), (False, 2048)}
    # A step of 48 tokens takes no whole prompt: the engine would not start.
    small = planned(WANTED, engine={"max_num_batched_tokens": 48})
    assert settings(small) == {(True, 48)}
