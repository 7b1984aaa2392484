"""Strides of a tensor are no part of its value: the same numbers give the same result however they lie in memory.

The release gives its operators slices of a projection (queries, keys, values, gates), transposed weights and states,
and caches whose blocks or heads lie further apart than they are wide.
"""

from __future__ import annotations

import torch
from parity_emulated_npu.operators import attention, cache, delta_net, experts, linear, norms, rope

torch.manual_seed(8)


def strided(x: torch.Tensor) -> list[torch.Tensor]:
    """The same numbers: with gaps after each row, and with the first axes exchanged in memory."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1] + 3), float("nan") if x.is_floating_point() else -7).to(x.dtype)
    wide[..., : x.shape[-1]] = x
    made = [wide[..., : x.shape[-1]]]
    if x.dim() > 1:
        made.append(x.transpose(0, 1).contiguous().transpose(0, 1))
    if x.dim() > 2:
        made.append(x.transpose(1, 2).contiguous().transpose(1, 2))
    assert all(torch.equal(one, x) for one in made)
    return made


def same(operator, *tensors: torch.Tensor, **more) -> None:
    """`operator` gives the same for each layout of each tensor."""

    def flat(made):
        return [one for one in (made if isinstance(made, (tuple, list)) else [made]) if torch.is_tensor(one)]

    want = flat(operator(*tensors, **more))
    for place, tensor in enumerate(tensors):
        for other in strided(tensor):
            got = flat(operator(*tensors[:place], other, *tensors[place + 1 :], **more))
            for one, right in zip(got, want, strict=True):
                torch.testing.assert_close(one, right, rtol=1e-6, atol=1e-6)


def check_norms_and_gates() -> None:
    x, gamma = torch.randn(5, 8), torch.randn(8)
    same(norms.npu_rms_norm, x, gamma)
    same(norms.npu_add_rms_norm, x, torch.randn(5, 8), gamma)
    same(norms.npu_swiglu, x)
    same(delta_net.npu_fused_gdn_gating, torch.randn(4), torch.randn(5, 4), torch.randn(5, 4), torch.randn(4))


def check_rotations() -> None:
    turn = torch.randn(3, 1, 1, 8)
    same(rope.npu_rotary_mul, torch.randn(3, 2, 2, 8), turn, turn + 1)
    same(rope.npu_interleave_rope, torch.randn(3, 2, 2, 8), turn, turn + 1)


def check_attention_over_slices_and_over_caches_of_any_strides() -> None:
    q, k, v = torch.randn(4, 4, 8), torch.randn(3, 4, 2, 8), torch.randn(3, 4, 2, 8)
    table = torch.tensor([[2, 0], [1, 0]], dtype=torch.int32)
    arguments = dict(
        actual_seq_lengths=[3, 4], actual_seq_lengths_kv=[7, 2], num_heads=4, num_key_value_heads=2, scale=0.4,
        input_layout="TND", sparse_mode=3, block_size=4,
    )  # fmt: skip

    def paged(q, k, v, table):
        return attention.npu_fused_infer_attention_score(q, k.flatten(2), v.flatten(2), block_table=table, **arguments)[
            0
        ]

    def heads_first(q, k, v, table):
        keys, values = k.transpose(1, 2), v.transpose(1, 2)
        return attention.npu_fused_infer_attention_score(q, keys, values, block_table=table, **arguments)[0]

    same(paged, q, k, v, table)
    same(heads_first, q, k, v, table)
    assert torch.equal(paged(q, k, v, table), heads_first(q, k, v, table))


def check_caches_are_written_and_read_in_place_whatever_their_strides() -> None:
    keys, values, slots = torch.randn(3, 2, 4), torch.randn(3, 2, 4), torch.tensor([9, -1, 2])
    want = [torch.zeros(3, 4, 2, 4), torch.zeros(3, 4, 2, 4)]
    cache._npu_reshape_and_cache(keys, values, *want, slots)
    for first, second in zip(strided(torch.zeros(3, 4, 2, 4)), strided(torch.zeros(3, 4, 2, 4)), strict=True):
        for source in strided(keys):
            cache._npu_reshape_and_cache(source, values, first, second, slots)
            assert torch.equal(first, want[0])
            assert torch.equal(second, want[1])
        read = torch.empty(5, 2, 4), torch.empty(5, 2, 4)
        table = torch.tensor([[2, 0]], dtype=torch.int32)
        cache.npu_paged_cache_load(first, second, table, torch.tensor([5]), key=read[0], value=read[1])
        assert torch.equal(read[0], torch.cat((want[0][2], want[0][0][:1])))


def check_the_delta_net() -> None:
    tokens, blocks = 4, torch.tensor([1, 3, 0, 2])
    state = torch.randn(4, 2, 6, 5)

    def rule(q, k, v, beta, g):
        now = state.clone()
        made = delta_net.npu_recurrent_gated_delta_rule(
            q, k, v, now, beta=beta, g=g, actual_seq_lengths=torch.tensor([0, 3, 1]), ssm_state_indices=blocks
        )
        return made, now

    shapes = ((tokens, 2, 5), (tokens, 2, 5), (tokens, 2, 6), (tokens, 2), (tokens, 2))
    same(rule, *(torch.rand(shape) * -0.5 if len(shape) == 2 else torch.randn(shape) for shape in shapes))

    def convolved(x, weight, state):
        now, out = state.clone(), torch.zeros(tokens, 6)
        delta_net.npu_causal_conv1d_custom(
            out,
            x,
            weight,
            now,
            None,
            torch.tensor([0, 3, 4]),
            torch.tensor([1, 0]),
            torch.tensor([1, 0]),
            None,
            1,
            -1,
            0,
        )
        return out, now

    same(convolved, torch.randn(tokens, 6), torch.randn(4, 6), torch.randn(2, 3, 6))


def check_experts_and_products() -> None:
    x, ids = torch.randn(4, 6), torch.tensor([[1, 2], [2, 0], [1, 0], [0, 2]], dtype=torch.int32)
    arguments = dict(expert_num=3, expert_tokens_num_type=1, quant_mode=-1, active_expert_range=[0, 3])
    same(experts.npu_moe_init_routing_v2, x, ids, **arguments)
    sizes = torch.tensor([3, 2, 3])

    def grouped(rows, weight):
        return experts.npu_grouped_matmul(
            x=[rows], weight=[weight], split_item=2, group_list_type=1, group_type=0, group_list=sizes
        )

    same(grouped, torch.randn(8, 6), torch.randn(3, 6, 5))
    same(experts.npu_moe_token_unpermute, torch.randn(8, 6), torch.randperm(8).int(), torch.rand(4, 2))
    same(linear.npu_transpose_batchmatmul, torch.randn(3, 4, 5), torch.randn(3, 5, 2))
