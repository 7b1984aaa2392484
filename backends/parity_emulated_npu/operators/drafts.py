"""Proposing draft tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from parity_emulated_npu.operators.registry import operator


def _found(tokens: list[int], least: int, most: int) -> int:
    """Where the text continues after the first earlier place of its own end, the shortest end first; -1: nowhere."""
    for length in range(least, most + 1):
        if length >= len(tokens):
            break
        end = tokens[-length:]
        for at in range(len(tokens) - length):
            if tokens[at : at + length] == end:
                return at + length
    return -1


@operator
def npu_ngram_spec_decode(
    token_ids: Tensor,
    num_tokens_no_spec: Tensor,
    sampled_token_ids: Tensor,
    discard_request_mask: Tensor,
    vocab_size: int,
    min_n: int,
    max_n: int,
    k: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Writes what was sampled after each row's tokens, and proposes what followed the same n-gram before.

    Returns the tokens (rows, length), the next token (rows), drafts (rows, k; -1: none) and their number. As
    `golden_ngram_spec_decode` in vllm-ascend's `test_ngram_spec_decode.py`.
    """
    rows = token_ids.shape[0]
    following = torch.zeros(rows, dtype=torch.int32)
    drafts = torch.full((rows, k), -1, dtype=torch.int32)
    counts = torch.zeros(rows, dtype=torch.int32)
    sampled_token_ids[discard_request_mask.bool()] = -1
    sampled_token_ids[sampled_token_ids >= vocab_size] = -1
    for row in range(rows):
        length = int(num_tokens_no_spec[row])
        valid = int((sampled_token_ids[row] != -1).sum())
        valid = min(valid, max(token_ids.shape[1] - length, 0))
        last = sampled_token_ids[row, valid - 1] if valid else token_ids[row, max(length - 1, 0)]
        following[row] = int(last)
        token_ids[row, length : length + valid] = sampled_token_ids[row, :valid].to(token_ids.dtype)
        tokens = token_ids[row, : length + valid].tolist()
        at = _found(tokens, min_n, max_n) if valid and len(tokens) >= min_n else -1
        proposed = tokens[at : at + k] if at >= 0 else []
        drafts[row, : len(proposed)] = torch.tensor(proposed, dtype=torch.int32)
        counts[row] = len(proposed)
    return token_ids, following, drafts, counts
