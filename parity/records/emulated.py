"""Arms whose device is emulated: how one is known, and what such a run proves and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.messages import Message, message

Json = Any

BACKEND = "ascend-emulated"
KEY = "emulated"
"""In a header's environment: what the engine's device calls itself. Its own word counts, whatever the arm is called."""


def emulated(backend: str, environment: Mapping[str, Json]) -> bool:
    """Did this arm run on an emulated device?"""
    return bool(environment.get(KEY)) or backend.partition("@")[0] == BACKEND


def proves(*arms: str) -> Message:
    """One sentence for every surface that shows such arms."""
    return message(
        "emulated.proves",
        "{arms} ran on an emulated NPU, which is this machine's processor. What it shows: vllm-ascend's bookkeeping, "
        "cache slots, rejection sampling, proposer and state indices, and parity's own adapter. What it does not show: "
        "CANN's kernels and their numerics, graphs, streams, HCCL and memory.",
        arms=list(arms),
    )


PROVES = proves().id
