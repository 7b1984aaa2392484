"""What every adapter of vLLM asks of its engine."""

from __future__ import annotations

from typing import Any

from parity.records.engine_settings import default_settings, indispensable_settings
from parity_backends.refusals import no_variant

VARIANTS = ("base", "mtp")

MEMORY_SHARE = 0.8
"""Of a device's memory, on both accelerators: vLLM's own default is 0.9 (to 0.19.1), then 0.92, and what it leaves is
too little to score. Logprobs of a prompt take the logits of 2,048 tokens in float32 and more, which no profile run
counts (vllm#5907, #14239, #45327). vllm-ascend's tests and its page on Qwen3-Next take 0.8 too. It touches no
numerics."""

DEPLOYED = "deployed"
"""The engine as vLLM runs it by itself, with the speculation of `mtp`: nothing is pinned that can be done without."""

SPECULATING = ("mtp", DEPLOYED)


def engine_arguments(backend: str, variant: str, num_speculative_tokens: int) -> dict[str, Any]:
    """Arguments of `vllm.LLM` for a variant, all that touch numerics pinned but in `deployed`.

    Raises ParityError for an unknown variant.
    """
    if variant not in (*VARIANTS, DEPLOYED):
        raise no_variant(backend, variant, (*VARIANTS, DEPLOYED))
    arguments = indispensable_settings() if variant == DEPLOYED else default_settings()
    if variant in SPECULATING:
        arguments["speculative_config"] = {"method": "mtp", "num_speculative_tokens": num_speculative_tokens}
    return arguments


def pinned_variables(variant: str) -> dict[str, str]:
    """Environment variables that decide how an engine schedules: left to the engine in `deployed`."""
    if variant == DEPLOYED:
        return {}
    return {
        # In process: every request of a round is queued before the first step.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    }
