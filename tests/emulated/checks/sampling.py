"""Cuts of the distribution."""

from __future__ import annotations

import torch
from parity_emulated_npu.operators import sampling

torch.manual_seed(7)


def kept(logits: torch.Tensor) -> list[set[int]]:
    return [set(row.isfinite().nonzero().flatten().tolist()) for row in logits]


def check_top_k_keeps_the_best_of_each_row() -> None:
    logits, k = torch.randn(3, 10), torch.tensor([1, 4, 10])
    got = sampling.npu_top_k_top_p(logits, k=k)
    assert kept(got) == [set(row.topk(int(n)).indices.tolist()) for row, n in zip(logits, k, strict=True)]
    assert torch.equal(got[2], logits[2])


def check_top_p_keeps_the_smallest_set_that_has_it() -> None:
    logits, p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log().repeat(4, 1), torch.tensor([0.4, 0.6, 0.9, 1.0])
    assert kept(sampling.npu_top_k_top_p(logits, p=p)) == [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}]


def check_top_p_counts_what_top_k_leaves() -> None:
    """Of all tokens 0.6 takes two of these, and of the best two it takes one."""
    logits, p, k = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log(), torch.tensor([0.6]), torch.tensor([2])
    assert kept(sampling.npu_top_k_top_p(logits, p=p)) == [{0, 1}]
    assert kept(sampling.npu_top_k_top_p(logits, p=p, k=k)) == [{0}]


def check_both_and_the_given_logits_stay() -> None:
    logits = torch.randn(2, 10)
    before = logits.clone()
    both = sampling.npu_top_k_top_p(logits, p=torch.tensor([0.5, 1.0]), k=torch.tensor([3, 3]))
    assert torch.equal(logits, before)
    assert len(kept(both)[1]) == 3
    assert kept(both)[0] <= set(logits[0].topk(3).indices.tolist())


def check_the_releases_own_operator_is_what_its_golden_computes() -> None:
    """vllm-ascend 0.18.0, test_apply_top_k_top_p_custom.py: both cuts made on sorted logits, then put back."""
    logits = torch.rand(8, 300) * 10 - 5
    p, k = torch.linspace(0.5, 1.0, 8), torch.tensor([1, 5, 50, 300, 7, 20, 100, 299], dtype=torch.int32)
    ascending, order = logits.sort(dim=-1)
    ascending[ascending < ascending.gather(1, (300 - k.long()).unsqueeze(1))] = float("-inf")
    out = ascending.softmax(-1).cumsum(-1) <= 1 - p.unsqueeze(1)
    out[:, -1] = False
    golden = torch.empty_like(logits).scatter_(-1, order, ascending.masked_fill(out, float("-inf")))
    assert torch.equal(sampling.npu_apply_top_k_top_p(logits, p=p, k=k), golden)
    try:
        sampling.npu_apply_top_k_top_p(logits)
    except ValueError as error:
        assert "p and k" in str(error)
    else:
        raise AssertionError("nothing to cut by is an error of the operator")
