"""vLLM's second model runner on this machine's processor, by Triton's interpreter: slow, and the same code as on a GPU.

It is the default on CUDA from vLLM 0.29 on, and asks for Triton. With Triton installed, TRITON_INTERPRET=1 and a
backend that says it is there (`parity_interpreted_triton`) vLLM 0.32.0 runs it unchanged, prefix caching with MTP and
asynchronous scheduling too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

from parity.messages import Message
from parity.run.envs import EnvSpec
from parity_backends.vllm import impossible
from parity_backends.vllm.cpu import VLLM_VERSION, CpuBackend, env_spec

TRITON = "triton==3.5.1"
PACKAGE = "parity_interpreted_triton"
ENTRY_POINTS = f"""[triton.backends]
cpu = {PACKAGE}
[vllm.general_plugins]
{PACKAGE} = {PACKAGE}.asynchronous:install
"""
SWITCHES = {"VLLM_USE_V2_MODEL_RUNNER": "1", "TRITON_INTERPRET": "1"}


def second_runner_spec(version: str = VLLM_VERSION) -> EnvSpec:
    """The environment of `cpu`, with Triton and the backend that stands in for a device's."""
    spec = env_spec(version)
    verify = f"import os; os.environ.update({SWITCHES!r}); {spec.verify}; import triton; triton.runtime.driver.active"
    texts = {f"{PACKAGE}/{file.name}": file.read_text("utf-8") for file in resources.files(PACKAGE).iterdir()
             if file.name.endswith(".py")}  # fmt: skip
    texts[f"{PACKAGE}-1.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1\n"
    texts[f"{PACKAGE}-1.dist-info/entry_points.txt"] = ENTRY_POINTS
    name = spec.name.replace("cpu", "cpu-v2", 1)
    return replace(spec, name=name, pins=(*spec.pins, TRITON), verify=verify, overlay=tuple(sorted(texts.items())))


class CpuV2Backend(CpuBackend):
    own_name = "cpu-v2"
    interpreter_variable = "PARITY_CPU_V2_PYTHON"

    def _spec(self) -> EnvSpec:
        return second_runner_spec(self.version or VLLM_VERSION)

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {**super().env_defaults(variant), **SWITCHES}

    def plant(self, fault: str) -> dict[str, str]:
        found = super().plant(fault)
        found.pop("VLLM_USE_V2_MODEL_RUNNER", None)
        return found

    def impossible(self, engine: Mapping[str, Any], config: Mapping[str, Any]) -> Message | None:
        # What the processor lacks is there: a Triton kernel, and a plugin that leaves asynchronous scheduling on.
        return impossible.on_cpu({**engine, "enable_prefix_caching": False, "async_scheduling": False}, config)
