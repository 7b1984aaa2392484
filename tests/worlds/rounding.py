"""Numbers with few bits, and the orders in which an arm adds them up.

Two kernels that compute one thing differ in where they round and in the order of their sums. An arm here has a few
such orders, and uses them in turn by the number of rows in its batch, as kernels are chosen by shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def bf16(values: Floats) -> Floats:
    """Rounds a contiguous array of its own to bfloat16, in place (half away from zero)."""
    bits = values.view(np.uint32)
    bits += np.uint32(0x8000)
    bits &= np.uint32(0xFFFF0000)
    return values


def fp8(values: Floats) -> Floats:
    """Rounded to float8 e4m3, a scale per tensor: three bits of mantissa, values below 2^-9 in equal steps."""
    largest = float(np.abs(values).max()) or 1.0
    scaled = np.ascontiguousarray(values * np.float32(448.0 / largest))
    small = np.abs(scaled) < 2**-6
    steps = np.round(scaled * 512) / 512
    bits = scaled.view(np.uint32)
    bits += np.uint32(0x80000)
    bits &= np.uint32(0xFFF00000)
    return np.where(small, steps, scaled).astype(np.float32) * np.float32(largest / 448.0)


def int8(values: Floats) -> Floats:
    """Rounded to int8, a scale per column."""
    scale = np.abs(values).max(axis=0, keepdims=True) / 127
    return (np.round(values / np.where(scale == 0, 1, scale)) * scale).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Orders:
    """How an arm adds up.

    splits: into how many parts a sum over the hidden dimension is cut, each rounded to bf16 before they are added; one
    after the other by the number of rows in the batch. window: the same for the parts of the attention window.
    state_every: steps after which the recurrent state is rounded to bf16 (a prefill keeps float32 inside a chunk).
    """

    splits: tuple[int, ...] = (1,)
    window: int = 1
    state_every: int = 1

    def split(self, rows: int) -> int:
        return self.splits[(rows // 8) % len(self.splits)]


def product(values: Floats, weights: Floats, parts: int) -> Floats:
    """`values @ weights`, the sum cut into `parts` that are rounded one by one."""
    if parts == 1:
        return bf16(values @ weights)
    width = values.shape[1] // parts
    total = bf16(values[:, :width] @ weights[:width])
    for part in range(1, parts):
        piece = slice(part * width, (part + 1) * width)
        total = bf16(total + bf16(values[:, piece] @ weights[piece]))
    return total
