"""vLLM on NVIDIA GPUs."""

from __future__ import annotations

from parity.messages import message
from parity_backends.vllm.accelerator import Accelerator


class CudaBackend(Accelerator):
    """Looks for an NVIDIA driver, devices and a Python with vLLM."""

    name = "cuda"
    hardware = "NVIDIA GPU"
    interpreter_variable = "PARITY_CUDA_PYTHON"
    distributions = ("vllm", "torch")
    required = ("vllm",)
    tool = ("nvidia-smi", "-L")
    device_pattern = "/dev/nvidia[0-9]*"
    device_variable = "CUDA_VISIBLE_DEVICES"
    remedies = (
        (
            ("driver on your system is too old", "CUDA driver version is insufficient", "no kernel image is available"),
            message(
                "cuda.driver",
                "this build of torch does not fit the driver or the card: `parity doctor cuda` says what is there",
            ),
        ),
        (
            ("No CUDA GPUs are available", "Found no NVIDIA driver"),
            message(
                "cuda.no_gpu",
                "torch sees no GPU: is CUDA_VISIBLE_DEVICES set, and does the container have the devices?",
            ),
        ),
        (
            ("No module named 'vllm_ascend'", "No module named 'torch_npu'"),
            message(
                "cuda.ascend_installed",
                "vllm-ascend is registered in this environment: keep it in one of its own "
                "(`pip uninstall vllm-ascend`)",
            ),
        ),
    )
