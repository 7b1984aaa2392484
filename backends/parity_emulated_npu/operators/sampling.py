"""Sampling."""

from __future__ import annotations

from torch import Tensor

from parity_emulated_npu.operators.registry import operator


@operator
def npu_top_k_top_p(logits: Tensor, p: Tensor | None = None, k: Tensor | None = None) -> Tensor:
    """Logits (rows, vocabulary) with -inf for all but the k best, and of those for all but the smallest set that has p.

    As the documentation of CANN's `aclnnApplyTopKTopP` (8.5): p is a share of what top-k leaves, as in vLLM. In
    vllm-ascend's own path for devices without the operator it is a share of all tokens (`sample/sampler.py`, 0.23.0:
    `_apply_top_k_top_p_pytorch`). Ties at a cut stay, as there.
    """
    found = logits.clone()
    if k is not None:
        vocabulary = logits.shape[-1]
        at = (vocabulary - k.long().clamp(1, vocabulary)).unsqueeze(1)
        found.masked_fill_(logits < logits.sort(-1).values.gather(-1, at), float("-inf"))
    if p is not None:
        probs = found.float().softmax(-1)
        ascending = probs.sort(-1).values
        out = ascending.cumsum(-1) <= 1 - p.float().unsqueeze(1)
        out[:, -1] = False
        at = out.sum(-1, keepdim=True)
        found.masked_fill_(probs < ascending.gather(-1, at), float("-inf"))
    return found


@operator
def npu_apply_top_k_top_p(logits: Tensor, p: Tensor | None = None, k: Tensor | None = None) -> Tensor:
    """The same as vllm-ascend's own operator (0.18.0: csrc/apply_top_k_top_p_custom, and the golden of its test).

    Raises ValueError without both, as there.
    """
    if p is None and k is None:
        raise ValueError("npu_apply_top_k_top_p: p and k cannot be None at the same time")
    return npu_top_k_top_p(logits, p, k)
