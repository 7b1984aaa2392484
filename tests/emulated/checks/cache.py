"""Paged caches: what is written where, and read back."""

from __future__ import annotations

import torch
from parity_emulated_npu.operators import NotEmulated, cache, norms, rope

torch.manual_seed(4)


def check_rows_go_to_their_slots_and_a_negative_slot_stays() -> None:
    keys, values = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    kc, vc = torch.zeros(3, 4, 2, 4), torch.zeros(3, 4, 2, 4)
    cache._npu_reshape_and_cache(keys, values, kc, vc, torch.tensor([9, -1, 2]))
    want = torch.zeros(12, 2, 4)
    want[9], want[2] = keys[0], keys[2]
    assert torch.equal(kc.view(12, 2, 4), want)
    assert torch.equal(vc.view(12, 2, 4)[9], values[0])
    assert torch.equal(vc.view(12, 2, 4)[11], torch.zeros(2, 4))


def check_newer_releases_write_the_same_under_another_name() -> None:
    keys, values, slots = torch.randn(3, 2, 4), torch.randn(3, 2, 4), torch.tensor([9, -1, 2])
    want, got = ([torch.zeros(3, 4, 2, 4), torch.zeros(3, 4, 2, 4)] for _ in range(2))
    cache._npu_reshape_and_cache(keys, values, *want, slots)
    cache.npu_scatter_pa_kv_cache(key=keys, value=values, key_cache=got[0], value_cache=got[1], slot_mapping=slots)
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))
    try:
        cache.npu_scatter_pa_kv_cache(keys, values, torch.zeros(3, 1, 4, 2, 4), torch.zeros(3, 1, 4, 2, 4), slots)
    except NotEmulated as error:
        assert "dimensions=5" in str(error)
    else:
        raise AssertionError("taken")


def check_the_latent_is_normed_and_its_rope_part_turned() -> None:
    tokens, rank, width = 3, 6, 4
    kv, gamma = torch.randn(tokens, 1, 1, rank + width), torch.randn(rank)
    angles = torch.rand(tokens, width // 2)
    cos, sin = (torch.cat((f, f), -1).view(tokens, 1, 1, width) for f in (angles.cos(), angles.sin()))
    rope_cache, latent_cache = torch.zeros(2, 4, 1, width), torch.zeros(2, 4, 1, rank)
    made = cache.npu_kv_rmsnorm_rope_cache(
        kv, gamma, cos, sin, torch.tensor([5, 0, 7]), rope_cache, latent_cache, epsilon=1e-6, cache_mode="PA",
        is_output_kv=True,
    )  # fmt: skip
    latent = norms.npu_rms_norm(kv[..., :rank], gamma, 1e-6)[0]
    turned = rope.npu_interleave_rope(kv[..., rank:], cos, sin)
    for token, slot in enumerate((5, 0, 7)):
        assert torch.equal(latent_cache.view(8, rank)[slot], latent[token, 0, 0])
        assert torch.equal(rope_cache.view(8, width)[slot], turned[token, 0, 0])
    assert made[0] is rope_cache
    assert made[1] is latent_cache
    assert torch.equal(made[2], turned)
    assert torch.equal(made[3], latent)


def check_context_is_loaded_sequence_by_sequence() -> None:
    latent, turned = torch.randn(4, 2, 1, 3), torch.randn(4, 2, 1, 2)
    table = torch.tensor([[3, 0], [1, 2]], dtype=torch.int32)
    key, value = torch.empty(5, 1, 3), torch.empty(5, 1, 2)
    cache.npu_paged_cache_load(
        latent, turned, table, torch.tensor([2, 3]), seq_starts=torch.tensor([1, 0]), key=key, value=value
    )
    slots = [3 * 2 + 1, 0 * 2, 1 * 2, 1 * 2 + 1, 2 * 2]
    assert torch.equal(key, latent.view(8, 1, 3)[slots])
    assert torch.equal(value, turned.view(8, 1, 2)[slots])
