"""The parts of the worker that need no engine."""

from __future__ import annotations

import ast
import enum
import math
import os
import sys
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from parity_backends.vllm.local import worker_source

from parity.capture import encode_token_ids


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    module = ModuleType("worker_under_test")
    exec(compile(worker_source(), "worker.py", "exec"), module.__dict__)
    return module


def test_it_needs_nothing_but_the_standard_library_and_the_engine() -> None:
    tree = ast.parse(worker_source(), feature_version=(3, 9))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(str(node.module).split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"vllm", "torch", "numpy"}  # every torch and vLLM has numpy


def test_logprobs_are_json_whatever_the_engine_gives(worker: ModuleType) -> None:
    assert worker.number(math.nan) is None
    assert worker.number(-math.inf) == -9999.0
    assert worker.number(-0.123456789) == -0.123457
    entry = {7: SimpleNamespace(logprob=-1.5), 3: SimpleNamespace(logprob=math.nan)}
    assert worker.entries([None, entry]) == [[], [[7, -1.5], [3, None]]]
    assert worker.entries(None) is None


def test_counters_are_summed_over_labels_and_subtracted(worker: ModuleType) -> None:
    def llm(drafts: list[int], per_position: list[int]) -> SimpleNamespace:
        metrics = [SimpleNamespace(name="vllm:spec_decode_num_drafts", value=value) for value in drafts]
        metrics.append(SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens_per_pos", values=per_position))
        metrics.append(SimpleNamespace(name="vllm:unrelated", value=1))
        return SimpleNamespace(get_metrics=lambda: metrics)

    before = worker.counters(llm([1, 2], [3, 1]))
    after = worker.counters(llm([10, 20], [13, 5]))
    assert worker.since(after, before) == {"drafts": 27, "accepted_per_pos": [10, 4]}
    assert worker.since(after, {}) == {"drafts": 30, "accepted_per_pos": [13, 5]}


def test_no_statistics_is_no_counters(worker: ModuleType) -> None:
    def refuse() -> None:
        raise AssertionError("Stat logging disabled")

    assert worker.counters(SimpleNamespace(get_metrics=refuse)) == {}


def test_what_the_engine_resolved_to(worker: ModuleType) -> None:
    mode = enum.IntEnum("CompilationMode", {"NONE": 0})
    config = SimpleNamespace(a=SimpleNamespace(mode=mode.NONE, sizes=(1, 2), missing=None))
    assert worker.look(config, "a.mode") == "NONE"
    assert worker.look(config, "a.sizes") == [1, 2]
    assert worker.look(config, "a.b.c") is None


def test_compact_token_ids(worker: ModuleType) -> None:
    assert worker.token_list(encode_token_ids(np.array([5, -1, 2**31 - 1]))) == [5, -1, 2**31 - 1]
    assert worker.token_list([1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("prompt", "tokens", "reason"),
    [
        ([1], [2] * 8, None),
        ([1], [2] * 9, "do not fit"),
        ([1], [2, 100], "outside the vocabulary"),
        ([1], [-1], "outside the vocabulary"),
        ([1], [], None),
    ],
)
def test_what_cannot_be_scored(worker: ModuleType, prompt: list[int], tokens: list[int], reason: str | None) -> None:
    arm = worker.Arm({"arms": [{"name": "a"}], "requests": []}, "a", None, None)
    arm.speculative, arm.max_model_len, arm.vocab_size = False, 10, 100
    why = arm.unscorable({"prompt_token_ids": prompt, "token_ids": tokens})
    assert (why is None) if reason is None else (reason in str(why))


def test_the_longest_sequence_is_scored_before_all_others(worker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its logprobs take of memory no profile run has counted: if it is not there, that shows at once."""
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY=None))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)
    channel = SimpleNamespace(event=lambda *_, **__: None)
    arm = worker.Arm({"arms": [{"name": "a"}], "requests": [], "sampling": {}}, "a", channel, None)
    arm.speculative, arm.asynchronous, arm.max_model_len, arm.vocab_size = False, False, 100, 100
    arm.table = worker.Table("0.23.0")
    added: list[list[int]] = []
    arm._add = lambda prompt, params: added.append(prompt) or str(len(added))
    arm._drain = lambda *_: None
    key = {"arm": "b", "request": "p", "round": 0, "sample": 0}
    lengths = (3, 9, 4, 20, 1)
    arm.score([{**key, "prompt_token_ids": [1], "token_ids": [2] * length} for length in lengths], 5)
    assert [len(prompt) - 1 for prompt in added] == [20, 3, 9, 4, 1]


def test_a_command_in_pieces_is_one_command_and_each_piece_a_sign_of_life(worker: ModuleType) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream, os.fdopen(write, "wb", buffering=0) as far:
        commands = worker.Commands(stream)
        commands.stop.set()  # or the end of the stream would take this process along
        commands._quiet = 50.0
        far.write(b'{"op":"ping"}\n{"op":"sco')
        until = time.monotonic() + 5
        while commands._quiet:
            assert time.monotonic() < until
            time.sleep(0.01)
        commands._quiet = 50.0
        far.write(b're","items":[]}\n{"op":')
        assert commands.inbox.get(timeout=5) == {"op": "score", "items": []}
        assert commands._quiet == 0.0
        far.write(b'"trial"}\n')
        assert commands.inbox.get(timeout=5) == {"op": "trial"}
