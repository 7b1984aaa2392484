"""Sorting without `stable=True` promises no order among equals, and the device's kernels keep none.

torch's CPU sort happens to keep it. Here equals come out in the opposite order, always the same way, so that code which
relies on an order that nobody promised shows (vllm-ascend#4930 sorted a boolean mask so).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_Real = Callable[..., Any]


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, bool]:
    given = {**dict(zip(("dim", "descending"), args, strict=False)), **kwargs}
    return given.get("dim", -1), given.get("descending", False)


def _promised(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is the order asked for, or is this a way of calling in which nothing can be turned round?"""
    return bool(kwargs.get("stable")) or "out" in kwargs or len(args) > 2 or not tensor.dim()


def unstable(sort: _Real, argsort: _Real) -> tuple[_Real, _Real]:
    """torch's `sort` and `argsort` (of functions or of tensors) with equals in the opposite order."""

    def turned(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        dim, descending = _asked(args, kwargs)
        found = sort(tensor.flip(dim), dim=dim, descending=descending, stable=True)
        return found[0], tensor.shape[dim] - 1 - found[1]

    def sorted_(input: Any, *args: Any, **kwargs: Any) -> Any:
        if _promised(input, args, kwargs):
            return sort(input, *args, **kwargs)
        return torch.return_types.sort(turned(input, args, kwargs))

    def places(input: Any, *args: Any, **kwargs: Any) -> Any:
        return argsort(input, *args, **kwargs) if _promised(input, args, kwargs) else turned(input, args, kwargs)[1]

    return sorted_, places


def install() -> None:
    tensor: Any = torch.Tensor
    for owner in (torch, tensor):
        made = unstable(owner.sort, owner.argsort)
        owner.sort, owner.argsort = made
