"""An EAGLE head with random weights for a tiny checkpoint of `parity model tiny`: vLLM's EagleLlamaForCausalLM."""

from __future__ import annotations

import json
import math
from pathlib import Path

from parity.tiny.families import COMMON, HEADS, HIDDEN, INNER, KV_HEADS
from parity.tiny.parts import Maker, Weights, attention, mlp, under
from parity.tiny.safetensors import write_safetensors
from parity.tiny.write import NOISE


def write_eagle_head(directory: Path, *, seed: int = 1) -> Path:
    """One Llama layer over [embedding, hidden state], which nearly keeps the embedding; embedding and output rows are
    the target's own (`vllm/model_executor/models/llama_eagle.py`, 0.23.0)."""
    make = Maker(seed, NOISE * math.sqrt(1 / 2), HIDDEN, centred_norms=False)
    layer: Weights = {
        "post_attention_layernorm.weight": make.norm(),
        **under("self_attn.", attention(make, HEADS, KV_HEADS, HIDDEN // HEADS)),
        **under("mlp.", mlp(make, INNER)),
    }
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        **COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_safetensors(
        directory / "model.safetensors", {"fc.weight": make.embedding_first(), **under("layers.0.", layer)}
    )
    return directory
