"""The driver: one device, the processor, without streams."""

from __future__ import annotations

from typing import Any

from triton.backends import compiler, driver


class ProcessorDriver(driver.DriverBase):  # type: ignore[misc]
    def __init__(self) -> None:
        """Nothing to load: the interpreter calls numpy."""

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> Any:
        return compiler.GPUTarget("cpu", "interpreter", 1)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("interpreted kernels are not timed")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int) -> int:
        return 0
