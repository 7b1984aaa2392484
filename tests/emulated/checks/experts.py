"""Experts: choosing, sorting, multiplying, adding up."""

from __future__ import annotations

import torch
from parity_emulated_npu.operators import NotEmulated, experts

torch.manual_seed(5)


def chosen(row: list[float], bias: list[float], k: int, groups: int, kept: int, mode: int) -> list[int]:
    """Ids by biased score within the best groups; of equals the smaller first."""
    scores = [a + b for a, b in zip(row, bias, strict=True)]
    size = len(row) // groups
    parts = [sorted(scores[group * size : (group + 1) * size], reverse=True) for group in range(groups)]
    value = [part[0] if mode == 0 else part[0] + part[1] for part in parts]
    best = set(sorted(range(groups), key=lambda group: -value[group])[:kept])
    ids = [number for number in range(len(row)) if number // size in best]
    return sorted(ids, key=lambda number: -scores[number])[:k]


def check_gating_as_upstreams_reference() -> None:
    """test_npu_moe_gating_top_k.py's cases: both norms, groups by maximum and by the sum of two, with a bias."""
    for norm_type in (0, 1):
        for groups, mode in ((1, 0), (1, 1), (8, 0), (8, 1)):
            x, bias = torch.rand(8, 64) * 4 - 2, torch.rand(64) * 4 - 2
            weights, ids, scores = experts.moe_gating_top_k(
                x, 4, 1, groups, mode, 1, norm_type, False, 2.5, 1e-20, bias
            )
            p = x.softmax(-1) if norm_type == 0 else x.sigmoid()
            torch.testing.assert_close(scores, p)
            want = [chosen(row, bias.tolist(), 4, groups, 1, mode) for row in p.tolist()]
            assert ids.tolist() == want
            assert ids.dtype == torch.int32
            taken = p.gather(1, torch.tensor(want))
            torch.testing.assert_close(weights, taken / taken.sum(-1, keepdim=True) * 2.5)


def check_canns_own_gating_as_old_releases_call_it() -> None:
    """Softmax, then the best; and with groups, a bias and sigmoid the same as upstream's reference."""
    x, bias = torch.randn(5, 8), torch.randn(8)
    weights, ids, _ = experts.npu_moe_gating_top_k(x, k=2, group_select_mode=1, routed_scaling_factor=1)
    torch.testing.assert_close(weights, x.softmax(-1).topk(2).values)
    assert torch.equal(ids.long(), x.topk(2).indices)
    _, ids, _ = experts.npu_moe_gating_top_k(x, k=2, bias=bias, k_group=1, group_count=4, norm_type=1)
    assert ids.tolist() == [chosen(row, bias.tolist(), 2, 4, 1, 0) for row in x.sigmoid().tolist()]


def check_softmax_weights_stay_where_nobody_asks_for_a_sum_of_one() -> None:
    x = torch.randn(3, 8)
    weights, ids, _ = experts.moe_gating_top_k(x, 2, 1, 1, 1, 0, 0, False, 1.0, 1e-20)
    torch.testing.assert_close(weights, x.softmax(-1).gather(1, ids.long()))


def check_routing_sorts_copies_and_says_where_they_went() -> None:
    x, ids = torch.randn(4, 3), torch.tensor([[2, 0], [1, 2], [0, 2], [3, 1]], dtype=torch.int32)
    rows, where, counts, _ = experts.npu_moe_init_routing_custom(
        x, ids, active_num=8, expert_num=4, expert_tokens_num_type=1, expert_tokens_num_flag=True, quant_mode=-1,
        active_expert_range=[0, 4],
    )  # fmt: skip
    order = sorted(range(8), key=lambda copy: int(ids.flatten()[copy]))
    assert torch.equal(rows, torch.stack([x[copy // 2] for copy in order]))
    assert where.tolist() == [order.index(copy) for copy in range(8)]
    assert counts.tolist() == [2, 2, 3, 1]


def check_routing_leaves_out_the_experts_of_other_ranks() -> None:
    x, ids = torch.randn(3, 2), torch.tensor([[0, 3], [2, 1], [3, 2]], dtype=torch.int32)
    rows, where, counts, _ = experts.npu_moe_init_routing_custom(
        x, ids, active_num=6, expert_num=4, expert_tokens_num_type=0, expert_tokens_num_flag=True, quant_mode=-1,
        active_expert_range=[2, 4],
    )  # fmt: skip
    assert torch.equal(rows, x[[1, 2, 0, 2]])
    assert where.tolist() == [-1, 2, 0, -1, 3, 1]
    assert counts.tolist() == [2, 4]


def check_a_round_trip_is_a_weighted_sum_of_experts() -> None:
    tokens, hidden, count, k = 5, 4, 3, 2
    x, weight = torch.randn(tokens, hidden), torch.randn(count, hidden, 6)
    ids = torch.stack([torch.randperm(count)[:k] for _ in range(tokens)]).int()
    probs = torch.rand(tokens, k)
    rows, where, counts, _ = experts.npu_moe_init_routing_custom(
        x, ids, active_num=tokens * k, expert_num=count, expert_tokens_num_type=1, expert_tokens_num_flag=True,
        quant_mode=-1, active_expert_range=[0, count],
    )  # fmt: skip
    for group_list, kind in ((counts, 1), (counts.cumsum(0), 0)):
        made = experts.npu_grouped_matmul(
            x=[rows], weight=[weight], split_item=2, group_list_type=kind, group_type=0, group_list=group_list
        )[0]
        got = experts.npu_moe_token_unpermute(made, where.abs(), probs)
        want = torch.stack(
            [
                sum(probs[token, j] * (x[token] @ weight[int(ids[token, j])]) for j in range(k))
                for token in range(tokens)
            ]
        )
        torch.testing.assert_close(got, want)


def check_quantised_routing_is_refused() -> None:
    try:
        experts.npu_moe_init_routing_custom(torch.randn(1, 2), torch.zeros(1, 1), expert_num=1, quant_mode=1)
    except NotEmulated as error:
        assert "quant_mode=1" in str(error)
    else:
        raise AssertionError("taken")
