"""Root mean square norms and activations."""

from __future__ import annotations

import torch
from torch import Tensor

from parity_emulated_npu.operators.registry import operator, refuse


@operator
def npu_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """x / sqrt(mean(x²) + epsilon) * gamma over the last axis, and the reciprocal root in float32."""
    x = self.float()
    rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return (x * rstd * gamma.float()).to(self.dtype), rstd


@operator
def npu_gemma_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """`npu_rms_norm` with weights that are stored less one."""
    return npu_rms_norm(x, 1.0 + gamma.float(), epsilon)


@operator
def npu_add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    """The norm of x1 + x2, the reciprocal root, and the sum itself (rounded to the inputs' type before the norm)."""
    x = x1 + x2
    y, rstd = npu_rms_norm(x, gamma, epsilon)
    return y, rstd, x


@operator
def npu_add_rms_norm_bias(
    x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor | None = None, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """`npu_add_rms_norm` with `beta` added to the norm."""
    y, rstd, x = npu_add_rms_norm(x1, x2, gamma, epsilon)
    return (y if beta is None else y + beta), rstd, x


@operator
def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """silu(a) * b for the halves a and b along `dim`."""
    a, b = self.chunk(2, dim)
    return (torch.nn.functional.silu(a.float()) * b.float()).to(self.dtype)


@operator
def npu_fast_gelu(self: Tensor) -> Tensor:
    return self * torch.sigmoid(1.702 * self)


@operator
def npu_format_cast(tensor: Tensor, acl_format: int, customize_dtype: object = None) -> Tensor:
    """Layouts of the device (ND, FRACTAL_NZ) hold the same numbers."""
    if customize_dtype is not None:
        raise refuse("npu_format_cast", "customize_dtype")
    return tensor


@operator
def get_npu_format(tensor: Tensor) -> int:
    return 2  # ACL_FORMAT_ND


@operator
def npu_prefetch(inputs: Tensor, dependency: object, max_size: int, offset: int = 0) -> None:
    """Moves weights into a cache of the device: no numbers change."""
