"""Hugging Face transformers in float32: slow, independent of vLLM, and therefore an arbiter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.errors import BackendError
from parity.messages import Message, Say, joined, message
from parity.paths import expanded
from parity.run.backend import Detection
from parity.run.envs import EngineEnv, EnvSpec
from parity_backends.bundle import FIRST, bundle
from parity_backends.refusals import check_settings, no_fault, no_variant
from parity_backends.vllm import local
from parity_backends.vllm.cpu import CpuBackend

VARIABLE = "PARITY_TRANSFORMERS_PYTHON"
MODULES = (
    *FIRST,
    "parity.records:plan_digest",
    "parity_backends.worker:planned",
    "parity_backends.worker:identity",
    "parity.capture:sketch_table",
    "parity_backends.worker:copies",
    "parity_backends.worker:sketch_sums",
    "parity_backends.worker:sketch_modules",
    "parity_backends.worker:sketch_blocks",
    "reference_sketches",
    "reference",
    "transformers_arm",
)
DEFAULTS: dict[str, Any] = {"dtype": "float32", "device": "cpu", "batch_tokens": 8192}
"""Settings of an arm: the precision of weights and arithmetic, torch's device, tokens scored at once."""


class TransformersBackend:
    """Generates greedily and scores. Its Python is that of the `cpu` backend unless another is named."""

    name = "transformers"
    variants = ("base",)
    takes_images = False
    loads_weights = True
    answers_anew = True
    takes_usual = True
    hints: Mapping[str, Message] = {
        "transformers.does_not_load": message(
            "transformers.too_old",
            "this transformers does not know the architecture: point {variable} at a newer one",
            variable=VARIABLE,
        )
    }

    def __init__(self) -> None:
        self._cpu = CpuBackend()

    def default_model(self) -> Path | None:
        return self._cpu.default_model()

    def arm_settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of an arm from those given. Raises ParityError for an unknown one."""
        check_settings(self.name, given, (*DEFAULTS, "model"))
        return {**DEFAULTS, **given}

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        if variant not in self.variants:
            raise no_variant(self.name, variant, self.variants)
        return dict(DEFAULTS)

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

    def env_spec(self) -> EnvSpec | None:
        return None if os.environ.get(VARIABLE) else self._cpu.env_spec()

    def detect(self) -> Detection:
        path = self._python()
        if path is None:
            cpu = self._cpu.detect()
            return Detection(cpu.available, (local.not_set(VARIABLE), *cpu.looked_for), cpu.details, cpu.hint)
        found = local.installed_versions(path, "transformers", "torch", "tokenizers")
        if isinstance(found, Message):
            return Detection(False, (joined([str(path), found], ": "),), {}, self._hint())
        missing = [name for name in ("transformers", "torch", "tokenizers") if name not in found]
        versions = ", ".join(f"{name} {version}" for name, version in found.items())
        return Detection(
            not missing,
            (f"{path}: {versions}",),
            {**found, "interpreter": str(path)},
            self._hint() if missing else None,
        )

    def _python(self) -> Path | None:
        """The interpreter that is there already, without building one."""
        value = os.environ.get(VARIABLE) or os.environ.get("PARITY_CPU_PYTHON")
        if value:
            return expanded(value)
        spec = self._cpu.env_spec()
        environment = None if spec is None else EngineEnv(spec)
        return environment.python if environment is not None and environment.ready() else None

    @staticmethod
    def _hint() -> Message:
        return message(
            "transformers.interpreter",
            "point {variable} at a Python that has torch, transformers and tokenizers, or `parity env create cpu`",
            variable=VARIABLE,
        )

    def interpreter(self, say: Say) -> Path:
        value = os.environ.get(VARIABLE)
        if not value:
            return self._cpu.interpreter(say)
        path = expanded(value)
        if not os.access(path, os.X_OK):
            raise BackendError(local.not_executable(VARIABLE, value), hint=self._hint())
        return path

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        return self._cpu.launch_env(interpreter)

    def worker_source(self) -> bytes:
        return bundle("parity_backends.transformers.worker", MODULES)

    def plant(self, fault: str) -> dict[str, str]:
        raise no_fault(self.name, fault)

    def explain(self, log_tail: str) -> Message | None:
        if "No module named" in log_tail:
            return self._hint()
        if "out of memory" in log_tail.lower() or "MemoryError" in log_tail:
            return message("transformers.memory", "out of memory: lower batch_tokens, or name another device")
        return None
