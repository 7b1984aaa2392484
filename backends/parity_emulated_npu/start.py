"""Puts the emulated device to work in this process; imported by the environment's `.pth` file before anything else."""

from __future__ import annotations

import os
import sys

VARIABLES = {
    "TRITON_INTERPRET": "1",  # vllm-ascend's kernels run in Triton's own interpreter
    "TRITON_BACKENDS_IN_TREE": "1",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Where the user says nothing else."""

OFF = "PARITY_EMULATED_NPU"
"""0: the environment without the device (a reference that must not meet the stand-ins, such as transformers)."""


def start() -> None:
    """Again is harmless."""
    if os.environ.get(OFF) == "0":
        return
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
    from parity_emulated_npu.checkout import put_first
    from parity_emulated_npu.imports import Replaced, StandIns

    put_first()

    if not any(isinstance(finder, StandIns) for finder in sys.meta_path):
        sys.meta_path[:0] = [Replaced(), StandIns()]


start()
