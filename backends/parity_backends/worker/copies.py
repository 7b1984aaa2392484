"""Copies of tensors on the host."""

from __future__ import annotations

import sys
from typing import Any, Optional


def host_copy(tensor: Any, stop: Optional[int] = None) -> Any:
    """An array with the values of a tensor: at once on the host; of a device once what is queued after it is over."""
    if tensor.is_cpu:
        values = tensor.numpy()
        return (values if stop is None else values[:stop]).copy()
    torch = sys.modules["torch"]  # as `import` says it, which takes 4 us after a step's layers
    part = tensor if stop is None else tensor[:stop]
    held = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
    held.copy_(part, non_blocking=True)
    return held.numpy()


ALIGNED = 8
"""Bytes, of which arrays begin at a multiple: the size of the widest number. numpy reads others in pieces."""


class StepCopies:
    """Copies on the host of the tensors of one step after another: of a device in one transfer a step.

    Of the host they are taken at once. Those of a device are put one after the other into a slab there, by one
    operation for all that were asked for since the last `gather`, and `send` transfers the slab. Both are queued on the
    current stream, and nothing waits: the values are those that the stream finds at `gather`, and they are on the host
    once the event of `send` is over. Slabs are of torch's own pools, which hand out pinned memory anew when no array
    shows it any more and its transfer is over.
    """

    def __init__(self) -> None:
        self.event: Any = None
        """The class of the device's events; None as long as nothing came from one."""
        self.parts: list[Any] = []
        """Bytes on the device that are not in the slab yet."""
        self.slab: Any = None
        self.held: Any = None
        """As many bytes on the host; `array` shows them."""
        self.array: Any = None
        self.used = self.gathered = self.size = 0
        """Bytes of the slab that are given away, that are filled, and all."""
        self.taken = self.before = 0
        """Bytes of this step so far, and of the last one."""
        self.gap: Any = None
        """Zeros on the device, for what lies between two arrays."""
        self.types: dict[Any, Any] = {}
        """numpy's types by torch's."""

    def of(self, tensor: Any, stop: Optional[int] = None) -> Any:
        """An array with the values of a tensor, or of its first rows. `gather` before anything may write over them."""
        if tensor.is_cpu:
            return host_copy(tensor, stop)
        part = tensor if stop is None else tensor[:stop]
        size, unaligned = part.numel() * part.element_size(), -self.used % ALIGNED
        if self.slab is None or self.used + unaligned + size > self.size:
            self._transfer()
            self._begin_slab(part.device, size)
            unaligned = 0
        if unaligned:
            self.parts.append(self.gap[:unaligned])
        if size:
            self.parts.append(_bytes_of(part))
        begin = self.used + unaligned
        self.used = begin + size
        self.taken += unaligned + size
        return self.array[begin : self.used].view(self._type(part.dtype)).reshape(tuple(part.shape))

    def gather(self) -> None:
        """Put into the slab what was asked for."""
        if self.parts:
            sys.modules["torch"].cat(self.parts, out=self.slab[self.gathered : self.used])
            self.parts, self.gathered = [], self.used

    def send(self) -> Any:
        """Transfer what the step has in the slab. An event after it, of which `synchronize` waits for it; None where
        nothing came from a device."""
        if self.slab is None:
            return None
        self._transfer()
        self.slab = self.held = self.array = None
        self.before, self.taken = self.taken, 0
        found = self.event()
        found.record()
        return found

    def _transfer(self) -> None:
        self.gather()
        if self.used:
            self.held[: self.used].copy_(self.slab[: self.used], non_blocking=True)
        self.used = self.gathered = 0

    def _begin_slab(self, device: Any, least: int) -> None:
        """Room for as much as the last step took, and for more where this one took more."""
        torch = sys.modules["torch"]
        if self.event is None:
            self.event = event_of(device)
            self.gap = torch.zeros(ALIGNED, dtype=torch.uint8, device=device)
        room = max(least, self.before, 2 * self.taken, ALIGNED)
        self.size = 1 << (room - 1).bit_length()  # as pinned memory comes
        with torch.inference_mode(False):  # what is made inside of that mode cannot be written outside of it
            self.slab = torch.empty(self.size, dtype=torch.uint8, device=device)
            self.held = torch.empty(self.size, dtype=torch.uint8, pin_memory=True)
        self.array = self.held.numpy()

    def _type(self, of_torch: Any) -> Any:
        found = self.types.get(of_torch)
        if found is None:
            found = self.types[of_torch] = sys.modules["torch"].empty(0, dtype=of_torch).numpy().dtype
        return found


def _bytes_of(part: Any) -> Any:
    """Those of a tensor, shape (bytes,)."""
    if not part.is_contiguous():
        part = part.contiguous()
    if part.dim() != 1:
        part = part.view(-1)
    return part.view(sys.modules["torch"].uint8)


def event_of(device: Any) -> Any:
    """The class of a device's events."""
    return getattr(sys.modules["torch"], str(device).partition(":")[0]).Event
