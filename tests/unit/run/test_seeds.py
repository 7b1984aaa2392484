"""Sampled requests draw independently of each other: each has a seed of its own."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from parity_backends.server.worker.server_arm import ServerArm
from parity_backends.vllm.worker import arm as worker_arm
from parity_backends.worker.seeds import seed_of

SAMPLED = {"temperature": 0.8, "seed": 0, "n": 4, "max_tokens": 8}
REQUESTS = [{"id": f"p{number}", "prompt_token_ids": [5, 6]} for number in range(64)]


class Params:
    def __init__(self, **wanted: Any) -> None:
        self.__dict__.update(wanted)


def engine_seeds(monkeypatch: pytest.MonkeyPatch, sampling: dict[str, Any], round_: int) -> list[int | None]:
    """What an engine is given for REQUESTS."""
    vllm, inner = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vllm.SamplingParams = Params  # type: ignore[attr-defined]
    inner.RequestOutputKind = SimpleNamespace(FINAL_ONLY=1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", inner)
    monkeypatch.setattr(worker_arm, "translate_sampling", lambda wanted, table, rows: (wanted, []))
    arm = SimpleNamespace(plan={"sampling": sampling}, table={}, _flat=lambda params: params)
    return [getattr(worker_arm.Arm._params(arm, one, round_), "seed", None) for one in REQUESTS]  # type: ignore[arg-type]


def server_seeds(sampling: dict[str, Any], round_: int) -> list[int | None]:
    """What a server is sent for REQUESTS."""
    sent: list[dict[str, Any]] = []

    def post_json(path: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        sent.append(body)
        return {"choices": [{"index": index, "text": "x"} for index in range(4)]}, 4

    arm = SimpleNamespace(
        server={"model": "m"}, path="/v1/completions", dialect="vllm", wrap=False, as_text=False, rows={},
        lists_ids=False, endpoint=SimpleNamespace(post_json=post_json),
    )  # fmt: skip
    arm._answered = partial(ServerArm._answered, arm)
    for one in REQUESTS:
        ServerArm._ask(arm, one, sampling, round_, stream=False)  # type: ignore[arg-type]
    return [body.get("seed") for body in sent]


def test_no_two_samples_of_a_run_share_a_seed_and_every_run_has_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [engine_seeds(monkeypatch, SAMPLED, round_) for round_ in range(3)]
    samples = {seed + sample for one in seeds for seed in one if seed is not None for sample in range(4)}
    assert len(samples) == 3 * 64 * 4
    assert min(samples) >= 0
    assert max(samples) < 2**31 + 4
    assert seeds == [engine_seeds(monkeypatch, SAMPLED, round_) for round_ in range(3)]
    assert seeds[1] == server_seeds(SAMPLED, 1)


def test_greedy_requests_and_plans_without_a_seed_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for sampling in ({**SAMPLED, "temperature": 0.0}, {**SAMPLED, "seed": None}):
        assert set(engine_seeds(monkeypatch, sampling, 0)) == {None}
        assert set(server_seeds(sampling, 0)) == {None}


@pytest.mark.parametrize("seed", [-3, 2**40, 7])
def test_any_seed_becomes_one_that_servers_take(seed: int) -> None:
    found = seed_of({**SAMPLED, "seed": seed}, "p", 2)
    assert found is not None
    assert 0 <= found < 2**31
    assert found != seed_of({**SAMPLED, "seed": seed + 1}, "p", 2)
