"""Norms and activations, number by number."""

from __future__ import annotations

import math

import torch
from parity_emulated_npu.operators import norms

torch.manual_seed(1)


def _norm(row: list[float], weights: list[float], epsilon: float) -> list[float]:
    root = math.sqrt(sum(x * x for x in row) / len(row) + epsilon)
    return [x / root * w for x, w in zip(row, weights, strict=True)]


def check_rms_norm_and_its_reciprocal_root() -> None:
    x, gamma = torch.randn(3, 8), torch.randn(8)
    y, rstd = norms.npu_rms_norm(x, gamma, 1e-5)
    want = torch.tensor([_norm(row, gamma.tolist(), 1e-5) for row in x.tolist()])
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(rstd[:, 0], 1 / (x.pow(2).mean(-1) + 1e-5).sqrt())


def check_gemma_adds_one_to_the_weights() -> None:
    x, gamma = torch.randn(3, 8), torch.randn(8)
    want = torch.tensor([_norm(row, [1 + w for w in gamma.tolist()], 1e-6) for row in x.tolist()])
    torch.testing.assert_close(norms.npu_gemma_rms_norm(x, gamma)[0], want)


def check_add_rms_norm_bias_norms_the_rounded_sum() -> None:
    """As `npu_add_rms_norm_bias_golden` of vllm-ascend's test_add_rms_norm_bias.py: norm of x1 + x2, then beta."""
    a, b = torch.randn(4, 8).bfloat16(), torch.randn(4, 8).bfloat16()
    gamma, beta = torch.randn(8).bfloat16(), torch.randn(8).bfloat16()
    y, _, total = norms.npu_add_rms_norm_bias(a, b, gamma, beta)
    assert total.dtype == torch.bfloat16
    assert torch.equal(total, a + b)
    want = torch.tensor([_norm(row, gamma.tolist(), 1e-6) for row in total.tolist()])
    torch.testing.assert_close(y.float(), want + beta.float(), rtol=2e-2, atol=2e-2)
    assert torch.equal(norms.npu_add_rms_norm_bias(a, b, gamma)[0], norms.npu_add_rms_norm(a, b, gamma)[0])


def check_swiglu_takes_the_gate_first() -> None:
    x = torch.randn(2, 6)
    a, b = x[:, :3].tolist(), x[:, 3:].tolist()
    want = [[p / (1 + math.exp(-p)) * q for p, q in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]
    torch.testing.assert_close(norms.npu_swiglu(x), torch.tensor(want))


def check_fast_gelu_is_close_to_gelu() -> None:
    x = torch.linspace(-4, 4, 33)
    torch.testing.assert_close(norms.npu_fast_gelu(x), torch.nn.functional.gelu(x), atol=2.1e-2, rtol=0)
