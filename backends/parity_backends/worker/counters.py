"""An engine's counters by our names."""

from __future__ import annotations

from typing import Any

Counted = dict[str, Any]
"""Numbers, lists of them and histograms, by our names."""

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


def counters(llm: Any) -> Counted:
    """vLLM's own counters by our names, summed over labels; {} when statistics are off."""
    try:
        metrics = llm.get_metrics()
    except (AssertionError, AttributeError):  # disable_log_stats=True, or an engine without the method
        return {}
    found: Counted = {}
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


def since(now: Counted, before: Counted) -> Counted:
    """Difference of two `counters`."""
    out = {}
    for name, value in now.items():
        if isinstance(value, list):
            start = before.get(name)
            start = start if isinstance(start, list) and len(start) >= len(value) else [0] * len(value)
            out[name] = [a - b for a, b in zip(value, start)]  # noqa: B905 - strict is Python 3.10
        else:
            start = before.get(name, 0)
            out[name] = value - (start if isinstance(start, (int, float)) else 0)
    return out
