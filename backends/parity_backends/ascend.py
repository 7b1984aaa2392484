"""vLLM on Huawei Ascend NPUs, through vllm-ascend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity_backends import _impossible
from parity_backends._accelerator import Accelerator


class AscendBackend(Accelerator):
    """Looks for an Ascend driver, devices and a Python with vLLM and vllm-ascend."""

    name = "ascend"
    hardware = "Ascend NPU"
    interpreter_variable = "PARITY_ASCEND_PYTHON"
    distributions = ("vllm", "vllm-ascend", "torch", "torch-npu")
    required = ("vllm", "vllm-ascend")
    tool = ("npu-smi", "info", "-l")
    device_pattern = "/dev/davinci[0-9]*"
    device_variable = "ASCEND_RT_VISIBLE_DEVICES"
    far_modules = ("vllm", "vllm_ascend")

    def impossible(self, engine: Mapping[str, Any]) -> str | None:
        return _impossible.on_ascend(engine)
