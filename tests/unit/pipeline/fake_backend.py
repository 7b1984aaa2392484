"""An adapter found by entry point like any other, whose engine is fake_engine.py."""

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
MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"


class FakeBackend:
    name = "fake"
    variants = ("base", "mtp")

    def default_model(self) -> Path | None:
        return MODEL

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        if variant not in self.variants:
            raise ParityError(f"backend 'fake' has no variant {variant!r}", hint="known: base, mtp")
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
            settings["speculative_config"] = {
                "method": "mtp",
                "num_speculative_tokens": num_speculative_tokens,
            }
        return settings

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
        return Path(sys.executable)

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith("FAKE")}

    def worker_source(self) -> bytes:
        real = worker_source().decode().split('\nif __name__ == "__main__":')[0]
        return (real + "\n" + (HERE / "fake_engine.py").read_text(encoding="utf-8")).encode()

    def explain(self, log_tail: str) -> str | None:
        return "the remedy" if "the last words" in log_tail else None
