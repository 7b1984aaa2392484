"""A plan, and a backend whose worker is the real one with a fake engine inside."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity_backends.vllm.local import worker_source

from parity.messages import Say
from parity.plan import Arm, Model, Plan, Request, Sampling
from parity.run import Detection

FAKE_ARM = Path(__file__).with_name("fake_arm.py")


class FakeBackend:
    name = "fake"
    variants = ("base", "mtp")

    def __init__(self) -> None:
        self.starts = 0

    def default_model(self) -> Path | None:
        return None

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        return {}

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {}

    def env_spec(self) -> None:
        return None

    def detect(self) -> Detection:
        return Detection(True)

    def interpreter(self, say: Say) -> Path:
        self.starts += 1
        return Path(sys.executable)

    def launch_env(self, interpreter: Path) -> dict[str, str]:
        return {"FAKE_LAUNCH": "1"}

    def worker_source(self) -> bytes:
        # Without the entry point for use by hand, which would come before the fake.
        real = worker_source().decode().split('\nif __name__ == "__main__":')[0]
        return (real + "\n" + FAKE_ARM.read_text(encoding="utf-8")).encode()

    def explain(self, log_tail: str) -> str | None:
        return "the remedy" if "the last words" in log_tail else None


def make_plan(mode: str = "", *, requests: int = 4, rounds: int = 1, n: int = 1, **env: str) -> Plan:
    settings: dict[str, dict[str, Any]] = {"base": {"seed": 0}, "mtp": {"speculative_config": {"k": 1}}}
    return Plan(
        model=Model("fake", "/nowhere", {}, 1000, ()),
        requests=tuple(Request(f"p{i}", None, (1, 2, i)) for i in range(requests)),
        arms=tuple(
            Arm(f"fake/{variant}", "fake", variant, engine, {"FAKE": mode, **env})
            for variant, engine in settings.items()
        ),
        baseline="fake/base",
        sampling=Sampling(temperature=0.0, max_tokens=6, n=n),
        rounds=rounds,
    )


def in_mode(plan: Plan, mode: str) -> Plan:
    """The plan with engines that do this wrong."""
    return replace(plan, arms=tuple(replace(arm, env={**arm.env, "FAKE": mode}) for arm in plan.arms))
