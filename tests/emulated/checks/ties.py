"""Equals come out in an order of the device's own, and in theirs where that is asked for."""

from __future__ import annotations

import torch
from parity_emulated_npu import ties

sort, argsort = ties.unstable(torch.sort, torch.argsort)
MASK = torch.tensor([0, 1, 0, 1, 1])


def check_equals_keep_their_order_only_where_it_is_promised() -> None:
    assert argsort(MASK).tolist() == [2, 0, 4, 3, 1]
    assert argsort(MASK, stable=True).tolist() == [0, 2, 1, 3, 4]
    assert sort(MASK, stable=True).indices.tolist() == [0, 2, 1, 3, 4]


def check_what_is_sorted_is_sorted() -> None:
    torch.manual_seed(3)
    x = torch.randint(0, 4, (5, 7, 6))
    for dim in (-1, 0, 1):
        for descending in (False, True):
            values, places = sort(x, dim, descending)
            assert torch.equal(values, torch.sort(x, dim, descending).values)
            assert torch.equal(x.gather(dim, places), values)
            assert torch.equal(places, argsort(x, dim=dim, descending=descending))
            all_of_them = torch.arange(x.shape[dim]).expand_as(x.transpose(dim, -1)).transpose(dim, -1)
            assert torch.equal(places.sort(dim).values, all_of_them)


def check_methods_and_other_ways_of_calling() -> None:
    method, _ = ties.unstable(torch.Tensor.sort, torch.Tensor.argsort)
    found = method(MASK, descending=True)
    assert found.indices.tolist() == [4, 3, 1, 2, 0]
    assert sort(input=torch.tensor(3)).values.item() == 3
    out = torch.empty(5, dtype=torch.long), torch.empty(5, dtype=torch.long)
    assert sort(MASK, out=out).values is out[0]
