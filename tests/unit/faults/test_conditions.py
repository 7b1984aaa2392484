"""When a conditional fault may strike: what a row has done, from a scheduler and a runner of a few lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from parity_faults.conditions import HOLDS, History, able_rows, resumed_in
from parity_faults.planting import CONDITIONS, Planting, parse


class Engine:
    """Rows of requests, step by step; `step` plays what vLLM does between two calls of the plugin."""

    def __init__(self, **planting: Any) -> None:
        self.state = SimpleNamespace(history=History(), planting=Planting("row_swap", **planting))
        self.runner = SimpleNamespace(
            requests={}, input_batch=SimpleNamespace(req_ids=[], num_reqs=0, req_id_to_index={}),
            discard_request_mask=None,
        )  # fmt: skip

    def step(
        self,
        rows: list[str],
        *,
        computed: dict[str, int] | None = None,
        drafts: dict[str, int] | None = None,
        resumed: set[str] | None = None,
        finished: set[str] | None = None,
    ) -> None:
        output = SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(rows, 1),
            scheduled_spec_decode_tokens={name: [7] * count for name, count in (drafts or {}).items()},
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=resumed or set()),
            finished_req_ids=finished or set(),
        )
        self.state.history.begin(self.runner, output)
        for name in rows:
            new = SimpleNamespace(prompt_token_ids=[1, 2, 3], output_token_ids=[], num_computed_tokens=0)
            self.runner.requests.setdefault(name, new).num_computed_tokens = (computed or {}).get(name, 3)
        self.runner.input_batch = SimpleNamespace(
            req_ids=rows, num_reqs=len(rows), req_id_to_index={name: row for row, name in enumerate(rows)}
        )

    def emit(self, **counts: int) -> None:
        for name, count in counts.items():
            self.runner.requests[name].output_token_ids += [9] * count

    def holding(self, name: str) -> list[str]:
        """Requests of which the condition holds."""
        rows = range(self.runner.input_batch.num_reqs)
        return [self.runner.input_batch.req_ids[row] for row in rows if HOLDS[name](self.state, self.runner, row)]


def test_every_condition_that_can_be_asked_for_is_asked_of_the_engine() -> None:
    assert set(HOLDS) == set(CONDITIONS)


def test_rows_that_move_have_moved_once_and_then_before() -> None:
    engine = Engine()
    engine.step(["a", "b", "c"])
    assert (engine.holding("new"), engine.holding("moved")) == (["a", "b", "c"], [])
    engine.step(["c", "b"], finished={"a"})
    assert (engine.holding("new"), engine.holding("moved"), engine.holding("moved_before")) == ([], ["c"], [])
    engine.step(["c", "b", "d"])
    assert (engine.holding("moved"), engine.holding("moved_before")) == ([], ["c"])
    engine.step(["c", "b", "d"])
    assert engine.holding("moved_before") == []


def test_who_comes_back_after_preemption_has_not_moved_and_stays_preempted() -> None:
    engine = Engine()
    engine.step(["a", "b", "c"])
    engine.step(["a", "b"])
    engine.step(["a", "c", "b"], resumed={"c"})
    assert engine.holding("moved") == ["b"]
    engine.step(["a", "c", "b"])
    assert engine.holding("preempted") == ["c"]
    engine.step(["a"], finished={"c"})
    assert engine.state.history.resumed == set()


def test_a_boundary_counts_the_prompt() -> None:
    engine = Engine(when="boundary", block=4)
    engine.step(["a", "b"])
    engine.emit(a=1)
    assert engine.holding("boundary") == ["a"]  # three of the prompt and one


def test_a_row_is_mixed_that_decodes_beside_a_prompt() -> None:
    engine = Engine()
    engine.step(["a", "b"], computed={"a": 3, "b": 0})
    assert engine.holding("mixed") == ["a"]
    engine.step(["a", "b"])
    assert engine.holding("mixed") == []


def test_drafts_are_those_of_the_last_step() -> None:
    engine = Engine()
    engine.step(["a", "b", "c"], drafts={"a": 2, "b": 2})
    engine.emit(a=3, b=2, c=1)
    engine.step(["a", "b", "c"])
    assert (engine.holding("accepted"), engine.holding("rejected")) == (["a"], ["b"])


def test_conditions_that_are_joined_must_all_hold() -> None:
    engine = Engine(when="moved+accepted")
    engine.step(["a", "b", "c"], drafts={"b": 1, "c": 1})
    engine.emit(a=1, b=2, c=2)
    engine.step(["c", "b"], finished={"a"})
    assert (engine.holding("moved"), engine.holding("accepted")) == (["c"], ["c", "b"])
    assert able_rows(engine.state, engine.runner) == [0]


@pytest.mark.parametrize("cached", [
    SimpleNamespace(resumed_req_ids={"b"}),
    SimpleNamespace(req_ids=["a", "b"], resumed_from_preemption=[False, True]),
])  # fmt: skip
def test_who_is_resumed_by_release(cached: Any) -> None:
    assert resumed_in(SimpleNamespace(scheduled_cached_reqs=cached)) == {"b"}


def test_without_conditions_every_row_that_emits_is_able() -> None:
    engine = Engine()
    engine.state.planting = parse("row_swap")
    engine.step(["a", "b"])
    assert able_rows(engine.state, engine.runner) == [0, 1]
