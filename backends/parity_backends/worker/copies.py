"""Copies of tensors on the host."""

from __future__ import annotations

from typing import Any, Optional


def host_copy(tensor: Any, stop: Optional[int] = None) -> Any:
    """An array with the values of a tensor: at once on the host, after the step's synchronisation on a device."""
    if tensor.is_cpu:
        values = tensor.numpy()
        return (values if stop is None else values[:stop]).copy()
    import torch

    part = tensor if stop is None else tensor[:stop]
    held = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
    held.copy_(part, non_blocking=True)
    return held.numpy()


def settled_copy(tensor: Any, stop: Optional[int] = None) -> Any:
    """As `host_copy`, and there when it returns: waits for what the device has yet to do."""
    return host_copy(tensor if tensor.is_cpu else tensor.cpu(), stop)
