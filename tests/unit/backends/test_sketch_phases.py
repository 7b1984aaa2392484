"""Which prompts an engine is asked together, so that it computes none of them in chunks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from parity_backends.vllm.worker.sketch_phases import unchunked


def config(scheduled: int | None, batched: int, drafts: int | None) -> Any:
    speculative = None if drafts is None else SimpleNamespace(num_speculative_tokens=drafts)
    scheduler = SimpleNamespace(max_num_scheduled_tokens=scheduled, max_num_batched_tokens=batched)
    return SimpleNamespace(scheduler_config=scheduler, speculative_config=speculative)


@pytest.mark.parametrize(
    ("scheduled", "batched", "drafts", "sizes"),
    [
        (None, 30, None, [[10, 10, 10], [12, 18], [40], [5, 5]]),
        (20, 30, None, [[10, 10], [10], [12], [18], [40], [5, 5]]),
        (None, 30, 2, [[10, 10], [10, 12], [18], [40], [5, 5]]),
    ],
)
def test_a_group_fits_into_a_step_and_keeps_the_order(
    scheduled: int | None, batched: int, drafts: int | None, sizes: list[list[int]]
) -> None:
    sequences = [(number,) * length for number, length in enumerate((10, 10, 10, 12, 18, 40, 5, 5))]
    groups = list(unchunked(sequences, config(scheduled, batched, drafts)))
    assert [[len(one) for one in group] for group in groups] == sizes
    assert [one for group in groups for one in group] == sequences


def test_no_prompts_are_no_groups() -> None:
    assert not list(unchunked((), config(None, 30, 2)))
