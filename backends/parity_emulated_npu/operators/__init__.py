"""Operators of torch_npu and of vllm-ascend's own library in plain torch, one module per subject.

Each keeps the name and the arguments that the original is called with, and says what it computes; accumulation is in
float32. What has no stand-in, and arguments that a stand-in does not know, raise `NotEmulated` with the caller.
"""

from __future__ import annotations

from parity_emulated_npu.operators import attention, cache, delta_net, drafts, experts, linear, norms, rope, sampling
from parity_emulated_npu.operators.registry import (
    CALLS,
    NAMESPACE,
    STAND_INS,
    NotEmulated,
    is_operator,
    operator_of,
)

__all__ = [
    "CALLS",
    "NAMESPACE",
    "STAND_INS",
    "NotEmulated",
    "attention",
    "cache",
    "delta_net",
    "drafts",
    "experts",
    "is_operator",
    "linear",
    "norms",
    "operator_of",
    "rope",
    "sampling",
]
