"""vLLM on NVIDIA GPUs."""

from __future__ import annotations

from parity_backends._accelerator import Accelerator


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
