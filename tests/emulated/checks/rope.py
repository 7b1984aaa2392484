"""Rotary embeddings against the turn of each pair of numbers in the plane."""

from __future__ import annotations

import math

import torch
from parity_emulated_npu import kernels
from parity_emulated_npu.operators import rope

torch.manual_seed(2)
HEAD, TOKENS = 8, 5
ANGLES = torch.rand(16, HEAD // 2) * 3
CACHE = torch.cat((ANGLES.cos(), ANGLES.sin()), -1)
POSITIONS = torch.tensor([3, 0, 7, 7, 15])


def turned(head: list[float], angles: list[float], neox: bool) -> list[float]:
    out = list(head)
    for number, angle in enumerate(angles):
        i, j = (number, number + len(head) // 2) if neox else (2 * number, 2 * number + 1)
        a, b = head[i], head[j]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[j] = b * math.cos(angle) + a * math.sin(angle)
    return out


def expected(x: torch.Tensor, neox: bool) -> torch.Tensor:
    rows = [
        [turned(head, ANGLES[position].tolist(), neox) for head in row]
        for row, position in zip(x.tolist(), POSITIONS.tolist(), strict=True)
    ]
    return torch.tensor(rows)


def check_rotary_embedding_in_place_in_both_styles() -> None:
    for neox in (True, False):
        q, k = torch.randn(TOKENS, 3, HEAD), torch.randn(TOKENS, 1, HEAD)
        flat_q, flat_k = q.flatten(1).clone(), k.flatten(1).clone()
        rope._npu_rotary_embedding(POSITIONS, flat_q, flat_k, HEAD, CACHE, neox)
        torch.testing.assert_close(flat_q.view_as(q), expected(q, neox))
        torch.testing.assert_close(flat_k.view_as(k), expected(k, neox))


def check_the_replaced_kernel_turns_a_part_and_passes_the_rest() -> None:
    for neox in (True, False):
        q, k = torch.randn(TOKENS, 3, HEAD + 4), torch.randn(TOKENS, 1, HEAD + 4)
        got_q, got_k = kernels.rope_forward_triton(
            q, k, rope_dim=HEAD, is_neox_style=neox, cos_sin_cache=CACHE, positions=POSITIONS
        )
        for got, x in ((got_q, q), (got_k, k)):
            torch.testing.assert_close(got[..., :HEAD], expected(x[..., :HEAD], neox))
            assert torch.equal(got[..., HEAD:], x[..., HEAD:])


def check_rotary_mul_and_apply() -> None:
    q, k = torch.randn(TOKENS, 3, HEAD), torch.randn(TOKENS, 3, HEAD)
    for mode, neox in (("half", True), ("interleave", False)):
        halves = (CACHE[POSITIONS][:, : HEAD // 2], CACHE[POSITIONS][:, HEAD // 2 :])
        cos, sin = (rope.widened(half, neox).unsqueeze(1) for half in halves)
        torch.testing.assert_close(rope.npu_rotary_mul(q, cos, sin, mode), expected(q, neox))
        both = rope.npu_apply_rotary_pos_emb(q, k, cos, sin, rotary_mode=mode)
        torch.testing.assert_close(both[1], expected(k, neox))


def check_interleave_rope_gathers_pairs_into_halves() -> None:
    x = torch.randn(TOKENS, 2, 1, HEAD)
    angles = ANGLES[POSITIONS]
    cos, sin = (torch.cat((f, f), -1).view(TOKENS, 1, 1, HEAD) for f in (angles.cos(), angles.sin()))
    pairs = expected(x.view(TOKENS, 2, HEAD), neox=False)
    gathered = torch.cat((pairs[..., ::2], pairs[..., 1::2]), -1)
    torch.testing.assert_close(rope.npu_interleave_rope(x, cos, sin).view(TOKENS, 2, HEAD), gathered)
