"""vLLM on NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.messages import message
from parity.records.objects import object_of
from parity_backends.vllm.accelerator import Accelerator
from parity_backends.vllm.worker.limits import other_heads

GDN_BACKEND = "gdn_prefill_backend"
"""An argument of `vllm.LLM` from 0.18.0; also a key of `additional_config`, which is where it goes."""


def gdn_backend_asked(engine: Mapping[str, Any]) -> Any:
    """The backend that somebody asked for; None: left to the engine."""
    return engine.get(GDN_BACKEND) or object_of(engine.get("additional_config")).get(GDN_BACKEND)


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

    def for_checkpoint(self, engine: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """With Triton's prefill of gated delta networks where FlashInfer's would read past their state."""
        if not other_heads(config) or gdn_backend_asked(engine) is not None:
            return dict(engine)
        return {**engine, GDN_BACKEND: "triton"}

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
            ("No module named 'flashinfer'",),
            message(
                "cuda.no_flashinfer",
                "vLLM's sampler asks for FlashInfer, which that Python lacks: install flashinfer-python as vLLM's own "
                "requirements have it, or set VLLM_USE_FLASHINFER_SAMPLER=0 in `env` of this backend",
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
