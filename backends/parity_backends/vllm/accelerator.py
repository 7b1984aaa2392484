"""Adapters that can look for their hardware and engine but cannot run yet on this machine alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.errors import BackendError
from parity.messages import Message, Say, joined, message
from parity.records import Json
from parity.records.deployment import Deployment
from parity.run.backend import Ask, Detection, Kit
from parity.run.checks import Check
from parity.run.envs import EnvSpec
from parity_backends.vllm import local
from parity_backends.vllm.asked import DEPLOYED, MEMORY_SHARE, VARIANTS, engine_arguments, pinned_variables
from parity_backends.vllm.foreseen import foresee
from parity_backends.vllm.remedies import COMMON, MEMORY_SIGNS, Remedy, remedy_for
from parity_backends.vllm.serve import deployment
from parity_backends.vllm.values import check_values

NOT_FOUND = message("vllm.tool_not_found", "not found")
NO_DEVICE = message("vllm.no_device_file", "none")


class Accelerator:
    """What `cuda` and `ascend` have in common; subclasses name the places to look at."""

    name = ""
    hardware = ""
    variants = VARIANTS
    interpreter_variable = ""
    distributions: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    device_pattern = ""
    remedies: tuple[Remedy, ...] = ()
    """Looked for in the engine's log before the common ones."""
    device_variable = ""
    """Chooses the devices that a process sees."""
    memory_signs = MEMORY_SIGNS
    far_modules: tuple[str, ...] = ("vllm",)
    """What the interpreter of another host must be able to import."""

    dear = True

    def default_model(self) -> Path | None:
        return None

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        asked = engine_arguments(self.name, variant, num_speculative_tokens)
        return asked if variant == DEPLOYED else {**asked, "gpu_memory_utilization": MEMORY_SHARE}

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {**pinned_variables(variant), "VLLM_NO_USAGE_STATS": "1"}

    def check_values(self, engine: Mapping[str, Any]) -> None:
        check_values(engine)

    def foresee(self, engine: Mapping[str, Any], model: Path) -> None:
        foresee(engine, model, ascend="vllm-ascend" in self.distributions)

    def deployment(self, source: str) -> Deployment:
        return deployment(source)

    def env_spec(self) -> EnvSpec | None:
        return None

    def detect(self) -> Detection:
        looked: list[Message] = []
        details: dict[str, Any] = {}
        listing = local.tool_output(*self.tool)
        looked.append(joined([" ".join(self.tool), _first_lines(listing) if listing else NOT_FOUND], ": "))
        found_devices = local.devices(self.device_pattern)
        looked.append(joined([self.device_pattern, ", ".join(found_devices) or NO_DEVICE], ": "))
        path, how = local.configured_interpreter(self.interpreter_variable)
        found = local.installed_versions(path, *self.distributions)
        engine = not isinstance(found, Message) and all(name in found for name in self.required)
        if isinstance(found, Message):
            looked.append(joined([how, found], ": "))
        else:
            there = ", ".join(f"{name} {found[name]}" for name in self.distributions if name in found)
            lacks = message("vllm.lacks", "without {packages}", packages=list(self.required))
            looked.append(joined([how, joined([f"Python {found['python']}", there or lacks], ", ")], ": "))
            details.update(found, interpreter=str(path))
        if found_devices:
            details["devices"] = found_devices
        available = bool(found_devices) and engine
        return Detection(available, tuple(looked), details, None if available else self._elsewhere())

    def _elsewhere(self) -> Message:
        return message(
            "vllm.elsewhere",
            "set {variable} to a Python that has {packages}, on a machine with {hardware}s; or carry the plan to "
            "another host (`parity plan`), run it there by hand (`parity worker --write worker.py`, carry it along, "
            "`python worker.py PLAN.json --arm {backend}/mtp > mtp.jsonl`) and `parity compare` the captures here",
            variable=self.interpreter_variable,
            packages=list(self.required),
            hardware=self.hardware,
            backend=self.name,
        )

    def probe(self) -> tuple[str, Sequence[str]]:
        return local.doctor_probe(), [self.name]

    def examined_python(self) -> Path | None:
        return local.configured_interpreter(self.interpreter_variable)[0]

    def judge(self, facts: Mapping[str, Json]) -> list[Check]:
        from parity_backends.vllm.doctor.judge import judge

        return judge(self.name, facts)

    def interpreter(self, say: Say) -> Path:
        found = self.detect()
        if not found.available:
            looked = joined([part for line in found.looked_for for part in ("\n  ", line)], by="")
            raise BackendError(
                message(
                    "vllm.no_device",
                    "backend {backend!r}: no {hardware} with vLLM here; looked for{places}",
                    backend=self.name,
                    hardware=self.hardware,
                    places=looked,
                ),
                hint=self._elsewhere(),
            )
        return local.configured_interpreter(self.interpreter_variable)[0]

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        # Kept here though parity drops it for managed environments: CANN's set_env.sh puts its own in.
        path = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": path} if path else {}

    def far_env(self, ask: Ask) -> dict[str, str]:
        """Nothing: what the engine needs there is loaded by `setup`."""
        return {}

    def worker_source(self) -> bytes:
        return local.worker_source()

    def kit(self) -> Kit:
        return Kit(local.kit_program(), self.far_modules, self.device_pattern, self.tool, self.hardware)

    def recorder_plugin(self) -> bytes:
        return local.recorder_plugin()

    def plant(self, fault: str) -> dict[str, str]:
        return local.plant(fault)

    def explain(self, log_tail: str) -> Message | None:
        if any(f"No module named '{name}'" in log_tail for name in ("vllm", "numpy")):
            return message(
                "vllm.no_vllm",
                "that Python has no vLLM: point {variable} at one that has",
                variable=self.interpreter_variable,
            )
        return remedy_for(log_tail, (*self.remedies, *COMMON))


def _first_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[:4])
