"""Capture records from what vLLM gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from parity_backends.vllm.worker.listed import entries

ODD = (-math.inf, math.nan, -9999.0, -0.0, -1e-7, -3.4028234663852886e38)
"""Logprobs that an engine may list too."""


@dataclass
class Logprob:
    logprob: float


@dataclass
class Flat:
    """The lists of vllm/logprobs.py FlatLogprobs (v0.12.0 to v0.32.0)."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def append(self, pairs: list[tuple[int, float]]) -> None:
        self.start_indices.append(len(self.token_ids))
        self.token_ids += [token for token, _ in pairs]
        self.logprobs += [value for _, value in pairs]
        self.end_indices.append(len(self.token_ids))


@st.composite
def positions(draw: st.DrawFn) -> list[list[tuple[int, float]]]:
    """What an engine lists at each position: the chosen token, then the best, the chosen one perhaps among them."""
    listed = []
    for _ in range(draw(st.integers(0, 6))):
        best = draw(st.dictionaries(st.integers(0, 20), st.floats(-30.0, 0.0) | st.sampled_from(ODD), max_size=5))
        chosen = draw(st.integers(0, 20))
        listed.append([(chosen, best.get(chosen, -31.0)), *best.items()])
    return listed


@given(positions())
def test_flat_lists_give_what_dictionaries_give(listed: list[list[tuple[int, float]]]) -> None:
    flat = Flat()
    for pairs in listed:
        flat.append(pairs)
    as_objects = [{token: Logprob(value) for token, value in pairs} for pairs in listed]
    assert entries(flat) == entries(as_objects)


def test_a_position_without_logprobs_is_an_empty_entry_in_both() -> None:
    flat = Flat()
    flat.append([])
    flat.append([(3, -0.5), (3, -0.5), (7, -1.0)])
    assert entries(flat) == entries([None, {3: Logprob(-0.5), 7: Logprob(-1.0)}]) == [[], [[3, -0.5], [7, -1.0]]]
