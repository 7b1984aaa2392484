"""Settings with which an engine does not start, or silently does something else than asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.messages import Message, message
from parity.records.engine_settings import cudagraph_mode, draft_tokens, speculates
from parity_backends.vllm.worker.checkpoints import has_linear_attention


def on_cpu(engine: Mapping[str, Any], config: Mapping[str, Any]) -> Message | None:
    """Why vLLM's CPU platform cannot run these settings for a checkpoint of this config.json; None where it can.

    Read from vLLM 0.32 (`platforms/cpu.py`) and tried there: most are overridden without an error, and an arm
    that is called async and is not would prove nothing.
    """
    mode = cudagraph_mode(engine)
    if mode not in (None, "NONE"):
        return message("cpu.no_graphs", "there are no CUDA graphs on a CPU (cudagraph_mode={mode})", mode=str(mode))
    if engine.get("async_scheduling"):
        return message("cpu.no_async", "the CPU platform turns async scheduling off")
    if engine.get("enable_prefix_caching") and needs_aligned_states(engine, config):
        return message(
            "cpu.no_prefix_caching",
            "with MTP, prefix caching of a hybrid model needs an aligned mamba cache, a Triton kernel that no CPU has",
        )
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        if (engine.get(name) or 1) != 1:
            return _one_process(f"{name}={engine[name]}")
    if engine.get("distributed_executor_backend") not in (None, "uni"):
        return _one_process(f"distributed_executor_backend={engine['distributed_executor_backend']}")
    if engine.get("dtype") in ("float32", "float", "float16", "half") and has_linear_attention(config):
        return message(
            "cpu.no_dtype",
            "dtype={dtype}: gated delta networks take bfloat16 only on a CPU",
            dtype=str(engine["dtype"]),
        )
    return None


def needs_aligned_states(engine: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a prefix cache would have to keep a recurrent state for each block, which only some engines can."""
    return speculates(engine) and has_linear_attention(config)


def _one_process(setting: str) -> Message:
    return message("cpu.one_process", "{setting}: this backend runs the engine in one process", setting=setting)


def on_emulated_npu(engine: Mapping[str, Any]) -> Message | None:
    """Why the emulated NPU cannot run these settings; None where it can."""
    mode = cudagraph_mode(engine)
    if mode not in (None, "NONE") or engine.get("enforce_eager") is False:
        return message("emulated.no_graphs", "the emulated NPU has no graphs: it runs eagerly")
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        if (engine.get(name) or 1) != 1:
            return _one_process(f"{name}={engine[name]}")
    if engine.get("distributed_executor_backend") not in (None, "uni"):
        return _one_process(f"distributed_executor_backend={engine['distributed_executor_backend']}")
    return None


MOST_ON_ASCEND = 15
"""Speculative tokens: vllm-ascend takes up to 16 tokens a step in a row, the sampled one among them."""


def on_ascend(engine: Mapping[str, Any]) -> Message | None:
    """Why vllm-ascend cannot run these settings, in one sentence; None where it can."""
    tokens = draft_tokens(engine)
    if tokens > MOST_ON_ASCEND:
        return message(
            "ascend.most_drafts",
            "num_speculative_tokens={tokens}: vllm-ascend takes {most} at most",
            tokens=tokens,
            most=MOST_ON_ASCEND,
        )
    return None
