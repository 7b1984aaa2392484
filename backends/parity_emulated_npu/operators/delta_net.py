"""Gated delta networks: the recurrence, its convolution and its gates."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from parity_emulated_npu.operators.registry import of_torch_npu, operator, refuse


def step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """One token of the gated delta rule: the new state (…, heads, dv, dk) and the output (…, heads, dv)."""
    state = state * decay[..., None, None]
    change = (v - torch.einsum("...vk,...k->...v", state, k)) * beta[..., None]
    state = state + change[..., :, None] * k[..., None, :]
    return state, torch.einsum("...vk,...k->...v", state, q)


@operator
def npu_recurrent_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor,
    *,
    beta: Tensor | None = None,
    scale: float | None = None,
    actual_seq_lengths: Tensor,
    ssm_state_indices: Tensor,
    num_accepted_tokens: Tensor | None = None,
    g: Tensor | None = None,
    gk: Tensor | None = None,
) -> Tensor:
    """query, key (tokens, key heads, dk), value (tokens, heads, dv), state (blocks, heads, dv, dk), changed in place.

    `actual_seq_lengths` is [where the first sequence begins, length, length, …] (vllm-ascend
    `gdn_attn_builder._build_actual_seq_lengths`). A sequence begins with the state in the block of its first token, or
    in that of its last accepted one; after each token the state goes to the block of that token. Blocks are counted
    as tokens are, one for each: not in rows of their own. As `golden_recurrent_gated_delta_rule` in vllm-ascend's
    `test_recurrent_gated_delta_rule.py`; a sequence shorter than its accepted count stays as it is, with zeros as
    outputs, where the kernel (`recurrent_gated_delta_rule.h`, 0.23.0) returns and leaves its outputs unwritten.
    """
    if gk is not None:
        raise refuse("npu_recurrent_gated_delta_rule", "argument gk")
    repeats = value.shape[1] // query.shape[1]
    v = value.float()
    q, k = (tensor.float().repeat_interleave(repeats, 1) for tensor in (query, key))
    q = q * (k.shape[-1] ** -0.5 if scale is None else scale)
    ones = torch.ones(v.shape[:2])
    decay = ones if g is None else g.float().exp()
    weight = ones if beta is None else beta.float()
    start, *lengths = actual_seq_lengths.tolist()
    blocks = ssm_state_indices.flatten().long()
    lengths_left = torch.tensor(lengths)
    at = start + lengths_left.cumsum(0) - lengths_left
    accepted = torch.ones_like(at) if num_accepted_tokens is None else num_accepted_tokens[: at.numel()].long()
    live = (lengths_left > 0) & (accepted > 0) & (accepted <= lengths_left)
    at, accepted, lengths_left = at[live], accepted[live], lengths_left[live]
    out = torch.zeros_like(value)
    if not at.numel():
        return out
    now = state[blocks[at + accepted - 1]].float()
    for token in range(int(lengths_left.max())):
        if token and not bool((lengths_left > token).all()):  # those that have ended drop out
            more = lengths_left > token
            at, lengths_left, now = at[more], lengths_left[more], now[more]
        place = at + token
        now, made = step(now, q[place], k[place], v[place], decay[place], weight[place])
        state[blocks[place]] = now.to(state.dtype)
        out[place] = made.to(out.dtype)
    return out


def plain_lengths(actual_seq_lengths: Tensor, **arguments: Any) -> Tensor:
    """The operator of torch_npu, which 0.18.0 calls: lengths alone, one for each sequence (CANN's ops-transformer,
    `recurrent_gated_delta_rule/tests/pytest/README.md`: as many as the batch has, their sum is all tokens)."""
    lengths = torch.cat((actual_seq_lengths.new_zeros(1), actual_seq_lengths))
    return npu_recurrent_gated_delta_rule(actual_seq_lengths=lengths, **arguments)


of_torch_npu("npu_recurrent_gated_delta_rule", plain_lengths)


def _windows(rows: Tensor, weight: Tensor) -> Tensor:
    """Sums of products of each window of rows (…, width - 1 + n, dim) with the weights (width, dim), in float32."""
    count = rows.shape[-2] - weight.shape[0] + 1
    made = rows[..., :count, :].float() * weight[0]
    for place in range(1, weight.shape[0]):
        made = made + rows[..., place : place + count, :].float() * weight[place]
    return made


@operator
def npu_causal_conv1d_custom(*given: Any) -> Tensor:
    """`convolved`; 0.18.0's makes its own output, and up to 0.21.0rc1 lists of numbers stand for the tensors that may
    be left out."""
    if len(given) not in (11, 12):
        raise refuse("npu_causal_conv1d_custom", f"a call with {len(given)} arguments")
    output, *rest = given if len(given) == 12 else (torch.empty_like(given[0]), *given)
    x, weight, conv_state, bias, *places = rest[:8]
    tensors: list[Any] = [(torch.tensor(one) if one else None) if isinstance(one, list) else one for one in places]
    return convolved(output, x, weight, conv_state, bias, *tensors, *rest[8:])


def convolved(
    output: Tensor,
    x: Tensor,
    weight: Tensor,
    conv_state: Tensor,
    bias_opt: Tensor | None,
    query_start_loc_opt: Tensor,
    cache_indices_opt: Tensor,
    initial_state_mode_opt: Tensor | None,
    num_accepted_tokens_opt: Tensor | None,
    activation_mode: int,
    pad_slot_id: int,
    run_mode: int,
) -> Tensor:
    """x (tokens, dim), weight (width, dim), conv_state (blocks, at least width - 1, dim), changed; into `output`.

    run_mode 0: prefill, from the state where `initial_state_mode_opt` says so, else from zeros; 1: update. With
    accepted counts the window begins at the last accepted token, and all drafts stay in the state for the next step
    to choose from. As `causal_conv1d_fn` and `causal_conv1d_update` in vllm-ascend's `_310p/ops/causal_conv1d.py`,
    which its test compares the kernel with.
    """
    taps = weight.float()
    width = taps.shape[0]
    bias = 0.0 if bias_opt is None else bias_opt.float()
    ends = query_start_loc_opt.tolist()
    blocks = (cache_indices_opt if cache_indices_opt.dim() == 1 else cache_indices_opt[:, 0]).tolist()
    accepted = None if num_accepted_tokens_opt is None else num_accepted_tokens_opt.tolist()
    begins = None if initial_state_mode_opt is None else initial_state_mode_opt.tolist()
    for row, (low, high) in enumerate(itertools.pairwise(ends)):
        block = blocks[row]
        if block == pad_slot_id or high <= low:
            continue
        if run_mode == 0 and (begins is None or not begins[row]):
            before = x.new_zeros((width - 1, x.shape[1]))
        else:
            first = 0 if accepted is None else accepted[row] - 1
            before = conv_state[block, first : first + width - 1].to(x.dtype)
        rows = torch.cat((before, x[low:high]))
        made = _windows(rows, taps) + bias
        output[low:high] = (torch.nn.functional.silu(made) if activation_mode else made).to(output.dtype)
        kept = rows[1 - width :] if accepted is None else rows[1:]
        conv_state[block, : kept.shape[0]] = kept.to(conv_state.dtype)
    return output


@operator
def npu_fused_gdn_gating(
    A_log: Tensor, a: Tensor, b: Tensor, dt_bias: Tensor, beta: float = 1.0, threshold: float = 20.0
) -> tuple[Tensor, Tensor]:
    """Decay -exp(A_log) * softplus(a + dt_bias) in float32 and gate sigmoid(b), both (1, tokens, heads)."""
    decay = -A_log.float().exp() * torch.nn.functional.softplus(a.float() + dt_bias.float(), beta, threshold)
    return decay.unsqueeze(0), b.float().sigmoid().to(b.dtype).unsqueeze(0)
