"""What an engine's log says when it ends, and what to do about it."""

from __future__ import annotations

from typing import Final, TypeAlias

from parity.messages import Message, message

Remedy: TypeAlias = tuple[tuple[str, ...], Message]
"""Pieces of log text, any of which says what went wrong, and what to do."""

MEMORY_SIGNS: Final = ("GiB) on startup is less than", "Error in memory profiling")
"""Memory that an engine before has not given back yet, or that came back while this one counted its own (vLLM
`v1/worker/utils.py` and `gpu_worker.py`, vllm-ascend `worker/worker.py`). Of the errors alone: newer releases say at
each start how much is free."""

COMMON: Final[tuple[Remedy, ...]] = (
    (
        ("out of memory", "OutOfMemoryError", "No available memory for the cache blocks", *MEMORY_SIGNS),
        message(
            "vllm.device_memory",
            "not enough device memory: end what else runs there, or lower gpu_memory_utilization, max_model_len or "
            "max_num_seqs",
        ),
    ),
    (
        ("not supported for GDN_ATTN",),
        message(
            "vllm.batch_invariant", "VLLM_BATCH_INVARIANT=1 aborts models with linear attention (vllm#42960): unset it"
        ),
    ),
    (
        ("is not supported for now", "are not supported for now", "no vLLM implementation"),
        message("vllm.too_old", "this vLLM does not know the checkpoint's architecture: take a newer one"),
    ),
)

CPU: Final[tuple[Remedy, ...]] = (
    (
        ("torchvision::nms does not exist",),
        message(
            "cpu.torchvision",
            "a CUDA build of torchvision lies beside the CPU build of torch: uninstall torchvision",
        ),
    ),
    (
        ("chunk_gated_delta_rule_cpu: initial_state dtype mismatch",),
        message(
            "cpu.state_dtype",
            "this version's CPU kernel takes the state in float32 only: --engine mamba_ssm_cache_dtype=float32",
        ),
    ),
    (
        ("CPU Generator does not use offset",),
        message(
            "cpu.seed_and_chunks",
            "vLLM's CPU build cannot cut the prompt of a request with a seed: "
            "--engine enable_chunked_prefill=false, with --max-num-batched-tokens of max_model_len or more",
        ),
    ),
    (
        ("top_k_mask = logits_sort.gather(",),
        message(
            "cpu.top_k_and_drafts",
            "vLLM's CPU build does not sample from the model where it speculates, and a request with top_k can end it "
            "(vllm#55005): leave top_k out, or run without speculation: --variants base",
        ),
    ),
    (
        ("Not enough memory", "MemoryError", "bad_alloc"),
        message("cpu.memory", "out of memory: lower VLLM_CPU_KVCACHE_SPACE (GiB) or max_num_seqs"),
    ),
)


def remedy_for(log_tail: str, remedies: tuple[Remedy, ...]) -> Message | None:
    """The first whose signs an engine log ends with; None where there is none."""
    return next((remedy for signs, remedy in remedies if any(sign in log_tail for sign in signs)), None)
