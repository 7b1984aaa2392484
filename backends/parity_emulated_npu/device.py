"""`torch.npu`: a device that is called npu and is the CPU.

Tensors on it are CPU tensors. A transfer (`.to(device)`, `.npu()`, `.cpu()`) copies, as between a host and an NPU, so
that code which forgets to copy anew reads old numbers here as there. Memory is a figure, streams and events are order
of execution, and pinned memory is ordinary.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._library.infer_schema import SUPPORTED_PARAM_TYPES

from parity_emulated_npu import EMULATES, checkout, ties
from parity_emulated_npu.absent import Absent
from parity_emulated_npu.operators import NAMESPACE

MEMORY_VARIABLE = "PARITY_EMULATED_NPU_MIB"
MEMORY_MIB = 2048
"""Of the device, where the variable says nothing else: room for small checkpoints and their cache."""

A2 = 220
"""`get_soc_version` of an Ascend 910B1."""

_REAL = torch.device


def _is_npu(device: Any) -> bool:
    return (isinstance(device, str) and device.startswith("npu")) or isinstance(device, int)


class _Device(type):
    """`torch.device` that takes npu for the CPU; `isinstance` sees the real class."""

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, _REAL)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _REAL)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("type", kwargs.get("device"))
        if _is_npu(given) or given == "cpu":
            return _REAL("cpu")
        return _REAL(*args, **kwargs)

    def __or__(cls, other: Any) -> Any:
        return _REAL | other

    __ror__ = __or__


class Device(metaclass=_Device):
    pass


class Event:
    """Work is done when it is asked for, so every event has happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, *args: Any, **kwargs: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait(self, *args: Any, **kwargs: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0


class Stream(Event):
    """The one order in which everything runs."""

    npu_stream = 0
    stream_id = 0
    device_index = 0

    def wait_stream(self, *args: Any) -> None:
        pass

    def wait_event(self, *args: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class Memory:
    """Free and total bytes. Free ones fall by 1 MiB each time they are asked for: vllm-ascend wants to see its profile
    run take some."""

    def __init__(self) -> None:
        self.total = int(os.environ.get(MEMORY_VARIABLE, MEMORY_MIB)) << 20
        self.free = self.total * 98 // 100

    def info(self, *args: Any) -> tuple[int, int]:
        self.free -= 1 << 20
        return self.free, self.total

    @staticmethod
    def stats(*args: Any) -> dict[str, int]:
        return {"allocated_bytes.all.peak": 0, "allocated_bytes.all.current": 0}


class Properties:
    name = EMULATES
    cube_core_num = 24
    vector_core_num = 48
    uuid = None

    def __init__(self, total_memory: int) -> None:
        self.total_memory = total_memory


def install(torch_npu: types.ModuleType) -> None:
    """Give torch its npu, once: `import torch_npu` does it."""
    memory = Memory()
    npu = Absent("torch.npu")
    _fill(npu, memory)
    vars(torch)["npu"] = npu
    vars(torch_npu)["npu"] = npu
    sys.modules["torch.npu"] = npu
    sys.modules["torch_npu.npu"] = npu
    vars(torch)["device"] = Device
    SUPPORTED_PARAM_TYPES[Device] = SUPPORTED_PARAM_TYPES[_REAL]  # custom operators with `device: torch.device`
    _accelerator(memory)
    _tensors()
    ties.install()
    _distributed()
    _registrations()


def _fill(npu: types.ModuleType, memory: Memory) -> None:
    current = Stream()
    vars(npu).update(
        emulated=checkout.described(),
        Event=Event,
        ExternalEvent=Event,
        Stream=Stream,
        Generator=torch.Generator,
        is_available=lambda: True,
        is_initialized=lambda: False,
        device_count=lambda: 1,
        current_device=lambda: 0,
        set_device=lambda device: None,
        get_device_name=lambda device=0: f"{EMULATES} (emulated)",
        get_device_properties=lambda *args: Properties(memory.total),
        get_soc_version=lambda: A2,
        current_stream=lambda *args: current,
        default_stream=lambda *args: current,
        stream=lambda stream: contextlib.nullcontext(),
        set_stream=lambda stream: None,
        synchronize=lambda *args: None,
        empty_cache=lambda: None,
        mem_get_info=memory.info,
        memory_stats=memory.stats,
        memory_reserved=lambda *args: 0,
        memory_allocated=lambda *args: 0,
        max_memory_allocated=lambda *args: 0,
        reset_peak_memory_stats=lambda *args: None,
        manual_seed=lambda seed: None,
        manual_seed_all=lambda seed: None,
        set_compile_mode=lambda **kwargs: None,
        config=Absent("torch.npu.config"),
    )


def _accelerator(memory: Memory) -> None:
    for name, value in {
        "synchronize": lambda *args: None,
        "empty_cache": lambda *args: None,
        "reset_peak_memory_stats": lambda *args: None,
        "memory_stats": memory.stats,
        "memory_reserved": lambda *args: 0,
        "current_device_index": lambda: 0,
        "current_accelerator": lambda *args: _REAL("cpu"),
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "set_device_index": lambda *args: None,
        "get_memory_info": memory.info,
    }.items():
        setattr(torch.accelerator, name, value)


_NAMES = """
    arange empty empty_like empty_strided eye full full_like linspace ones ones_like rand rand_like randint randn
    randn_like randperm tensor zeros zeros_like
"""
FACTORIES = tuple(_NAMES.split())
"""Functions of torch that take a device and pinned memory."""


def _on_cpu(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def made(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        if _is_npu(kwargs.get("device")):
            kwargs["device"] = _REAL("cpu")
        return real(*args, **kwargs)

    return made


def _names_device(thing: Any) -> bool:
    return isinstance(thing, (_REAL, str)) or (isinstance(thing, int) and not isinstance(thing, bool))


def _tensors() -> None:
    for name in FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    tensor: Any = torch.Tensor
    for name in ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"):
        setattr(tensor, name, _on_cpu(getattr(tensor, name)))
    move, host = tensor.to, tensor.cpu

    @functools.wraps(move)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and _names_device(args[0]):
            args = (_REAL("cpu") if _is_npu(args[0]) else args[0], *args[1:])
            kwargs["copy"] = True
        elif kwargs.get("device") is not None:
            kwargs["device"] = _REAL("cpu") if _is_npu(kwargs["device"]) else kwargs["device"]
            kwargs["copy"] = True
        return move(self, *args, **kwargs)

    @functools.wraps(host)
    def cpu(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.clone()

    tensor.to = to
    tensor.cpu = cpu
    tensor.npu = lambda self, *args, **kwargs: self.clone()
    tensor.pin_memory = lambda self, *args, **kwargs: self
    tensor.record_stream = lambda self, stream: None  # memory that is used by another stream: there is one order
    tensor.is_npu = property(lambda self: True)
    vars(torch)["Generator"] = _generator()
    module: Any = torch.nn.Module
    module.npu = lambda self, *args, **kwargs: self


def _generator() -> Any:
    real = torch.Generator

    class Generator(type):
        def __instancecheck__(cls, thing: Any) -> bool:
            return isinstance(thing, real)

        def __call__(cls, device: Any = "cpu") -> Any:
            return real(_REAL("cpu"))

    return Generator("Generator", (), {})


def _distributed() -> None:
    import torch.distributed as dist

    init, group = dist.init_process_group, dist.new_group

    @functools.wraps(init)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        return init("gloo", *args, **kwargs)

    @functools.wraps(group)
    def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("backend") == "hccl":
            kwargs["backend"] = "gloo"
        kwargs.pop("pg_options", None)
        return group(ranks, *args, **kwargs)

    gloo: Any = dist.ProcessGroupGloo
    gloo.get_hccl_comm_name = lambda self, rank: f"gloo of rank {rank}"  # asked for, and unused where nothing is sent
    changed: dict[str, Any] = {"is_hccl_available": lambda: True, "init_process_group": init_process_group}
    vars(dist).update(changed, new_group=new_group)


def _registrations() -> None:
    """Operators that vLLM and vllm-ascend register for the NPU are asked with CPU tensors here."""
    register = torch.library.Library.impl
    asked = ("vllm", NAMESPACE)

    @functools.wraps(register)
    def impl(self: Any, name: Any, function: Any, dispatch_key: str = "", **kwargs: Any) -> Any:
        key = "CPU" if dispatch_key in ("PrivateUse1", "NPU") and self.ns in asked else dispatch_key
        return register(self, name, function, key, **kwargs)

    library: Any = torch.library.Library
    library.impl = impl
