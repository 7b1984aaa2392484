"""One fake backend for all tests: the real worker with an engine of a few lines inside."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from parity_backends.vllm.local import worker_source

import parity
from parity.errors import BackendError, ParityError
from parity.messages import Say
from parity.run import Detection

TESTS = Path(__file__).parents[1]
MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"

SETTINGS: dict[str, Any] = {
    "dtype": "bfloat16",
    "seed": 0,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "enable_prefix_caching": False,
    "enable_chunked_prefill": True,
    "async_scheduling": False,
    "enforce_eager": True,
    "generation_config": "vllm",
}


class FakeBackend:
    """Environment variables that begin with its name reach the engine, which says in its own file what they do."""

    name = "fake"
    variants = ("base", "mtp")
    engine = TESTS / "unit" / "pipeline" / "fake_engine.py"
    with_speculation: ClassVar[dict[str, Any]] = {}
    """Settings of arms that speculate, beside the speculation itself."""

    def __init__(self) -> None:
        self.starts = 0
        """How often its interpreter was asked for, which is once for each start of an engine."""

    def default_model(self) -> Path | None:
        return MODEL

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        if variant not in self.variants:
            raise ParityError(f"backend {self.name!r} has no variant {variant!r}", hint="known: base, mtp")
        speculation = {"method": "mtp", "num_speculative_tokens": num_speculative_tokens}
        mtp = {**self.with_speculation, "speculative_config": speculation}
        return {**SETTINGS, **(mtp if variant == "mtp" else {})}

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {}

    def env_spec(self) -> None:
        return None

    def plant(self, fault: str) -> dict[str, str]:
        return {"FAKE": fault}

    def detect(self) -> Detection:
        return Detection(True)

    def interpreter(self, say: Say) -> Path:
        if os.environ.get("FAKE") == "absent":
            raise BackendError("backend 'fake': no fake hardware here", hint="buy some")
        self.starts += 1
        return Path(sys.executable)

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        beginning = self.name.partition("@")[0].upper()
        return {name: value for name, value in os.environ.items() if name.startswith(beginning)}

    def worker_source(self) -> bytes:
        # Without the entry point for use by hand, which would come before the engine.
        real = worker_source().decode().split('\nif __name__ == "__main__":')[0]
        return (real + "\n" + self.engine.read_text(encoding="utf-8")).encode()

    def explain(self, log_tail: str) -> str | None:
        return "the remedy" if "the last words" in log_tail else None


class DearBackend(FakeBackend):
    """One whose engine is rehearsed where it never ran."""

    name = "dear"
    dear = True

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith("FAKE")}


class EarlyBackend(FakeBackend):
    """One whose engine's code is loaded before its turn."""

    name = "early"
    loads_ahead = True

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith("FAKE")}


class FaultyBackend(FakeBackend):
    """Its engine misbehaves as it is told: see tests/unit/run/fake_arm.py."""

    engine = TESTS / "unit" / "run" / "fake_arm.py"


class ToyBackend(FakeBackend):
    """With versions; its engine fails at a rate: see tests/unit/reduce/toy_engine.py."""

    engine = TESTS / "unit" / "reduce" / "toy_engine.py"
    with_speculation: ClassVar[dict[str, Any]] = {"max_num_batched_tokens": 128}

    def __init__(self, version: str | None = None) -> None:
        super().__init__()
        self.version = version
        self.name = "toy" if version is None else f"toy@{version}"

    def at_version(self, version: str) -> ToyBackend:
        return ToyBackend(version)

    def known_versions(self) -> list[str]:
        return ["1.3.0", "1.0.0", "1.1.0", "1.2.0", "2.0.0"]

    def plant(self, fault: str) -> dict[str, str]:
        raise ParityError("nothing can be planted in a toy")

    def interpreter(self, say: Say) -> Path:
        if self.version == "1.2.0" and os.environ.get("TOY_BROKEN"):
            raise BackendError("1.2.0 does not build here")
        return Path(sys.executable)

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        env = super().launch_env(interpreter)
        return env if self.version is None else {**env, "TOY_VERSION": self.version}
