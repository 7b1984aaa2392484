"""An adapter found by entry point like any other, with versions, whose engine is toy_engine.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from parity_backends.vllm.local import worker_source

import parity
from parity.errors import BackendError, ParityError
from parity.messages import Say
from parity.run import Detection

HERE = Path(__file__).parent


class ToyBackend:
    variants = ("base", "mtp")

    def __init__(self, version: str | None = None) -> None:
        self.version = version
        self.name = "toy" if version is None else f"toy@{version}"

    def at_version(self, version: str) -> ToyBackend:
        return ToyBackend(version)

    def known_versions(self) -> list[str]:
        return ["1.3.0", "1.0.0", "1.1.0", "1.2.0", "2.0.0"]

    def default_model(self) -> Path | None:
        return Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        if variant not in self.variants:
            raise ParityError(f"backend 'toy' has no variant {variant!r}", hint="known: base, mtp")
        settings: dict[str, Any] = {
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
        if variant == "mtp":
            settings["speculative_config"] = {"method": "mtp", "num_speculative_tokens": num_speculative_tokens}
            settings["max_num_batched_tokens"] = 128
        return settings

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {}

    def env_spec(self) -> None:
        return None

    def plant(self, fault: str) -> dict[str, str]:
        raise ParityError("nothing can be planted in a toy")

    def detect(self) -> Detection:
        return Detection(True)

    def interpreter(self, say: Say) -> Path:
        if self.version == "1.2.0" and os.environ.get("TOY_BROKEN"):
            raise BackendError("1.2.0 does not build here")
        return Path(sys.executable)

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name.startswith("TOY")}
        return env if self.version is None else {**env, "TOY_VERSION": self.version}

    def worker_source(self) -> bytes:
        real = worker_source().decode().split('\nif __name__ == "__main__":')[0]
        return (real + "\n" + (HERE / "toy_engine.py").read_text(encoding="utf-8")).encode()

    def explain(self, log_tail: str) -> str | None:
        return None
