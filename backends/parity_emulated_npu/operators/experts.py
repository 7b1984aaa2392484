"""Mixture of experts: choosing, sorting by expert, multiplying by groups, and adding up again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from parity_emulated_npu.operators.registry import only, operator, refuse, unused


def _kept_groups(scores: Tensor, k_group: int, group_count: int, group_select_mode: int) -> Tensor:
    """-inf outside the `k_group` groups with the best maximum (mode 0) or sum of the two best (mode 1)."""
    groups = scores.view(scores.shape[0], group_count, -1)
    value = groups.amax(-1) if group_select_mode == 0 else groups.topk(2, -1).values.sum(-1)
    kept = torch.zeros_like(value, dtype=torch.bool)
    kept.scatter_(1, value.sort(dim=-1, descending=True, stable=True).indices[:, :k_group], True)
    return groups.masked_fill(~kept.unsqueeze(-1), float("-inf")).view(scores.shape)


@operator
def moe_gating_top_k(
    x: Tensor,
    k: int,
    k_group: int,
    group_count: int,
    group_select_mode: int,
    renorm: int,
    norm_type: int,
    out_flag: bool,
    routed_scaling_factor: float,
    eps: float,
    bias_opt: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, ids and scores of the k best experts of each row of router logits (tokens, experts).

    norm_type 0: softmax, 1: sigmoid; a bias chooses and does not weigh; renorm 1, or sigmoid: the k weights sum to one;
    of equal scores the smaller id is first. As `moe_gating_top_k_numpy_ref` in vllm-ascend's
    `test_npu_moe_gating_top_k.py`.
    """
    scores = x.float().softmax(-1) if norm_type == 0 else x.float().sigmoid()
    chosen = scores if bias_opt is None else scores + bias_opt.float()
    if group_count > 1:
        chosen = _kept_groups(chosen, k_group, group_count, group_select_mode)
    ids = chosen.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    weights = scores.gather(-1, ids)
    if renorm == 1 or norm_type == 1:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    return (weights * routed_scaling_factor).to(x.dtype), ids.int(), scores


@operator
def npu_moe_gating_top_k(
    x: Tensor,
    k: int,
    *,
    bias: Tensor | None = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> tuple[Tensor, Tensor, Tensor]:
    """CANN's own, called by older releases in place of `moe_gating_top_k` (0.12.0rc1: `experts_selector.py`)."""
    how = (k_group, group_count, group_select_mode, renorm, norm_type, out_flag, routed_scaling_factor, eps)
    return moe_gating_top_k(x, k, *how, bias_opt=bias)


@operator
def npu_moe_init_routing_custom(
    x: Tensor,
    expert_idx: Tensor,
    *,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int = -1,
    drop_pad_mode: int = 0,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = 0,
    active_expert_range: Sequence[int] = (),
    row_idx_type: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Copies of the rows of x in the order of their experts (stable), where each copy went, and rows per expert.

    Copy j of row i is row `expanded_row_idx[i * k + j]`; -1 for one whose expert is outside `active_expert_range`.
    `expert_tokens_num_type` 0: counts added up, 1: counts. As `moe_init_routing_golden` in vllm-ascend's
    `test_moe_init_routing_custom.py`, without quantisation, capacity and `row_idx_type` 1.
    """
    name = "npu_moe_init_routing_custom"
    only(name, quant_mode=(quant_mode, -1), drop_pad_mode=(drop_pad_mode, 0), row_idx_type=(row_idx_type, 0))
    unused(name, {"scale": scale, "offset": offset})
    if expert_tokens_num_type not in (0, 1):
        raise refuse(name, f"expert_tokens_num_type={expert_tokens_num_type}")
    k = expert_idx.shape[-1]
    low, high = active_expert_range or (0, expert_num)
    flat = expert_idx.flatten().long()
    inside = (flat >= low) & (flat < high)
    order = torch.where(inside, flat, torch.iinfo(torch.long).max).argsort(stable=True)[: int(inside.sum())]
    where = torch.full_like(flat, -1)
    where[order] = torch.arange(order.numel())
    counts = torch.bincount(flat[order] - low, minlength=high - low)
    if expert_tokens_num_type == 0:
        counts = counts.cumsum(0)
    active = order.numel() if active_num <= 0 else min(active_num, order.numel())
    return x[order[:active] // k].clone(), where.int(), counts, torch.empty(0)


@operator
def npu_moe_init_routing_v2(x: Tensor, expert_idx: Tensor, **arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """CANN's own, called by releases from 0.26 on in place of `npu_moe_init_routing_custom`, with its arguments."""
    return npu_moe_init_routing_custom(x, expert_idx, **arguments)


@operator
def npu_grouped_matmul(
    x: Sequence[Tensor],
    weight: Sequence[Tensor],
    *,
    bias: Sequence[Tensor] | None = None,
    split_item: int = 0,
    group_list: Tensor | None = None,
    group_type: int | None = None,
    group_list_type: int = 0,
    **other: Any,
) -> list[Tensor]:
    """One x (rows, k) whose rows are grouped, one weight (groups, k, n); `group_list` has the ends of the groups
    (`group_list_type` 0) or their sizes (1). Rows after the last group are zero."""
    name = "npu_grouped_matmul"
    unused(name, other)
    if len(x) != 1 or len(weight) != 1 or group_list is None or group_list_type not in (0, 1):
        raise refuse(name, f"{len(x)} inputs, {len(weight)} weights, group_list_type={group_list_type}")
    only(name, group_type=(group_type, 0))
    if split_item not in (2, 3):
        raise refuse(name, f"split_item={split_item}")
    rows, experts, sizes = x[0], weight[0], group_list.tolist()
    ends = sizes if group_list_type == 0 else list(itertools.accumulate(sizes))
    made = torch.zeros((rows.shape[0], experts.shape[-1]), dtype=rows.dtype)
    start = 0
    for expert, end in enumerate(ends):
        if end > start:
            part = rows[start:end].float() @ experts[expert].float()
            made[start:end] = (part if bias is None else part + bias[0][expert]).to(rows.dtype)
        start = end
    return [made]


@operator
def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: object = None,
) -> Tensor:
    """Row i is the sum over j of probs[i, j] times row `sorted_indices[i * k + j]` of `permuted_tokens`."""
    only("npu_moe_token_unpermute", padded_mode=(padded_mode, False), restore_shape=(restore_shape, None))
    k = 1 if probs is None else probs.shape[1]
    rows = permuted_tokens.index_select(0, sorted_indices.long()).view(-1, k, permuted_tokens.shape[-1])
    if probs is None:
        return rows.squeeze(1)
    return (rows.float() * probs.float().unsqueeze(-1)).sum(1).to(permuted_tokens.dtype)
