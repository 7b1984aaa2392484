"""Doors of model runners that differ from release to release, and logits' first best."""

from __future__ import annotations

import sys
import threading
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


def test_slots_are_seen_where_lengths_are_those_of_parts(worker: ModuleType) -> None:
    """MLA's metadata has lengths in its parts alone (vLLM 0.32.0, model_executor/layers/attention/mla_attention.py)."""
    runner = runner_with(_model_forward=forward)
    recorder = worker.record_runner(runner, None, print, "a", lambda name: None)
    recorder.sizes, recorder.kinds, sight = [16], ["unknown"], worker.Sight(0, 0)
    sight.names, sight.groups[0] = ["a", "b"], {}
    tables = [SimpleNamespace(block_size=16)]
    runner.input_batch.block_table = SimpleNamespace(block_tables=tables)
    slots = np.array([5, 6, 40, 0])
    given = SimpleNamespace(
        slot_mapping=SimpleNamespace(is_cpu=True, numpy=lambda: slots), decode=SimpleNamespace(seq_lens=None)
    )
    recorder._group(sight, 0, given, 3)
    assert (sight.groups[0]["slots"].tolist(), recorder.kinds) == ([5, 6, 40], ["attention"])
    assert recorder.unseen["sequence_length/0"]["id"] == "unseen.lengths"


def test_a_runner_without_a_door_says_so(worker: ModuleType) -> None:
    runner = runner_with(_model_forward=forward)
    del runner.sample_tokens
    with pytest.raises(worker.Unrecordable, match="has no sample_tokens"):
        worker.record_runner(runner, None, print, "a", lambda name: None)


def test_requests_that_came_back_are_known_in_old_and_new_releases(worker: ModuleType) -> None:
    new = SimpleNamespace(req_ids=["a", "b"], resumed_req_ids={"b"})
    old = SimpleNamespace(req_ids=["a", "b"], resumed_from_preemption=[False, True])
    assert worker.resumed_names(new) == worker.resumed_names(old) == {"b"}


def of_the_device(values: np.ndarray) -> tuple[np.ndarray, Any]:
    """A copy that is there once its event has been waited for."""
    copy = np.full_like(values, 99)
    return copy, SimpleNamespace(synchronize=lambda: np.copyto(copy, values))


def test_copies_of_a_device_are_waited_for(worker: ModuleType) -> None:
    """Drafts are made after the step's own synchronisation (vLLM 0.23.0, `sample_tokens` of the first runner)."""
    sight = worker.Sight(0, 0)
    sight.names = ["a", "b"]
    sight.proposed, sight.ready = of_the_device(np.array([[1, 2], [3, 4]]))
    sight.wait()
    sight.settle()
    assert sight.lists["proposed"].values.tolist() == [1, 2, 3, 4]


def test_what_the_second_runner_makes_of_them_waits_too(worker: ModuleType) -> None:
    """It goes on after `get_output` (vLLM 0.32.0, `postprocess_sampled` and the drafter)."""
    sight = worker.Sight(0, 0)
    sight.names = ["a", "b"]
    proposed, sight.ready = of_the_device(np.array([[1, 2], [3, 4]]))
    sight.arrays.update(
        index_of_row=np.array([7, 5]), index=np.array([7, 5]), drafts_asked=np.array([0, 1]), proposed=proposed,
        drafts_held=np.array([[8, 8], [9, 9]]), made=np.array([1, 2]), matrix=np.array([[6, 0, 0], [7, 8, 0]]),
    )  # fmt: skip
    sight.resolve = worker.resolve
    sight.wait()
    sight.settle()
    assert sight.lists["proposed"].values.tolist() == [1, 2, 3, 4]
    assert sight.lists["drafts"].values.tolist() == [9]
    assert sight.numbers["index_row"] == [0, 1]


@pytest.mark.parametrize("device", ["npu:0", "cuda"])
def test_the_event_is_of_the_tensors_device(worker: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {name: SimpleNamespace(Event=name) for name in ("npu", "cuda")}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**kinds))
    assert worker.event_of(device) == device.partition(":")[0]


def test_the_engines_thread_waits_for_them(worker: ModuleType) -> None:
    """On an NPU another thread has no context to wait in."""
    blocks = worker.StepBlocks(lambda record: None, lambda columns: {}, 0)
    where: list[int] = []
    sight = worker.Sight(0, 0)
    sight.ready = SimpleNamespace(synchronize=lambda: where.append(threading.get_ident()))
    blocks.held.append(sight)
    with pytest.raises(IndexError):  # a step of which nothing was said makes no block
        blocks.close(wait=True)
    assert where == [threading.get_ident()]


def asynchronous(**more: Any) -> Any:
    config = SimpleNamespace(scheduler_config=SimpleNamespace(async_scheduling=True))
    return runner_with(_model_forward=forward, vllm_config=config, **more)


class Cutting:
    """As vLLM's scheduler: of the runner's list it keeps what stands before the stop."""

    def update_from_output(self, scheduled: Any, output: Any) -> dict[int, Any]:
        del output.sampled_token_ids[0][1:]
        one = SimpleNamespace(request_id="a", finish_reason=None, new_token_ids=output.sampled_token_ids[0])
        return {0: SimpleNamespace(outputs=[one])}


