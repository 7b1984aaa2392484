"""The smallest checkpoints that vLLM runs with speculation, for measurements in which the model is to cost nothing.

One layer of attention (MiMo), or one of a gated delta net and one of attention (Qwen3-Next), 256 tokens, without a
tokenizer. As those of `parity model tiny` they walk through their vocabulary, and their prediction layer mostly
proposes what comes next.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from parity.tiny.families import MIMO, QWEN3_NEXT
from parity.tiny.parts import Maker, Weights, attention, experts, linear_attention, mlp, under
from parity.tiny.safetensors import write_safetensors

VOCABULARY = 256
HIDDEN = 64
HEADS, HEAD_DIM = 2, 32
STATE_DIM = 64
INNER = 64
EXPERTS = 2
NOISE = 1.2
GAIN = 0.1

SHARED: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "vocab_size": VOCABULARY,
}


def _norms(make: Maker) -> Weights:
    return {"input_layernorm.weight": make.norm(), "post_attention_layernorm.weight": make.norm()}


def _mimo(make: Maker) -> Weights:
    def layer() -> Weights:
        return {
            **_norms(make),
            **under("self_attn.", attention(make, HEADS, 1, HEAD_DIM, bias=True)),
            **under("mlp.", mlp(make, INNER)),
        }

    return {
        **under("model.layers.0.", layer()),
        **under("model.mtp_layers.0.", layer()),
        "model.mtp_layers.0.token_layernorm.weight": make.norm(),
        "model.mtp_layers.0.hidden_layernorm.weight": make.norm(),
        "model.mtp_layers.0.input_proj.weight": make.embedding_first(first=False),
        "model.mtp_layers.0.final_layernorm.weight": make.norm(),
    }


def _qwen3_next(make: Maker) -> Weights:
    def feed() -> Weights:
        return {
            "gate.weight": make.matrix(EXPERTS, HIDDEN),
            **experts(make, EXPERTS, INNER),
            **under("shared_expert.", mlp(make, INNER)),
            "shared_expert_gate.weight": make.matrix(1, HIDDEN),
        }

    def full() -> Weights:
        return under("self_attn.", attention(make, HEADS, 1, HEAD_DIM, gated=True, qk_norm=True))

    linear = under("linear_attn.", linear_attention(make, 1, 1, STATE_DIM, split=False))
    return {
        **under("model.layers.0.", {**_norms(make), **linear, **under("mlp.", feed())}),
        **under("model.layers.1.", {**_norms(make), **full(), **under("mlp.", feed())}),
        **under("mtp.layers.0.", {**_norms(make), **full(), **under("mlp.", feed())}),
        "mtp.fc.weight": make.embedding_first(),
        "mtp.norm.weight": make.norm(),
        "mtp.pre_fc_norm_embedding.weight": make.norm(),
        "mtp.pre_fc_norm_hidden.weight": make.norm(),
    }


_QWEN3_NEXT: dict[str, Any] = {
    "head_dim": HEAD_DIM,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": STATE_DIM,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "linear_value_head_dim": STATE_DIM,
    "moe_intermediate_size": INNER,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 2,
    "shared_expert_intermediate_size": INNER,
}

MODELS: dict[str, tuple[dict[str, Any], Callable[[Maker], Weights], bool]] = {
    "attention": ({**MIMO.config, **SHARED, "num_hidden_layers": 1}, _mimo, MIMO.centred_norms),
    "hybrid": ({**QWEN3_NEXT.config, **SHARED, **_QWEN3_NEXT}, _qwen3_next, QWEN3_NEXT.centred_norms),
}
"""Configuration, weights, and whether norms are stored as the difference from 1."""


def write_smallest(name: str, directory: Path, seed: int = 0) -> None:
    """Write the checkpoint to a new directory."""
    config, weights_of, centred = MODELS[name]
    make = Maker(seed, NOISE, HIDDEN, centred_norms=centred)
    embedding = make.random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)
    order = make.random.permutation(VOCABULARY)
    head = np.empty_like(embedding)
    head[np.roll(order, -1)] = embedding[order] * np.float32(GAIN)  # of each token the row of its successor
    ends: Weights = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        "model.norm.weight": make.norm(),
    }
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    write_safetensors(directory / "model.safetensors", {**weights_of(make), **ends})
