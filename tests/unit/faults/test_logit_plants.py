"""A fault of logits under a condition moves those of its rows alone, with their drafts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from parity_faults import plants
from parity_faults.hooks import State
from parity_faults.planting import parse


class Tensor(np.ndarray):  # type: ignore[type-arg]
    """As much of torch's as the plant takes."""

    def clone(self) -> Tensor:
        return self.copy()


def biased(when: str, drafts: list[int] | None, log: Path) -> tuple[list[int], list[str]]:
    """Places whose logits moved, and requests that were logged; `b` and `c` are at a multiple of 8."""
    state = State()
    state.configure(parse("logit_bias:share=1" + when), str(log))
    state.step = 0
    requests = {
        name: SimpleNamespace(
            req_id=name, prompt_token_ids=[1, 2], output_token_ids=[3] * outputs, num_computed_tokens=2
        )
        for name, outputs in (("a", 1), ("b", 6), ("c", 14))
    }
    batch = SimpleNamespace(req_ids=["a", "b", "c"], num_reqs=3)
    runner = SimpleNamespace(requests=requests, input_batch=batch, discard_request_mask=None)
    metadata: Any = None
    if drafts is not None:
        ends = (np.cumsum(np.array(drafts) + 1) - 1).tolist()
        metadata = SimpleNamespace(num_draft_tokens=drafts, bonus_logits_indices=ends)
    logits = np.zeros((3 + sum(drafts or ()), 4)).view(Tensor)
    found = plants.logit_bias(state, runner, logits, metadata)
    assert not logits.any(), "the model's own are left"
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    logged = [line["request"] for line in lines if line["record"] == "planted"]
    return np.flatnonzero(found.any(axis=1)).tolist(), logged


@pytest.mark.parametrize(("drafts", "places"), [(None, [1, 2]), ([2, 0, 1], [3, 4, 5]), ([0, 2, 2], list(range(1, 7)))])
def test_places_of_the_rows_in_which_it_holds(drafts: list[int] | None, places: list[int], tmp_path: Path) -> None:
    assert biased(":when=boundary:block=8", drafts, tmp_path / "log") == (places, ["b", "c"])


def test_all_places_without_a_condition(tmp_path: Path) -> None:
    assert biased("", [2, 0, 1], tmp_path / "log") == (list(range(6)), ["a", "b", "c"])


def test_none_where_it_holds_of_no_row(tmp_path: Path) -> None:
    assert biased(":when=boundary:block=32", [2, 0, 1], tmp_path / "log") == ([], [])