def test_under_asynchronous_scheduling_tokens_are_read_before_the_scheduler_cuts_them(worker: ModuleType) -> None:
    scheduler = Cutting()
    runner = asynchronous(speculative_config=object())
    recorder = worker.record_runner(runner, scheduler, print, "a", lambda name: None)
    assert set(recorder.unseen) == {"computed", "sampler_drafts", "kept", "buffer_length", "buffer_last"}
    recorder.on, sight, scheduled = True, worker.Sight(0, 0), object()
    recorder.finished = lambda sight: None
    sight.names = ["a"]
    recorder.waiting.append((scheduled, sight))
    output = SimpleNamespace(req_id_to_index={"a": 0}, sampled_token_ids=[[7, 8, 9]])
    scheduler.update_from_output(scheduled, output)
    sight.empty.append("proposed")
    sight.settle()
    assert worker.as_ragged([sight.lists["handed"]]).values.tolist() == [7, 8, 9]
    assert worker.as_ragged([sight.lists["given"]]).values.tolist() == [7]
    assert not recorder.stopped


def test_of_a_rank_nobody_sees_what_is_handed_out_then(worker: ModuleType) -> None:
    recorder = worker.record_runner(asynchronous(speculative_config=None), None, print, "a", lambda name: None)
    assert {"handed", "given", "finish"} <= set(recorder.unseen)
    assert "computed" not in recorder.unseen


def test_the_plugin_is_one_file_that_compiles_and_is_the_same_each_time() -> None:
    assert local.recorder_plugin() == local.recorder_plugin()
    compile(local.bundle("parity_backends.vllm.worker", local.RECORDER_MODULES), "parity_record.py", "exec")


class Noted:
    """Instead of `StepCopies`: which of its methods were called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def of(self, tensor: Any, stop: int | None = None) -> Any:
        self.called.append("of")
        return np.zeros(1)

    def gather(self) -> None:
        self.called.append("gather")

    def send(self) -> None:
        self.called.append("send")


class OfADevice:
    is_cpu = False

    def __getitem__(self, which: Any) -> OfADevice:
        return self

    def dim(self) -> int:
        return 1

    def argmax(self, axis: int) -> OfADevice:
        return self


TENSOR = OfADevice()
GRAPH = SimpleNamespace(value=0)


def test_each_door_of_the_first_runner_gathers_what_it_reads(
    worker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine writes over its buffers when a door is closed."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    runner = asynchronous(speculative_config=object(), _draft_token_ids=TENSOR)
    recorder = worker.record_runner(runner, None, print, "a", lambda name: None)
    recorder.rows = recorder.finished = lambda *values: None
    recorder.output = SimpleNamespace(total_num_scheduled_tokens=1, scheduled_spec_decode_tokens={})
    runner.input_batch = SimpleNamespace(num_reqs=1, req_ids=["a"], req_id_to_index={"a": 0})
    context = SimpleNamespace(batch_descriptor=None, cudagraph_runtime_mode=GRAPH, attn_metadata={})
    recorder.forward_context = SimpleNamespace(get_forward_context=lambda: context)
    drafts = SimpleNamespace(num_draft_tokens=[1], draft_token_ids=TENSOR, logits_indices=TENSOR)
    sight = worker.Sight(0, 0)
    for door, values, last in (
        (recorder._forward, (TENSOR, TENSOR), "gather"),
        (recorder._before_sampling, (TENSOR, drafts), "gather"),
        (recorder._after_sampling, (SimpleNamespace(sampled_token_ids=TENSOR),), "gather"),
        (recorder._handed, (None,), "send"),
    ):
        recorder.copies = Noted()
        door(sight, *values)
        assert recorder.copies.called[0] == "of"
        assert recorder.copies.called[-1] == last
        assert recorder.copies.called.count(last) == 1


def test_each_door_of_the_second_runner_gathers_what_it_reads(
    worker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    nothing = SimpleNamespace(prepare_attn=lambda: None, compute_logits=lambda: None)
    req_states = SimpleNamespace(req_id_to_index={"a": 0}, draft_tokens=TENSOR)
    runner = SimpleNamespace(
        **dict.fromkeys(worker.SecondRunner.needs, len), speculative_config=None, vllm_config=None
    )  # fmt: skip
    runner.req_states, runner.model, runner.model_state, runner.attn_groups = req_states, nothing, nothing, ()
    recorder = worker.record_runner(runner, None, print, "a", lambda name: None)
    sight = worker.Sight(0, 0)
    sight.names, sight.groups[0], recorder.groups = ["a"], {}, [()]
    recorder.rows, recorder.widest = (lambda *values: None), (lambda group: 1)
    given = {"layer": SimpleNamespace(slot_mapping=TENSOR, seq_lens=TENSOR)}
    inputs = SimpleNamespace(
        req_ids=["a"], num_tokens=1, idx_mapping=TENSOR, num_draft_tokens_per_req=None, input_ids=TENSOR,
        positions=TENSOR, query_start_loc=TENSOR, num_tokens_after_padding=1, num_reqs_after_padding=1,
        num_draft_tokens=1, cu_num_logits_np=np.array([0, 2]), logits_indices=TENSOR,
    )  # fmt: skip
    sampled = SimpleNamespace(sampled_token_ids=TENSOR)
    for door, value in (
        (recorder._batch, (inputs,)),
        (recorder._tables, (([TENSOR], None),)),
        (recorder._metadata, (given, GRAPH)),
        (recorder._before_sampling, (inputs,)),
        (recorder._logits, (TENSOR,)),
        (recorder._after_sampling, ((sampled, TENSOR, None),)),
    ):
        if door == recorder._metadata:
            recorder.groups, recorder.sizes, recorder.kinds = [[SimpleNamespace(layer_names=["layer"])]], [16], [""]
        recorder.copies = Noted()
        door(sight, *value)
        assert recorder.copies.called[0] == "of"
        assert recorder.copies.called[-1] == "gather"
        assert recorder.copies.called.count("gather") == 1
