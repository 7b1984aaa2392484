"""Writing to and reading from paged KV caches."""

from __future__ import annotations

import torch
from torch import Tensor

from parity_emulated_npu.operators.norms import npu_rms_norm
from parity_emulated_npu.operators.registry import only, operator, refuse
from parity_emulated_npu.operators.rope import npu_interleave_rope


def _put(cache: Tensor, slots: Tensor, rows: Tensor) -> None:
    """rows[i] into slot slots[i] of a cache (blocks, block size, …) of any strides; a negative slot is left alone."""
    slots = slots.long().flatten()
    keep = slots >= 0
    if not bool(keep.all()):
        slots, rows = slots[keep], rows[: keep.numel()][keep]
    cache[slots // cache.shape[1], slots % cache.shape[1]] = rows[: slots.numel()].to(cache.dtype)


@operator
def _npu_reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_indices: Tensor
) -> None:
    _put(key_cache, slot_indices, key)
    _put(value_cache, slot_indices, value)


@operator
def npu_scatter_pa_kv_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    cache_mode: str = "Norm",
) -> None:
    """`_npu_reshape_and_cache` as releases from 0.26 on call it; not for blocks in the device's own layout (5-D)."""
    only("npu_scatter_pa_kv_cache", cache_mode=(cache_mode, "Norm"), dimensions=(key_cache.dim(), 4))
    _npu_reshape_and_cache(key, value, key_cache, value_cache, slot_mapping)


@operator
def npu_kv_rmsnorm_rope_cache(
    kv: Tensor,
    gamma: Tensor,
    cos: Tensor,
    sin: Tensor,
    index: Tensor,
    k_cache: Tensor,
    ckv_cache: Tensor,
    *,
    k_rope_scale: Tensor | None = None,
    c_kv_scale: Tensor | None = None,
    epsilon: float = 1e-5,
    cache_mode: str = "Norm",
    is_output_kv: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """MLA's latent: kv is (tokens, 1, 1, rank + rope); its first `rank` numbers are normed into `ckv_cache`, the rest
    rotated into `k_cache`, at slot `index`. Returns both caches, then what was written (rope part, latent)."""
    only("npu_kv_rmsnorm_rope_cache", k_rope_scale=(k_rope_scale, None), c_kv_scale=(c_kv_scale, None))
    if cache_mode != "PA":
        raise refuse("npu_kv_rmsnorm_rope_cache", f"cache_mode={cache_mode!r}")
    latent, rope = kv.split((gamma.shape[-1], kv.shape[-1] - gamma.shape[-1]), -1)
    latent = npu_rms_norm(latent, gamma, epsilon)[0]
    rope = npu_interleave_rope(rope, cos, sin)
    for cache, rows in ((ckv_cache, latent), (k_cache, rope)):
        _put(cache, index, rows.reshape(rows.shape[0], *cache.shape[2:]))
    return k_cache, ckv_cache, rope, latent


@operator
def npu_paged_cache_load(
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    *,
    seq_starts: Tensor | None = None,
    key: Tensor,
    value: Tensor,
) -> None:
    """Copies, sequence by sequence, `context_lens[i]` tokens from `seq_starts[i]` on into `key` and `value`."""
    size = key_cache.shape[1]
    starts = [0] * len(context_lens) if seq_starts is None else seq_starts.flatten().tolist()
    end = 0
    for row, (first, length) in enumerate(zip(starts, context_lens.flatten().tolist(), strict=False)):
        places = torch.arange(first, first + length)
        blocks = block_table[row].long()[places // size]
        for cache, out in ((key_cache, key), (value_cache, value)):
            out[end : end + length] = cache[blocks, places % size].view(length, *out.shape[1:])
        end += length
