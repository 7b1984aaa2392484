"""Digests of recurrent states: what lies in a slot, whoever wrote it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from parity_backends.vllm.worker.state_digests import SLOT_LAYERS, StateDigests


class FakeStates(StateDigests):
    """Of arrays, where the worker has tensors."""

    def __init__(self, layers: list[list[Any]]) -> None:
        self.views = [[(one, np.arange(one.shape[1], dtype=np.int64) * 2 + 1) for one in states] for states in layers]
        self.begin, self.count = 0, len(layers)


def made(layers: int = 3, slots: int = 8) -> tuple[FakeStates, list[list[Any]]]:
    rng = np.random.default_rng(0)
    states = [[rng.integers(-9999, 9999, (slots, 16)).astype(np.int16) for _ in range(2)] for _ in range(layers)]
    return FakeStates(states), states


def test_a_digest_is_of_what_lies_in_the_slot() -> None:
    digests, states = made()
    slots = np.array([[1, 2], [5, -1]])
    first = digests.of(slots)
    assert first.shape == (2, 2)
    assert first[1, 1] == 0  # no slot
    assert (digests.of(slots) == first).all()
    assert len(set(first.reshape(-1).tolist())) == 4
    for layer in range(3):
        for place in range(2):
            kept = states[layer][place][2].copy()
            states[layer][place][2] = states[layer][place][5]  # another's, in one layer
            now = digests.of(slots)
            assert now[0, 1] != first[0, 1]
            assert (now == first).sum() == 3
            states[layer][place][2] = kept
    assert (digests.of(slots) == first).all()
    assert ((first >= 0) & (first < 1 << 31)).all()


@pytest.mark.parametrize(("slots", "layers"), [(4, 3), (SLOT_LAYERS, 1), (SLOT_LAYERS // 2, 2), (10 * SLOT_LAYERS, 1)])
def test_of_many_slots_some_layers_are_read_in_turn(slots: int, layers: int) -> None:
    digests, _ = made()
    seen = set()
    for step in range(12):
        digests.turn(step, slots)
        assert digests.count == layers
        seen |= {(digests.begin + one) % 3 for one in range(layers)}
    assert seen == {0, 1, 2}


def test_states_are_found_by_the_names_of_their_layers() -> None:
    from parity_backends.vllm.worker.state_digests import states_of

    def state(device: str = "cpu") -> Any:
        return SimpleNamespace(device=SimpleNamespace(type=device), dim=lambda: 3)

    pair = (state(), state())
    context = {
        "a": SimpleNamespace(kv_cache=pair),
        "old": SimpleNamespace(kv_cache=[pair]),
        "far": SimpleNamespace(kv_cache=(state("npu"), state("npu"))),
        "attention": SimpleNamespace(kv_cache=state()),
    }
    runner = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=context))
    group = [SimpleNamespace(layer_names=["a", "old"]), SimpleNamespace(layer_names=["far", "attention", "none"])]
    assert states_of(runner, group) == [list(pair), list(pair)]
    assert states_of(SimpleNamespace(), group) == []
