"""Copies of a step's tensors, on a device that does what is queued when it is waited for."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from parity_backends.worker.copies import ALIGNED, StepCopies


class Device:
    """The part of torch that the copies use, and a queue."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], None]] = []
        self.did: Counter[str] = Counter()
        self.uint8 = np.uint8
        self.npu = SimpleNamespace(Event=lambda: Event(self))

    def inference_mode(self, wanted: bool) -> Any:
        return contextlib.nullcontext()

    def empty(self, size: int, dtype: Any, device: str = "cpu", pin_memory: bool = False) -> Tensor:
        self.did["pinned"] += pin_memory
        return Tensor(self, np.full(size, 99, dtype=dtype), device)

    def zeros(self, size: int, dtype: Any, device: str) -> Tensor:
        return Tensor(self, np.zeros(size, dtype=dtype), device)

    def cat(self, parts: list[Tensor], out: Tensor) -> None:
        self.did["cat"] += 1
        assert all(one.values.dtype == np.uint8 and not np.shares_memory(one.values, out.values) for one in parts)
        self.queue.append(lambda: np.concatenate([one.values for one in parts], out=out.values))

    def wait(self) -> None:
        for one in self.queue:
            one()
        self.queue = []


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.count = device, -1

    def record(self) -> None:
        self.count = len(self.device.queue)

    def synchronize(self) -> None:
        assert self.count == len(self.device.queue), "nothing was queued after it"
        self.device.wait()


class Tensor:
    def __init__(self, torch: Device, values: Any, device: str = "npu:0") -> None:
        self.torch, self.values, self.device = torch, values, device
        self.is_cpu = device == "cpu"
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, which: Any) -> Tensor:
        return Tensor(self.torch, self.values[which], self.device)

    def numel(self) -> int:
        return int(self.values.size)

    def element_size(self) -> int:
        return int(self.values.itemsize)

    def dim(self) -> int:
        return int(self.values.ndim)

    def is_contiguous(self) -> bool:
        return bool(self.values.flags.c_contiguous)

    def contiguous(self) -> Tensor:
        made = np.empty_like(self.values, order="C")
        self.torch.queue.append(lambda: np.copyto(made, self.values))
        return Tensor(self.torch, made, self.device)

    def view(self, how: Any) -> Tensor:
        assert self.is_contiguous()
        return Tensor(self.torch, self.values.reshape(-1) if how == -1 else self.values.view(how), self.device)

    def numpy(self) -> Any:
        assert self.is_cpu
        return self.values

    def copy_(self, other: Tensor, non_blocking: bool) -> None:
        assert (non_blocking, self.is_cpu, other.is_cpu) == (True, True, False)
        self.torch.did["transfer"] += 1
        self.torch.queue.append(lambda: np.copyto(self.values, other.values))

    def fill(self, value: int) -> None:
        """What the engine queues behind what it has queued."""
        self.torch.queue.append(lambda: self.values.fill(value))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def a_step(device: Device, copies: StepCopies, rows: int) -> tuple[list[Any], list[Any], Any]:
    """Arrays, what they ought to hold, and the event: two doors, after each of which the engine writes over it all."""
    given = [
        np.arange(rows, dtype=np.int32),
        np.arange(rows, dtype=np.int64) * 2**40,
        np.arange(rows) % 2 == 0,
        np.arange(2 * rows, dtype=np.int16).reshape(rows, 2),
        np.arange(6 * rows, dtype=np.int32).reshape(rows, 6)[:, :3],
        np.zeros((0, 3), dtype=np.int32),
        np.arange(rows, dtype=np.int64),
    ]
    wanted, found = [one.copy() for one in given], []
    for door in (given[:5], given[5:]):
        tensors = [Tensor(device, one) for one in door]
        found += [copies.of(one) for one in tensors]
        copies.gather()
        for one in tensors:
            one.fill(7)
    return found, wanted, copies.send()


def test_a_step_is_one_transfer_and_holds_what_each_door_saw(device: Device) -> None:
    copies = StepCopies()
    for step, rows in enumerate((5, 5, 5, 4)):
        device.did.clear()
        found, wanted, event = a_step(device, copies, rows)
        event.synchronize()
        for one, other in zip(found, wanted, strict=True):
            assert (one.dtype, one.shape, one.tolist()) == (other.dtype, other.shape, other.tolist())
            assert one.ctypes.data % ALIGNED == 0
        if step:
            assert device.did == {"cat": 2, "transfer": 1, "pinned": 1}


def test_steps_that_grow_keep_all_that_they_hold(device: Device) -> None:
    """A slab that is full is sent, and a larger one begun. Nobody waits before the last step is over."""
    copies = StepCopies()
    steps = [a_step(device, copies, rows) for rows in (1, 3, 300, 2, 77)]
    device.wait()
    for found, wanted, _ in steps:
        assert [one.tolist() for one in found] == [one.tolist() for one in wanted]


def test_a_long_step_does_not_make_the_next_but_one_large(device: Device) -> None:
    copies = StepCopies()
    sizes = []
    for rows in (4000, 2, 2):
        copies.of(Tensor(device, np.zeros(rows, dtype=np.int64)))
        sizes.append(copies.size)
        copies.send()
    assert sizes == [2**15, 2**15, 2 * ALIGNED]


def test_what_is_on_the_host_is_copied_at_once_and_needs_no_event(device: Device) -> None:
    copies, values = StepCopies(), np.arange(4)
    found = copies.of(Tensor(device, values, "cpu"), 3)
    values.fill(7)
    copies.gather()
    assert copies.send() is None
    assert found.tolist() == [0, 1, 2]
    assert not device.queue
    assert not device.did


def test_first_rows_alone_are_copied(device: Device) -> None:
    copies = StepCopies()
    found = copies.of(Tensor(device, np.arange(9)), 4)
    copies.send().synchronize()
    assert found.tolist() == [0, 1, 2, 3]
