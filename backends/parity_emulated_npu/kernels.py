"""Torch in the place of Triton kernels, of vllm-ascend or of its vLLM, that take the interpreter seconds a layer, or
half of a small model's step.

All other kernels of the release run in the interpreter. PARITY_EMULATED_NPU_KERNELS=all leaves these there too;
tests/emulated compares both.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from parity_emulated_npu.operators import CALLS
from parity_emulated_npu.operators.delta_net import npu_recurrent_gated_delta_rule
from parity_emulated_npu.operators.rope import rotated, widened

VARIABLE = "PARITY_EMULATED_NPU_KERNELS"


def rope_forward_triton(
    q: Tensor,
    k: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    rope_dim: int = -1,
    is_neox_style: bool = True,
    cos_sin_cache: Tensor | None = None,
    positions: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The first `rope_dim` numbers of each head of q and k (tokens, heads, d), rotated."""
    width = q.shape[-1] if rope_dim == -1 else rope_dim
    if cos_sin_cache is not None and positions is not None:
        cos, sin = cos_sin_cache.index_select(0, positions.flatten()).chunk(2, -1)
    assert cos is not None
    assert sin is not None
    halves = (angle.float().reshape(q.shape[0], -1)[:, : width // 2] for angle in (cos, sin))
    cos, sin = (widened(half, is_neox_style).unsqueeze(1) for half in halves)

    def turned(x: Tensor) -> Tensor:
        made = rotated(x[..., :width].float(), cos, sin, is_neox_style).to(x.dtype)
        return torch.cat((made, x[..., width:]), -1)

    return turned(q), turned(k)


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    prebuilt_meta: object = None,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **other: object,
) -> tuple[Tensor, Tensor]:
    """The recurrence token by token: q, k, v (1, tokens, heads, …), initial state (sequences, heads, dk, dv)."""
    assert initial_state is not None
    assert cu_seqlens is not None
    if use_qk_l2norm_in_kernel:
        q, k = ((t.float() * torch.rsqrt(t.float().pow(2).sum(-1, keepdim=True) + 1e-6)).to(t.dtype) for t in (q, k))
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    state = initial_state.transpose(-1, -2).float().contiguous()
    owners = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    made = npu_recurrent_gated_delta_rule(
        q[0], k[0], v[0], state, beta=beta[0], scale=scale, g=g[0], ssm_state_indices=owners,
        actual_seq_lengths=torch.cat((lengths.new_zeros(1), lengths)),
    )  # fmt: skip
    return made.unsqueeze(0).to(q.dtype), state.transpose(-1, -2).contiguous()


def _layer_norm_fwd(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    z: Tensor | None = None,
    out: Tensor | None = None,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Norm of each group of x (rows, n), times silu(z) after it or before it; mean and reciprocal root by group."""
    size = x.shape[-1] if group_size is None else group_size
    gate = None if z is None else torch.nn.functional.silu(z.float())
    values = x.float() if gate is None or norm_before_gate else x.float() * gate
    groups = values.view(x.shape[0], -1, size)
    mean = None if is_rms_norm else groups.mean(-1, keepdim=True)
    centred = groups if mean is None else groups - mean
    rstd = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    made = (centred * rstd).view(x.shape) * weight.float()
    made = made if bias is None else made + bias.float()
    made = made if gate is None or not norm_before_gate else made * gate
    result = made.to(x.dtype) if out is None else out.copy_(made)
    flat = (None if mean is None else mean.squeeze(-1).T.flatten()), rstd.squeeze(-1).T.flatten()
    return result, *flat


def layer_norm_fwd_npu(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None, Tensor]:
    """The same under the name that the newer layer calls."""
    return _layer_norm_fwd(*args, **kwargs)


def l2norm_fwd(x: Tensor, eps: float = 1e-6, output_dtype: torch.dtype | None = None) -> Tensor:
    """x / sqrt(sum(x²) + eps) over the last axis."""
    values = x.float()
    return (values * torch.rsqrt(values.pow(2).sum(-1, keepdim=True) + eps)).to(output_dtype or x.dtype)


def fused_qkvzba_split_reshape_cat(
    mixed_qkvz: Tensor, mixed_ba: Tensor, num_heads_qk: int, num_heads_v: int, head_qk: int, head_v: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows (tokens, …) that hold q, k, v, z, and b, a, of each key head in turn: q, k and v of all heads after each
    other (tokens, …), z (tokens, heads, head_v), b and a (tokens, heads)."""
    tokens, per_head = mixed_qkvz.shape[0], num_heads_v // num_heads_qk
    widths = (head_qk, head_qk, per_head * head_v, per_head * head_v)
    q, k, v, z = mixed_qkvz.view(tokens, num_heads_qk, -1).split(widths, -1)
    b, a = mixed_ba.view(tokens, num_heads_qk, -1).split((per_head, per_head), -1)
    mixed_qkv = torch.cat([part.flatten(1) for part in (q, k, v)], -1)
    z, b, a = z.reshape(tokens, num_heads_v, head_v), b.reshape(tokens, num_heads_v), a.reshape(tokens, num_heads_v)
    return mixed_qkv, z, b, a


def clear_ssm_states(ssm_states: Tensor, has_initial_state: Tensor) -> None:
    """Zeros in the states of rows that begin without one."""
    if has_initial_state.numel() != ssm_states.shape[0]:
        raise ValueError(f"clear_ssm_states: {ssm_states.shape[0]} states, {has_initial_state.numel()} flags")
    ssm_states[~has_initial_state.reshape(-1).bool()] = 0


def _compute_slot_mapping_kernel(
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc: Tensor,
    positions: Tensor,
    block_table: Tensor,
    block_table_stride: int,
    block_size: int,
    slot_mapping: Tensor,
    *,
    TOTAL_CP_WORLD_SIZE: int,
    TOTAL_CP_RANK: int,
    CP_KV_CACHE_INTERLEAVE_SIZE: int,
    PAD_ID: int,
    BLOCK_SIZE: int,
    grid: tuple[int],
) -> None:
    """The cache slot of each token into `slot_mapping` (max_num_tokens): its row's block by its position, and its place
    there; PAD_ID where another rank holds it, and after the last token. One program a row and one for the rest (vLLM
    0.23.0, `v1/worker/block_table.py`)."""
    rows = grid[0] - 1
    lengths = torch.diff(query_start_loc[: rows + 1]).long()
    first, last = (int(query_start_loc[at]) for at in (0, rows))
    row = torch.repeat_interleave(torch.arange(rows), lengths)
    position = positions[first:last]
    virtual, interleave = block_size * TOTAL_CP_WORLD_SIZE, CP_KV_CACHE_INTERLEAVE_SIZE
    index, offset = position // virtual, position % virtual
    block = block_table.flatten()[row * block_table_stride + index].long()
    local = offset // interleave % TOTAL_CP_WORLD_SIZE == TOTAL_CP_RANK
    place = offset // (TOTAL_CP_WORLD_SIZE * interleave) * interleave + offset % interleave
    slot_mapping[num_tokens:max_num_tokens] = PAD_ID
    slot_mapping[first:last] = torch.where(local, block * block_size + place, PAD_ID)


REPLACED: dict[str, Callable[..., Any]] = {
    "vllm_ascend.ops.triton.fla.layernorm_guard": _layer_norm_fwd,
    "vllm_ascend.ops.triton.layernorm_gated": layer_norm_fwd_npu,
    "vllm_ascend.ops.triton.fla.chunk": chunk_gated_delta_rule,
    "vllm_ascend.ops.triton.fla.fused_qkvzba_split_reshape": fused_qkvzba_split_reshape_cat,
    "vllm_ascend.ops.triton.fla.utils": clear_ssm_states,
    "vllm_ascend.ops.triton.rope": rope_forward_triton,
    "vllm.v1.worker.block_table": _compute_slot_mapping_kernel,
    "vllm.model_executor.layers.fla.ops.l2norm": l2norm_fwd,
    "vllm.third_party.flash_linear_attention.ops.l2norm": l2norm_fwd,  # from 0.26 on
}
"""By module of the release, or of its vLLM: the function of the same name there."""


class Launched:
    """A kernel that is called with its grid: `kernel[grid](…)`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        return functools.partial(self.function, grid=grid)


def replace(module: types.ModuleType) -> None:
    """Put the torch function where the module's own is, unless all kernels shall run."""
    function = REPLACED.get(module.__name__)
    if function is None or os.environ.get(VARIABLE) == "all":
        return
    name = function.__name__
    original = getattr(module, name, None)
    if original is None:  # this release has no such kernel
        return

    def counted(*args: Any, **kwargs: Any) -> Any:
        CALLS[f"torch.{module.__name__}.{name}"] += 1
        return function(*args, **kwargs)

    standing: Any = Launched(counted) if hasattr(original, "__getitem__") else counted
    standing.interpreted = original
    setattr(module, name, standing)
