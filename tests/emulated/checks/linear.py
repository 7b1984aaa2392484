"""Products under other names."""

from __future__ import annotations

import torch
from parity_emulated_npu.operators import linear

torch.manual_seed(8)


def check_batched_product_and_its_axes() -> None:
    x, weight = torch.randn(3, 5, 4), torch.randn(3, 4, 2)
    want = torch.einsum("nbl,nlv->bnv", x, weight)
    torch.testing.assert_close(linear.npu_transpose_batchmatmul(x, weight, perm_y=(1, 0, 2)), want)
    got = linear.npu_transpose_batchmatmul(x.transpose(0, 1), weight, perm_x1=(1, 0, 2), perm_y=(1, 0, 2))
    torch.testing.assert_close(got, want)


def check_a_product_is_added_in_place() -> None:
    x, weight, c = torch.randn(2, 4), torch.randn(2, 3), torch.randn(4, 3)
    want = c + x.T @ weight
    linear._npu_matmul_add_fp32(x, weight, c)
    torch.testing.assert_close(c, want)
