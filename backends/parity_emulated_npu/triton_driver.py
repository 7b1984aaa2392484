"""Triton with one active driver, `npu`: its kernels run in Triton's interpreter, and each run is counted."""

from __future__ import annotations

import dataclasses
import os
import types
from typing import Any

from parity_emulated_npu.operators import CALLS

CORES_VARIABLE = "PARITY_EMULATED_NPU_CORES"
CORES = 4
"""Vector cores, where the variable says nothing else. Kernels size their grids by it and share their rows out. An
Ascend 910B1 has 48, of which the interpreter would run one after the other what is mostly empty; 4 still share."""


class Utils:
    def get_device_properties(self, device: int) -> dict[str, int]:
        cores = int(os.environ.get(CORES_VARIABLE, CORES))
        return {"num_aicore": max(cores // 2, 1), "num_vectorcore": cores}


class Target:
    backend = "npu"
    arch = "Ascend910B1"
    warp_size = 0


class Driver:
    """`triton.backends.driver.DriverBase`, as far as the interpreter and vLLM ask it."""

    utils = Utils()

    def __init__(self, *args: Any) -> None:
        pass

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Target:
        return Target()

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_interface(self) -> Any:
        import torch

        return torch.npu

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        return lambda function, *args, **kwargs: [0.0, 0.0, 0.0]

    def map_python_to_cpp_type(self, type_: str) -> str:
        return type_

    def get_empty_cache_for_benchmark(self) -> None:
        return None

    def clear_cache(self, cache: Any) -> None:
        pass


def leave_overflow(interpreter: types.ModuleType) -> None:
    """Whether a sum, difference or product of integers overflows is computed for an assertion that the interpreter
    never makes (triton 3.6.0, `semantic.py`: `device_assert` returns without `debug`); it is two fifths of its time."""
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=builder.options.debug)


def count_kernels(interpreter: types.ModuleType) -> None:
    """Count each kernel that the interpreter runs, by module and name."""
    run = interpreter.GridExecutor.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        CALLS[f"triton.{self.fn.__module__}.{self.fn.__name__}"] += 1
        return run(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = counted
