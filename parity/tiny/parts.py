"""Weights of the building blocks, under the names that the families' checkpoints have.

Matrices have the shape (out, in), as torch stores them. An input of unit size gives an output of unit size; what
goes back into the residual stream is `noise` times that.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parity.tiny.safetensors import Tensor

Weights = dict[str, Tensor]


class Maker:
    """Random tensors, the same for the same seed."""

    def __init__(self, seed: int, noise: float, hidden: int, *, centred_norms: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.noise = noise
        self.hidden = hidden
        self.one = 0.0 if centred_norms else 1.0
        """What a layer norm that changes nothing holds: Qwen3-Next's store the difference from 1."""

    def matrix(self, out: int, size: int, scale: float = 1.0) -> Tensor:
        values: Tensor = (self.random.standard_normal((out, size)) * scale / np.sqrt(size)).astype(np.float32)
        return values

    def back(self, size: int) -> Tensor:
        """Into the residual stream."""
        return self.matrix(self.hidden, size, self.noise)

    def norm(self, size: int | None = None) -> Tensor:
        return np.full(size or self.hidden, self.one, dtype=np.float32)

    def vector(self, size: int, scale: float) -> Tensor:
        return (self.random.standard_normal(size) * scale).astype(np.float32)

    def embedding_first(self, *, first: bool = True) -> Tensor:
        """Joins [embedding, hidden] (or the other way round) to what is nearly the embedding, (H, 2H)."""
        keep = np.eye(self.hidden, dtype=np.float32)
        other = self.matrix(self.hidden, self.hidden, 0.1)
        return np.concatenate([keep, other] if first else [other, keep], axis=1)


def under(prefix: str, weights: Weights) -> Weights:
    """With a prefix before every name."""
    return {prefix + name: value for name, value in weights.items()}


def mlp(make: Maker, size: int, names: Iterable[str] = ("gate_proj", "up_proj", "down_proj")) -> Weights:
    gate, up, down = names
    return {
        f"{gate}.weight": make.matrix(size, make.hidden),
        f"{up}.weight": make.matrix(size, make.hidden),
        f"{down}.weight": make.back(size),
    }


def experts(make: Maker, count: int, size: int) -> Weights:
    weights: Weights = {}
    for index in range(count):
        weights |= under(f"experts.{index}.", mlp(make, size))
    return weights


def attention(
    make: Maker,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    gated: bool = False,
    bias: bool = False,
    qk_norm: bool = False,
) -> Weights:
    """Grouped-query attention; `gated`: the query projection also gives an output gate (Qwen3-Next)."""
    weights = {
        "q_proj.weight": make.matrix(heads * head_dim * (2 if gated else 1), make.hidden),
        "k_proj.weight": make.matrix(kv_heads * head_dim, make.hidden),
        "v_proj.weight": make.matrix(kv_heads * head_dim, make.hidden),
        "o_proj.weight": make.back(heads * head_dim),
    }
    if bias:
        for name in ("q", "k", "v"):
            weights[f"{name}_proj.bias"] = make.vector(len(weights[f"{name}_proj.weight"]), 0.1)
    if qk_norm:
        weights["q_norm.weight"] = make.norm(head_dim)
        weights["k_norm.weight"] = make.norm(head_dim)
    return weights


def latent_attention(
    make: Maker, heads: int, *, q_rank: int, kv_rank: int, nope: int, rope: int, value: int
) -> Weights:
    """Multi-head latent attention (DeepSeek-V3)."""
    return {
        "q_a_proj.weight": make.matrix(q_rank, make.hidden),
        "q_a_layernorm.weight": make.norm(q_rank),
        "q_b_proj.weight": make.matrix(heads * (nope + rope), q_rank),
        "kv_a_proj_with_mqa.weight": make.matrix(kv_rank + rope, make.hidden),
        "kv_a_layernorm.weight": make.norm(kv_rank),
        "kv_b_proj.weight": make.matrix(heads * (nope + value), kv_rank),
        "o_proj.weight": make.back(heads * value),
    }


def linear_attention(make: Maker, key_heads: int, value_heads: int, head_dim: int, *, split: bool) -> Weights:
    """Gated DeltaNet; `split`: the input projections apart (Qwen3.5), else joined (Qwen3-Next)."""
    keys, values = key_heads * head_dim, value_heads * head_dim
    weights = {
        "A_log": np.log(make.random.uniform(1, 16, value_heads)).astype(np.float32),
        "dt_bias": make.vector(value_heads, 0.5),
        "conv1d.weight": make.matrix(2 * keys + values, 4)[:, None, :],
        "norm.weight": np.ones(head_dim, dtype=np.float32),  # a gated norm, not centred in either family
        "out_proj.weight": make.back(values),
    }
    if split:
        weights["in_proj_qkv.weight"] = make.matrix(2 * keys + values, make.hidden)
        weights["in_proj_z.weight"] = make.matrix(values, make.hidden)
        weights["in_proj_b.weight"] = make.matrix(value_heads, make.hidden)
        weights["in_proj_a.weight"] = make.matrix(value_heads, make.hidden)
    else:
        weights["in_proj_qkvz.weight"] = make.matrix(2 * keys + 2 * values, make.hidden)
        weights["in_proj_ba.weight"] = make.matrix(2 * value_heads, make.hidden)
    return weights
