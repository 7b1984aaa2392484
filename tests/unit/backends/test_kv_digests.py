"""Digests of keys and values: of a request's own tokens, wherever the backend put them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity_backends.vllm.worker.kv_digests import NUMBERS_AT_ONCE, KeptPart, KeyValueDigests, entry_places, kept_part

WIDE = 8
"""Numbers of an entry."""


def made(size: int, kernel_size: int, layers: int, blocks: int, wide: int = WIDE) -> tuple[KeyValueDigests, list[Any]]:
    """Caches whose blocks hold each token's numbers anywhere."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(layers):
        cache = rng.integers(-9999, 9999, (blocks * size // kernel_size, kernel_size * wide)).astype(np.int16)
        found.append((cache, rng.permutation(kernel_size * wide).reshape(kernel_size, wide)))
    return KeyValueDigests(found, size, kernel_size), found


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_number_of_any_entry_counts_and_no_other(data: st.DataObject) -> None:
    kernel_size = data.draw(st.sampled_from([2, 4]))
    size = kernel_size * data.draw(st.sampled_from([1, 3]))
    digests, layers = made(size, kernel_size, layers=2, blocks=12)
    blocks = [[7, 3, 9], [1, 2, 5]]
    tokens = data.draw(st.integers(1, 3 * size))
    parts = [None, KeptPart(begin := data.draw(st.integers(0, tokens - 1)), tokens - begin)]
    before = digests.of(parts, blocks)
    assert before[0] == -1
    assert 0 <= before[1] < 1 << 31
    row = data.draw(st.integers(0, 1))
    position = data.draw(st.integers(0, 3 * size - 1))
    slot = blocks[row][position // size] * size + position % size
    cache, where = layers[data.draw(st.integers(0, 1))]
    cache[slot // kernel_size, where[slot % kernel_size, data.draw(st.integers(0, WIDE - 1))]] += 1
    touched = row == 1 and begin <= position < tokens
    assert (digests.of(parts, blocks)[1] != before[1]) == touched


def test_entries_that_change_places_are_seen() -> None:
    digests, ((cache, where),) = made(4, 4, layers=1, blocks=3)
    before = digests.of([KeptPart(0, 4)], [[1]])
    first, second = where[1].copy(), where[2].copy()
    cache[1, first], cache[1, second] = cache[1, second].copy(), cache[1, first].copy()
    assert digests.of([KeptPart(0, 4)], [[1]])[0] != before[0]


@pytest.mark.parametrize("tokens", [1, 100, 5000])
@pytest.mark.parametrize("rows", [1, 64])
def test_so_many_numbers_are_read_at_once_and_all_in_turn(tokens: int, rows: int) -> None:
    digests, _ = made(16, 16, layers=3, blocks=1, wide=64)
    numbers, places = set(), set()
    for step in range(2000):
        parts = digests.turn(step, [tokens] * rows)
        read = sum(part.tokens for part in parts) * 3 * -(-64 // digests.apart)
        assert read <= 2 * NUMBERS_AT_ONCE
        numbers |= set(range(digests.first, 64, digests.apart))
        places |= set(range(parts[0].begin, parts[0].begin + parts[0].tokens))
    assert numbers == set(range(64))
    assert places == set(range(tokens))
    assert (digests.apart, parts[0].tokens) == (1, tokens) or tokens * rows * 3 * 64 > NUMBERS_AT_ONCE


@given(st.integers(0, 9999), st.integers(0, 9999), st.integers(1, 9999))
def test_a_part_lies_within_the_tokens(step: int, tokens: int, most: int) -> None:
    part = kept_part(step, tokens, most)
    assert part.tokens == min(tokens, most)
    assert 0 <= part.begin <= tokens - part.tokens


def test_what_is_no_longer_the_requests_is_not_read() -> None:
    digests, _ = made(4, 4, layers=1, blocks=3)
    assert digests.of([KeptPart(0, 5)], [[1]]).tolist() == [-1]
    assert digests.of([], []).tolist() == []


def test_a_window_that_lets_blocks_go_is_not_watched() -> None:
    from parity_backends.vllm.worker.kv_watch import KeyValueWatch

    class FullAttentionSpec:
        pass

    class MLAAttentionSpec(FullAttentionSpec):
        pass

    class SlidingWindowSpec:
        pass

    groups = [SimpleNamespace(kv_cache_spec=one()) for one in (FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec)]
    runner = SimpleNamespace(kv_cache_config=SimpleNamespace(kv_cache_groups=groups))
    watch = KeyValueWatch(runner, [[], [], []], [16, 16, 16])
    assert [watch._read_alone(group) for group in range(4)] == [True, True, False, False]
    sight: Any = SimpleNamespace(groups={0: {}}, names=["a"])
    why = watch.begin(sight, 0, 16)  # no layers
    assert why is not None
    assert why["id"] == "unseen.key_values"
    assert sight.groups == {0: {}}


def test_latent_vectors_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLA's method takes other things than keys and values (vLLM 0.32.0, v1/attention/backends/mla)."""

    def do_kv_cache_update(kv_c: Any, k_pe: Any, kv_cache: Any, slot_mapping: Any, dtype: str, k_scale: Any) -> None:
        raise AssertionError("not to be called")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    layer = SimpleNamespace(impl=SimpleNamespace(do_kv_cache_update=do_kv_cache_update), num_kv_heads=1, head_size=WIDE)
    assert entry_places(layer, np.zeros((1, WIDE)), 16) is None
