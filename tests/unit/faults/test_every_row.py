"""A fault of one module: of one row of a request, of all rows again and again, of those alone of which it holds."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
from parity_faults.arithmetic import Place, _strike
from parity_faults.planting import parse


def struck(text: str, steps: int, **outputs: int) -> tuple[list[list[int]], list[str]]:
    """Rows that were changed, by step, and requests that were logged; `outputs`: tokens of those with more than one."""
    changed: list[list[int]] = []
    logged: list[str] = []
    requests = {
        name: SimpleNamespace(
            prompt_token_ids=[1, 2], output_token_ids=[3] * outputs.get(name, 1), num_computed_tokens=2
        )
        for name in "abc"
    }
    batch = SimpleNamespace(req_ids=["a", "b", "c"], num_reqs=3, num_computed_tokens_cpu=np.array([2, 2, 2]))
    runner = SimpleNamespace(
        requests=requests, input_batch=batch, query_start_loc=SimpleNamespace(np=np.array([0, 1, 4, 5])),
        discard_request_mask=None,
    )  # fmt: skip
    state = SimpleNamespace(
        planting=parse(text), in_step=True, active={}, step=0, due=lambda: random.Random(state.step),
        record=lambda held, row, position, **more: logged.append(f"{row}: {more['at']} + {more['tokens']}"),
    )  # fmt: skip

    def change(state: Any, runner: Any, module: Any, row: int, given: Any, span: tuple[int, int]) -> bool:
        changed[-1].append(row)
        return True

    place = Place(("mlp",), False, change, "mlp")
    for step in range(steps):
        state.step = step
        changed.append([])
        _strike(state, runner, "mlp_off", place, "model.layers.1.mlp", None, None)
    return changed, logged


def test_one_row_of_each_request() -> None:
    changed, logged = struck("mlp_off:rate=1", 5)
    assert sorted(changed[:3]) == [[0], [1], [2]]
    assert changed[3:] == [[], []]
    assert sorted(logged) == ["0: 2 + 1", "1: 2 + 3", "2: 2 + 1"]


def test_every_row_in_every_step_and_each_request_logged_once() -> None:
    changed, logged = struck("mlp_off:rate=1:every=1", 3)
    assert changed == [[0, 1, 2]] * 3
    assert logged == ["0: 2 + 1", "1: 2 + 3", "2: 2 + 1"]


def test_under_a_condition_its_rows_alone_and_each_row_step_logged() -> None:
    """The first new position is the prompt's two tokens and the outputs."""
    changed, logged = struck("mlp_off:rate=1:every=1:when=boundary:block=8", 2, b=6, c=14)
    assert changed == [[1, 2]] * 2
    assert logged == ["1: 2 + 3", "2: 2 + 1"] * 2
    assert struck("mlp_off:rate=1:when=boundary:block=8", 2) == ([[], []], [])
