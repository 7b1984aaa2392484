"""Doors of model runners that differ from release to release, and logits' first best."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from parity_backends.vllm import local


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    module = ModuleType("worker_of_doors")
    exec(compile(local.worker_source(), "worker.py", "exec"), module.__dict__)
    return module


def runner_with(**methods: Any) -> Any:
    return SimpleNamespace(
        attn_groups=(), input_batch=SimpleNamespace(), execute_model=lambda scheduled: None,
        _sample=lambda logits, metadata: None, sample_tokens=lambda grammar: None, **methods,
    )  # fmt: skip


def forward(input_ids: Any = None, positions: Any = None, intermediate_tensors: Any = None) -> Any:
    return input_ids, positions


def padded_forward(num_tokens_padded: int, input_ids: Any = None, positions: Any = None) -> Any:
    return input_ids, positions


def own_forward(padded: int, input_ids: Any, positions: Any, tensors: Any) -> Any:
    return input_ids, positions


@pytest.mark.parametrize(
    ("methods", "called", "args"),
    [
        ({"_model_forward": forward}, "_model_forward", ("ids", "at")),
        ({"_model_forward": padded_forward}, "_model_forward", (8, "ids", "at")),  # vllm-ascend 0.18.0, 0.23.0
        (
            {"_model_forward": forward, "_generate_process_reqs_hidden_states": own_forward},  # vllm-ascend 0.13.0
            "_generate_process_reqs_hidden_states",
            (8, "ids", "at", None),
        ),
    ],
)
def test_ids_and_positions_are_found_by_name(
    worker: ModuleType, methods: dict[str, Any], called: str, args: tuple[Any, ...]
) -> None:
    runner = runner_with(**methods)
    recorder = worker.record_runner(runner, None, print, "a", lambda name: None)
    seen: list[Any] = []
    recorder._forward = lambda sight, ids, positions: seen.append((ids, positions))
    recorder.on, recorder.sight = True, worker.Sight(0, 0)
    assert getattr(runner, called)(*args) == ("ids", "at")
    assert seen == [("ids", "at")]


def test_a_runner_without_a_door_says_so(worker: ModuleType) -> None:
    runner = runner_with(_model_forward=forward)
    del runner.sample_tokens
    with pytest.raises(worker.Unrecordable, match="has no sample_tokens"):
        worker.record_runner(runner, None, print, "a", lambda name: None)


def test_requests_that_came_back_are_known_in_old_and_new_releases(worker: ModuleType) -> None:
    new = SimpleNamespace(req_ids=["a", "b"], resumed_req_ids={"b"})
    old = SimpleNamespace(req_ids=["a", "b"], resumed_from_preemption=[False, True])
    assert worker.resumed_names(new) == worker.resumed_names(old) == {"b"}


class OnDevice:
    """A tensor whose values are settled once it has been asked for on the host."""

    is_cpu = False

    def __init__(self, values: Any) -> None:
        self.values = values

    def cpu(self) -> Any:
        return SimpleNamespace(is_cpu=True, numpy=lambda: self.values)


def test_drafts_on_a_device_are_waited_for(worker: ModuleType) -> None:
    """With synchronous scheduling on CUDA the runner keeps its drafts there (vLLM 0.23.0)."""
    batch = SimpleNamespace(num_tokens_no_spec=np.array([5, 6]), token_ids_cpu=np.zeros((2, 8), dtype=np.int32))
    drafts = OnDevice(np.array([[1, 2], [3, 4], [0, 0]]))
    runner = runner_with(_model_forward=forward, _draft_token_ids=drafts, speculative_config=object())
    recorder = worker.record_runner(runner, None, print, "a", lambda name: None)
    runner.input_batch, recorder.unseen["kept"] = batch, "not looked for here"
    sight = worker.Sight(0, 0)
    sight.names = ["a", "b"]
    recorder._tokens(sight, SimpleNamespace(req_id_to_index={"a": 0, "b": 1}, sampled_token_ids=[[7], [8]]))
    assert sight.proposed.tolist() == [[1, 2], [3, 4]]
    assert "proposed" not in recorder.unseen


def test_the_plugin_is_one_file_that_compiles_and_is_the_same_each_time() -> None:
    assert local.recorder_plugin() == local.recorder_plugin()
    compile(local.bundle("parity_backends.vllm.worker", local.RECORDER_MODULES), "parity_record.py", "exec")
