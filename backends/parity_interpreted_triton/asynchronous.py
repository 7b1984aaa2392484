"""Asynchronous scheduling where it was asked for: vLLM's CPU platform turns it off (vLLM 0.32.0, platforms/cpu.py).

It is the default on CUDA, and nothing in it needs a device: the engine asks for a step before it has the tokens of the
one before. Loaded in each of vLLM's processes by the entry point group `vllm.general_plugins`.
"""

from __future__ import annotations

import functools
from typing import Any


def install() -> None:
    """Keep what `SchedulerConfig.async_scheduling` says when the platform checks its configuration."""
    from vllm.platforms.cpu import CpuPlatform

    inner = CpuPlatform.check_and_update_config.__func__
    if hasattr(inner, "__wrapped__"):  # vLLM loads its plugins more than once
        return

    @functools.wraps(inner)
    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        inner(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
