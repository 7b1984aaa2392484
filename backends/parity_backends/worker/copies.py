"""Copies of tensors on the host."""

from __future__ import annotations

import sys
from typing import Any, Optional


def host_copy(tensor: Any, stop: Optional[int] = None) -> Any:
    """An array with the values of a tensor: at once on the host; of a device once what is `queued` after it is over."""
    if tensor.is_cpu:
        values = tensor.numpy()
        return (values if stop is None else values[:stop]).copy()
    torch = sys.modules["torch"]  # as `import` says it, which takes 4 us after a step's layers
    part = tensor if stop is None else tensor[:stop]
    held = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
    held.copy_(part, non_blocking=True)
    return held.numpy()


def event_of(device: Any) -> Any:
    """The class of the device's events; None for the host. Asked once: after a step's layers it takes 40 us."""
    kind = str(device).partition(":")[0]
    if kind == "cpu":
        return None
    import torch

    return getattr(torch, kind).Event


def queued(event: Any) -> Any:
    """An event of this class (`event_of`), after all that is queued on the device's stream now: `synchronize` waits for
    it. None on the host."""
    if event is None:
        return None
    found = event()
    found.record()
    return found
