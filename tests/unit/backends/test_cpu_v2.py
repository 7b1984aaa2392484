"""The adapter of vLLM's second model runner on a processor: what stands in for a GPU, and what it leaves on."""

from __future__ import annotations

import ast
import configparser
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from parity_interpreted_triton import asynchronous

from parity.run import load_backend
from parity.run.backend import impossible


def test_its_environment_has_what_triton_and_vllm_look_for() -> None:
    spec = load_backend("cpu-v2").env_spec()
    assert spec is not None
    files = dict(spec.overlay)
    points = configparser.ConfigParser()
    points.read_string(files["parity_interpreted_triton-1.dist-info/entry_points.txt"])
    assert dict(points["triton.backends"]) == {"cpu": "parity_interpreted_triton"}
    module, _, name = points["vllm.general_plugins"]["parity_interpreted_triton"].partition(":")
    defined = ast.parse(files[f"{module.replace('.', '/')}.py"]).body
    assert name in {one.name for one in defined if isinstance(one, ast.FunctionDef)}


def test_asynchronous_scheduling_is_run_there_and_nowhere_else_on_a_processor() -> None:
    asked = {"async_scheduling": True}
    assert impossible(load_backend("cpu-v2"), asked, {}) is None
    assert "async" in str(impossible(load_backend("cpu"), asked, {}))
    assert "graphs" in str(
        impossible(load_backend("cpu-v2"), {**asked, "compilation_config": {"cudagraph_mode": "FULL"}}, {})
    )


@pytest.mark.parametrize("asked", [True, False])
def test_the_platform_does_not_turn_off_what_was_asked(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    class CpuPlatform:
        @classmethod
        def check_and_update_config(cls, vllm_config: Any) -> None:
            vllm_config.scheduler_config.async_scheduling = False
            vllm_config.checked += 1

    monkeypatch.setitem(sys.modules, "vllm.platforms.cpu", SimpleNamespace(CpuPlatform=CpuPlatform))
    config = SimpleNamespace(scheduler_config=SimpleNamespace(async_scheduling=asked), checked=0)
    for _ in range(2):  # vLLM loads its plugins more than once
        asynchronous.install()
    CpuPlatform.check_and_update_config(config)
    assert (config.scheduler_config.async_scheduling, config.checked) == (asked, 1)
