"""What every adapter of vLLM asks of its engine."""

from __future__ import annotations

from typing import Any

from parity.records.engine_settings import default_settings
from parity_backends.refusals import no_variant

VARIANTS = ("base", "mtp")


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
