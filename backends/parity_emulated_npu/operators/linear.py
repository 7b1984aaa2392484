"""Matrix products that torch has under other names."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from parity_emulated_npu.operators.registry import operator, refuse


@operator
def npu_transpose_batchmatmul(
    input: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    perm_x1: Sequence[int] = (0, 1, 2),
    perm_x2: Sequence[int] = (0, 1, 2),
    perm_y: Sequence[int] = (1, 0, 2),
    batch_split_factor: int = 1,
) -> Tensor:
    """permute(permute(input) @ permute(weight)), batched over the first axis."""
    if bias is not None or scale is not None or batch_split_factor != 1:
        raise refuse("npu_transpose_batchmatmul", "bias, scale or batch_split_factor")
    made = input.permute(*perm_x1).float() @ weight.permute(*perm_x2).float()
    return made.permute(*perm_y).to(input.dtype)


@operator
def _npu_matmul_add_fp32(x: Tensor, weight: Tensor, c: Tensor) -> None:
    """c += xᵀ @ weight in float32."""
    c.add_(x.float().transpose(-1, -2) @ weight.float())
