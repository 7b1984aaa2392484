"""Rows of a batch that faults may be planted in: by what each release writes of them, and into what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from parity_faults import rows
from parity_faults.delta_net import drafting_rows

ROWS = 5


def buffer(values: list[int], dtype: Any) -> Any:
    """As vLLM's CpuGpuBuffer: made for more rows than there are, what is past the end is of an earlier step."""
    array = np.zeros(ROWS + 3, dtype=dtype)
    array[: len(values)] = values
    return SimpleNamespace(np=array)


def mask(*rows: int) -> dict[str, Any]:
    return {"discard_request_mask": buffer([int(row in rows) for row in range(ROWS)], bool)}


def indices(*rows: int, stale: tuple[int, ...] = ()) -> dict[str, Any]:
    held = buffer([*rows, *stale], np.int64)
    return {"discard_request_indices": held, "num_discarded_requests": len(rows)}


@pytest.mark.parametrize(
    ("engine", "fields", "emitting"),
    [
        ("vLLM 0.33.0 on CUDA", mask(1, 3), [0, 2, 4]),
        # The mask is inherited and stays as it was made; what is past the count is of an earlier step.
        ("vllm-ascend 0.13.0 and 0.18.0", {**mask(), **indices(1, 3, stale=(4,))}, [0, 2, 4]),
        ("vllm-ascend 0.23.0", {**mask(1, 3), **indices(1, 3)}, [0, 2, 4]),
        ("vLLM 0.11.0", indices(0), [1, 2, 3, 4]),
        ("no prefill in pieces", {**mask(), **indices(stale=(2,))}, [0, 1, 2, 3, 4]),
    ],
)
def test_rows_that_emit(engine: str, fields: dict[str, Any], emitting: list[int]) -> None:
    runner = SimpleNamespace(input_batch=SimpleNamespace(num_reqs=ROWS), **fields)
    assert rows.sampling_rows(runner) == emitting, engine


@pytest.mark.parametrize(
    ("release", "fields", "expected"),
    [
        (
            "0.33.0",
            {"spec_sequence_masks_cpu": np.array([True, False]), "spec_sequence_masks": object()},
            [True, False],
        ),
        ("0.30.0", {"spec_sequence_masks": np.array([False, True])}, [False, True]),
        ("0.30.0, no drafts", {"spec_sequence_masks": None}, None),
        ("0.33.0, no drafts", {"spec_sequence_masks_cpu": None, "spec_sequence_masks": None}, None),
    ],
)
def test_rows_that_verify_drafts(release: str, fields: dict[str, Any], expected: list[bool] | None) -> None:
    assert drafting_rows(SimpleNamespace(**fields)) == expected, release
