"""What triton-ascend's language has beyond Triton's: slices of blocks, and shapes that are no powers of two.

Sources: triton-ascend 3.2 `language/extra/cann/extension`, as vllm-ascend 0.18 to 0.23 calls it.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any


def validate_block_shape(shape: Sequence[int]) -> int:
    """Elements of a block; Triton's own refuses sizes that are no powers of two."""
    count = 1
    for size in shape:
        count *= size
    return count


def any_range(semantic: types.ModuleType) -> None:
    """`tl.arange` over any number of elements."""

    def arange(self: Any, start: int, end: int, *, ret_ty: Any = None) -> Any:
        if ret_ty is None:
            ret_ty = semantic.tl.block_type(semantic.tl.int32, [end - start])
        return self.tensor(self.builder.create_make_range(ret_ty.to_ir(self.builder), start, end), ret_ty)

    semantic.TritonSemantic.arange = arange


def _number(value: Any) -> int:
    """A constexpr, a scalar tensor of the interpreter or a number."""
    import numpy as np

    if hasattr(value, "value"):
        return int(value.value)
    value = getattr(value, "handle", value)
    return int(np.asarray(getattr(value, "data", value)).item())


def _cut(offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[slice, ...]:
    places = zip(map(_number, offsets), map(_number, sizes), map(_number, strides), strict=True)
    return tuple(slice(first, first + (size - 1) * stride + 1, stride) for first, size, stride in places)


def _tensor(data: Any, like: Any) -> Any:
    """A tensor of the interpreter with this data and the element type of `like`."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    handle = TensorHandle(np.ascontiguousarray(data), like.handle.dtype)
    type_ = tl.block_type(like.type.scalar, list(data.shape)) if data.ndim else like.type.scalar
    return tl.core.tensor(handle, type_)


def extract_slice(ful: Any, offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any], **other: Any) -> Any:
    return _tensor(ful.handle.data[_cut(offsets, sizes, strides)].copy(), ful)


def insert_slice(
    ful: Any, sub: Any, offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any], **other: Any
) -> Any:
    data = ful.handle.data.copy()
    data[_cut(offsets, sizes, strides)] = sub.handle.data
    return _tensor(data, ful)


def get_element(src: Any, indice: Sequence[Any], **other: Any) -> Any:
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    at = tuple(map(_number, indice))
    data = np.array([src.handle.data[at]], dtype=src.handle.data.dtype)
    return tl.core.tensor(TensorHandle(data, src.handle.dtype), src.type.scalar)


EXTENSION = {
    "extract_slice": extract_slice,
    "insert_slice": insert_slice,
    "get_element": get_element,
    "sub_vec_id": None,
}
