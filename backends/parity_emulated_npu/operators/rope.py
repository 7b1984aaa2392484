"""Rotary position embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from parity_emulated_npu.operators.registry import operator


def rotated(x: Tensor, cos: Tensor, sin: Tensor, neox: bool) -> Tensor:
    """x turned by the angles: in halves (`neox`) or in pairs of neighbours; cos and sin as wide as x."""
    if neox:
        a, b = x.chunk(2, -1)
        turned = torch.cat((-b, a), -1)
    else:
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cos + turned * sin


def widened(half: Tensor, neox: bool) -> Tensor:
    """Angles of half a head for a whole one."""
    return torch.cat((half, half), -1) if neox else half.repeat_interleave(2, -1)


@operator
def _npu_rotary_embedding(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor, is_neox_style: bool
) -> None:
    """In place, over whole heads of `head_size`; query and key are (tokens, heads * head_size)."""
    halves = cos_sin_cache.index_select(0, positions.flatten()).float().chunk(2, -1)
    cos, sin = (widened(half, is_neox_style).unsqueeze(1) for half in halves)
    for x in (query, key):
        view = x.view(x.shape[0], -1, head_size)
        view.copy_(rotated(view.float(), cos, sin, is_neox_style).to(x.dtype))


@operator
def npu_rotary_mul(input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    return rotated(input.float(), r1.float(), r2.float(), rotary_mode == "half").to(input.dtype)


@operator
def npu_apply_rotary_pos_emb(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "BSND", rotary_mode: str = "half"
) -> tuple[Tensor, Tensor]:
    neox = rotary_mode == "half"
    query, key = (rotated(x.float(), cos.float(), sin.float(), neox).to(x.dtype) for x in (query, key))
    return query, key


@operator
def npu_interleave_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of neighbours are gathered into halves, which are rotated and stay gathered."""
    gathered = x.view(*x.shape[:-1], -1, 2).transpose(-1, -2).reshape(x.shape)
    return rotated(gathered.float(), cos.float(), sin.float(), True).to(x.dtype)
