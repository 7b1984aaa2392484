"""The faults between scheduler and caller need no engine to be tried."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from parity_faults import plants
from parity_faults.catalogue import prompt_key
from parity_faults.hooks import State
from parity_faults.planting import parse


class Logprobs:
    """As vLLM's LogprobsLists: arrays over the positions of a step."""

    def __init__(self, ids: Any, values: Any, ranks: Any, cumulative: Any) -> None:
        self.logprob_token_ids, self.logprobs, self.sampled_token_ranks = ids, values, ranks
        self.cu_num_generated_tokens = cumulative


def _output(request: str, tokens: list[int], finish: str | None = None, logprobs: bool = False) -> Any:
    column = np.array([tokens]).T
    lists = Logprobs(column, -column / 10, np.ones(len(tokens)), None) if logprobs else None
    return SimpleNamespace(request_id=request, new_token_ids=list(tokens), finish_reason=finish, new_logprobs=lists)


def _plant(fault: str, outputs: list[Any], drafted: dict[str, list[int]], log: Path) -> list[dict[str, Any]]:
    state = State()
    state.configure(parse(fault), str(log))
    state.emitted = {"a": 10}
    state.step = 0
    requests = {name: SimpleNamespace(request_id=name, prompt_token_ids=[1, 2]) for name in "abc"}
    scheduled = SimpleNamespace(scheduled_spec_decode_tokens=drafted)
    plants.OUTPUT[fault](state, requests, scheduled, outputs)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["record"] == "planted"]


def test_a_chunk_is_handed_out_twice_with_its_logprobs(tmp_path: Path) -> None:
    output = _output("a", [7, 8, 9], logprobs=True)
    [record] = _plant("chunk_twice", [output, _output("b", [5])], {}, tmp_path / "log")
    assert output.new_token_ids == [7, 8, 9, 7, 8, 9]
    assert output.new_logprobs.logprob_token_ids[:, 0].tolist() == [7, 8, 9, 7, 8, 9]
    assert (record["request"], record["position"]) == ("a", 13)
    assert record["prompt"] == prompt_key([1, 2])


def test_only_the_bonus_token_of_a_fully_accepted_step_is_lost(tmp_path: Path) -> None:
    full, partly, last = _output("a", [7, 8, 9]), _output("b", [5, 6]), _output("c", [1, 2, 3], "length")
    drafted = {"a": [7, 8], "b": [5, 4], "c": [1, 2]}
    [record] = _plant("bonus_lost", [partly, full, last], drafted, tmp_path / "log")
    assert (full.new_token_ids, partly.new_token_ids, last.new_token_ids) == ([7, 8], [5, 6], [1, 2, 3])
    assert (record["request"], record["position"]) == ("a", 12)


def test_nothing_is_planted_where_nothing_can_be(tmp_path: Path) -> None:
    output = _output("a", [7])
    assert _plant("chunk_twice", [output], {}, tmp_path / "log") == []
    assert output.new_token_ids == [7]
