"""Settings with which an engine does not start, or silently does something else than asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.records.engine_settings import draft_tokens, speculates


def on_cpu(engine: Mapping[str, Any]) -> str | None:
    """Why vLLM's CPU platform cannot run these settings, in one sentence; None where it can.

    Read from vLLM 0.32 (`platforms/cpu.py`) and tried there: most are overridden without an error, and an arm
    that is called async and is not would prove nothing.
    """
    compilation = engine.get("compilation_config")
    mode = compilation.get("cudagraph_mode") if isinstance(compilation, Mapping) else None
    if mode not in (None, "NONE"):
        return f"there are no CUDA graphs on a CPU (cudagraph_mode={mode})"
    if engine.get("async_scheduling"):
        return "the CPU platform turns async scheduling off"
    if engine.get("enable_prefix_caching") and speculates(engine):
        return "with MTP, prefix caching needs an aligned mamba cache, a Triton kernel that no CPU has"
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        if (engine.get(name) or 1) != 1:
            return f"{name}={engine[name]}: this backend runs the engine in one process"
    if engine.get("distributed_executor_backend") not in (None, "uni"):
        return f"executor {engine['distributed_executor_backend']}: this backend runs the engine in one process"
    if engine.get("dtype") in ("float32", "float16", "half"):
        return f"dtype={engine['dtype']}: gated delta networks take bfloat16 only on a CPU"
    return None


MOST_ON_ASCEND = 15
"""Speculative tokens: vllm-ascend takes up to 16 tokens a step in a row, the sampled one among them."""


def on_ascend(engine: Mapping[str, Any]) -> str | None:
    """Why vllm-ascend cannot run these settings, in one sentence; None where it can."""
    tokens = draft_tokens(engine)
    if tokens > MOST_ON_ASCEND:
        return f"num_speculative_tokens={tokens}: vllm-ascend takes {MOST_ON_ASCEND} at most"
    return None
