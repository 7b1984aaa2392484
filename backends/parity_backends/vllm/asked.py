"""What every adapter of vLLM asks of its engine."""

from __future__ import annotations

from typing import Any

from parity.records.engine_settings import default_settings
from parity_backends.refusals import no_variant

VARIANTS = ("base", "mtp")

MEMORY_SHARE = 0.8
"""Of a device's memory, on both accelerators: vLLM's own default is 0.9 (to 0.20.1), then 0.92, and what it leaves is
too little to score. Logprobs of a prompt take the logits of 2,048 tokens in float32 and more, which no profile run
counts (vllm#5907, #14239, #45327). vllm-ascend's tests and its page on Qwen3-Next take 0.8 too. It touches no
numerics."""


def engine_arguments(backend: str, variant: str, num_speculative_tokens: int) -> dict[str, Any]:
    """Arguments of `vllm.LLM` for a variant, all that touch numerics pinned.

    Raises ParityError for an unknown variant.
    """
    if variant not in VARIANTS:
        raise no_variant(backend, variant, VARIANTS)
    arguments = default_settings()
    if variant == "mtp":
        arguments["speculative_config"] = {"method": "mtp", "num_speculative_tokens": num_speculative_tokens}
    return arguments
