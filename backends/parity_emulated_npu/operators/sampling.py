"""Sampling."""

from __future__ import annotations

from torch import Tensor

from parity_emulated_npu.operators.registry import operator


@operator
def npu_top_k_top_p(logits: Tensor, p: Tensor | None = None, k: Tensor | None = None) -> Tensor:
    """Logits (rows, vocabulary) with -inf for all but the k best, and for those but the smallest set that has p.

    As vllm-ascend's own torch path for devices without the operator (`sample/sampler.py`,
    `_apply_top_k_top_p_pytorch`): both cuts by the probabilities of all tokens, ties at the cut stay.
    """
    found = logits.clone()
    probs = logits.float().softmax(-1)
    ascending = probs.sort(-1).values
    vocabulary = logits.shape[-1]
    if k is not None:
        at = (vocabulary - k.long().clamp(1, vocabulary)).unsqueeze(1)
        found.masked_fill_(probs < ascending.gather(-1, at), float("-inf"))
    if p is not None:
        out = ascending.cumsum(-1) <= 1 - p.float().unsqueeze(1)
        out[:, -1] = False
        at = out.sum(-1, keepdim=True)
        found.masked_fill_(probs < ascending.gather(-1, at), float("-inf"))
    return found
