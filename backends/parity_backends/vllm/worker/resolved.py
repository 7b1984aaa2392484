"""What the engine made of what it was asked, and its counters."""

from __future__ import annotations

import enum
import os
from typing import Any

METRICS = {
    "drafts": "vllm:spec_decode_num_drafts",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens",
    "accepted_per_pos": "vllm:spec_decode_num_accepted_tokens_per_pos",
    "preemptions": "vllm:num_preemptions",
    "prefix_cache_queries": "vllm:prefix_cache_queries",
    "prefix_cache_hits": "vllm:prefix_cache_hits",
    "prompt_tokens": "vllm:prompt_tokens",
    "generation_tokens": "vllm:generation_tokens",
}


def look(thing: Any, path: str) -> Any:
    """Attribute path to something JSON can hold; None where this engine version has no such attribute."""
    for name in path.split("."):
        thing = getattr(thing, name, None)
    if isinstance(thing, enum.Enum):  # before int: the compilation mode is both
        return thing.name
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if isinstance(thing, (list, tuple)):
        return [item if isinstance(item, (bool, int, float, str)) else str(item) for item in thing]
    return str(thing)


RESOLVED = {
    "dtype": "model_config.dtype",
    "max_model_len": "model_config.max_model_len",
    "quantization": "model_config.quantization",
    "enforce_eager": "model_config.enforce_eager",
    "seed": "model_config.seed",
    "logprobs_mode": "model_config.logprobs_mode",
    "max_logprobs": "model_config.max_logprobs",
    "generation_config": "model_config.generation_config",
    "enable_prefix_caching": "cache_config.enable_prefix_caching",
    "mamba_cache_mode": "cache_config.mamba_cache_mode",
    "mamba_cache_dtype": "cache_config.mamba_cache_dtype",
    "mamba_ssm_cache_dtype": "cache_config.mamba_ssm_cache_dtype",
    "kv_cache_dtype": "cache_config.cache_dtype",
    "block_size": "cache_config.block_size",
    "max_num_seqs": "scheduler_config.max_num_seqs",
    "max_num_batched_tokens": "scheduler_config.max_num_batched_tokens",
    "enable_chunked_prefill": "scheduler_config.enable_chunked_prefill",
    "async_scheduling": "scheduler_config.async_scheduling",
    "scheduling_policy": "scheduler_config.policy",
    "compilation_mode": "compilation_config.mode",
    "compilation_level": "compilation_config.level",
    "compilation_backend": "compilation_config.backend",
    "cudagraph_mode": "compilation_config.cudagraph_mode",
    "cudagraph_capture_sizes": "compilation_config.cudagraph_capture_sizes",
    "tensor_parallel_size": "parallel_config.tensor_parallel_size",
    "pipeline_parallel_size": "parallel_config.pipeline_parallel_size",
    "data_parallel_size": "parallel_config.data_parallel_size",
    "executor": "parallel_config.distributed_executor_backend",
    "worker": "parallel_config.worker_cls",
    "speculative_method": "speculative_config.method",
    "num_speculative_tokens": "speculative_config.num_speculative_tokens",
    "device": "device_config.device_type",
}


def resolved_engine(llm: Any, asked: dict[str, Any]) -> dict[str, Any]:
    config = llm.llm_engine.vllm_config
    resolved = {name: look(config, path) for name, path in RESOLVED.items()}
    resolved = {name: value for name, value in resolved.items() if value is not None}
    resolved["multiprocessing"] = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") != "0"
    runner = llm.llm_engine
    for name in ("model_executor", "driver_worker", "worker", "model_runner"):
        runner = getattr(runner, name, runner)
    if "ModelRunner" in type(runner).__name__:  # only where the engine runs in this process
        resolved["model_runner"] = type(runner).__module__ + "." + type(runner).__name__
    v2 = look(config, "use_v2_model_runner")
    if isinstance(v2, bool):
        resolved["use_v2_model_runner"] = v2
    resolved["asked"] = asked
    return resolved


def counters(llm: Any) -> dict[str, Any]:
    """vLLM's own counters by our names, summed over labels; {} when statistics are off."""
    try:
        metrics = llm.get_metrics()
    except (AssertionError, AttributeError):  # disable_log_stats=True, or an engine without the method
        return {}
    found: dict[str, Any] = {}
    for ours, theirs in METRICS.items():
        for metric in metrics:
            if metric.name != theirs:
                continue
            if hasattr(metric, "values"):
                old = found.get(ours) or [0] * len(metric.values)
                found[ours] = [a + int(b) for a, b in zip(old, metric.values)]  # noqa: B905 - strict is Python 3.10
            else:
                found[ours] = found.get(ours, 0) + int(metric.value)
    return found


def since(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Difference of two `counters`."""
    out = {}
    for name, value in now.items():
        if isinstance(value, list):
            start = before.get(name) or [0] * len(value)
            out[name] = [a - b for a, b in zip(value, start)]  # noqa: B905 - strict is Python 3.10
        else:
            out[name] = value - before.get(name, 0)
    return out
