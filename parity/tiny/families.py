"""The families: configuration and weights of each, under the names that vLLM loads.

Names and shapes follow vLLM's own model files (`vllm/model_executor/models/`), which each docstring names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from parity.tiny.parts import Maker, Weights, attention, experts, latent_attention, linear_attention, mlp, under

VOCABULARY: Final = 2048
HIDDEN: Final = 128
HEADS: Final = 4
KV_HEADS: Final = 2
HEAD_DIM: Final = 64
INNER: Final = 256
EXPERT: Final = 128
EXPERTS: Final = 8
END: Final = 0
"""Token id of the end of text in the embedded tokenizer."""

Config = dict[str, Any]

COMMON: Mapping[str, Any] = {
    "bos_token_id": END,
    "dtype": "bfloat16",
    "eos_token_id": END,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "max_position_embeddings": 2048,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": VOCABULARY,
}


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture. `config` is config.json, `weights` all tensors but embedding, head and final norm.

    Embedding and head go in as (VOCABULARY, HIDDEN): some families keep copies of them in the prediction layer.
    """

    name: str
    model: str
    """A published checkpoint of this family."""
    config: Config
    weights: Callable[[Maker, Weights], Weights]
    centred_norms: bool = False
    on_cpu: Mapping[str, bool] = field(default_factory=dict)
    """What `parity run` must ask vLLM's CPU build for, besides what it asks anyway (`--engine`): there it has no
    choice, and a setting that does not resolve as asked makes a run INCONCLUSIVE."""
    not_on_cpu: str | None = None
    """Why vLLM's CPU build, in the environment that parity builds, does not run it. None: it does."""


def _rope(**more: Any) -> Config:
    return {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", **more}}


def _norms(make: Maker) -> Weights:
    return {"input_layernorm.weight": make.norm(), "post_attention_layernorm.weight": make.norm()}


# ------------------------------------------------------------ Qwen3-Next, Qwen3.5


LAYER_TYPES = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
GDN: Config = {
    "attention_bias": False,
    "head_dim": HEAD_DIM,
    "layer_types": LAYER_TYPES,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": HEAD_DIM,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": HEAD_DIM,
    "num_hidden_layers": len(LAYER_TYPES),
    "partial_rotary_factor": 0.25,
    **_rope(partial_rotary_factor=0.25),
}


def _qwen_moe(make: Maker) -> Weights:
    return {
        "gate.weight": make.matrix(EXPERTS, HIDDEN),
        **experts(make, EXPERTS, EXPERT),
        **under("shared_expert.", mlp(make, EXPERT)),
        "shared_expert_gate.weight": make.matrix(1, HIDDEN),
    }


def _qwen(make: Maker, feed: Callable[[Maker], Weights], *, split: bool) -> Weights:
    """qwen3_next.py, qwen3_next_mtp.py; qwen3_5.py, qwen3_5_mtp.py."""
    weights: Weights = {}

    def full() -> Weights:
        return under("self_attn.", attention(make, HEADS, KV_HEADS, HEAD_DIM, gated=True, qk_norm=True))

    for index, kind in enumerate(LAYER_TYPES):
        linear = kind == "linear_attention"
        mixer = under("linear_attn.", linear_attention(make, 2, 4, HEAD_DIM, split=split)) if linear else full()
        weights |= under(f"model.layers.{index}.", {**_norms(make), **mixer, **under("mlp.", feed(make))})
    return {
        **weights,
        **under("mtp.layers.0.", {**_norms(make), **full(), **under("mlp.", feed(make))}),
        "mtp.fc.weight": make.embedding_first(),
        "mtp.norm.weight": make.norm(),
        "mtp.pre_fc_norm_embedding.weight": make.norm(),
        "mtp.pre_fc_norm_hidden.weight": make.norm(),
    }


QWEN3_NEXT = Family(
    "qwen3_next",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    {
        **COMMON,
        **GDN,
        "architectures": ["Qwen3NextForCausalLM"],
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "model_type": "qwen3_next",
        "moe_intermediate_size": EXPERT,
        "norm_topk_prob": True,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "num_nextn_predict_layers": 1,
        "shared_expert_intermediate_size": EXPERT,
    },
    lambda make, top: _qwen(make, _qwen_moe, split=False),
    centred_norms=True,
)

QWEN3_5 = Family(
    "qwen3_5",
    "Qwen/Qwen3.5-27B (its language model)",
    {
        **COMMON,
        **GDN,
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1,
    },
    lambda make, top: _qwen(make, lambda make: mlp(make, INNER), split=True),
    centred_norms=True,
    not_on_cpu="vLLM's qwen3_5.py imports the vision model's modules, and those torchvision, which is left out of the "
    "environment: what a resolver picks beside a CPU build of torch is a CUDA build that breaks it",
)


# ------------------------------------------------------------ MiMo


def _mimo(make: Maker, top: Weights) -> Weights:
    """mimo.py (Qwen2 layers), mimo_mtp.py."""

    def layer() -> Weights:
        return {
            **_norms(make),
            **under("self_attn.", attention(make, HEADS, KV_HEADS, HIDDEN // HEADS, bias=True)),
            **under("mlp.", mlp(make, INNER)),
        }

    weights: Weights = {}
    for index in range(2):
        weights |= under(f"model.layers.{index}.", layer())
    return {
        **weights,
        **under("model.mtp_layers.0.", layer()),
        "model.mtp_layers.0.token_layernorm.weight": make.norm(),
        "model.mtp_layers.0.hidden_layernorm.weight": make.norm(),
        "model.mtp_layers.0.input_proj.weight": make.embedding_first(first=False),
        "model.mtp_layers.0.final_layernorm.weight": make.norm(),
    }


MIMO = Family(
    "mimo",
    "XiaomiMiMo/MiMo-7B-RL",
    {
        **COMMON,
        **_rope(),
        "architectures": ["MiMoForCausalLM"],
        "attention_bias": True,
        # The published ones say "mimo", which needs code from the checkpoint; vLLM goes by the architecture.
        "model_type": "qwen2",
        "num_hidden_layers": 2,
        "num_nextn_predict_layers": 1,
    },
    _mimo,
)


# ------------------------------------------------------------ DeepSeek-V3, GLM-4.5

MLA: Mapping[str, int] = {
    "q_lora_rank": 64,
    "kv_lora_rank": 512,  # with the 64 of rope, the 576 that MLA kernels are made for
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
SIGMOID_MOE: Config = {
    "first_k_dense_replace": 1,
    "moe_intermediate_size": EXPERT,
    "n_group": 1,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_group": 1,
    "topk_method": "noaux_tc",
}


def _sigmoid_moe(make: Maker) -> Weights:
    return {
        "gate.weight": make.matrix(EXPERTS, HIDDEN),
        "gate.e_score_correction_bias": np.zeros(EXPERTS, dtype=np.float32),
        **experts(make, EXPERTS, EXPERT),
        **under("shared_experts.", mlp(make, EXPERT)),
    }


def _numbered(make: Maker, top: Weights, mixer: Callable[[], Weights]) -> Weights:
    """deepseek_v2.py, deepseek_mtp.py; glm4_moe.py, glm4_moe_mtp.py: the prediction layer has the next number."""
    weights: Weights = {}
    for index in range(3):
        feed = mlp(make, INNER) if index == 0 else _sigmoid_moe(make)
        layer = {**_norms(make), **under("self_attn.", mixer()), **under("mlp.", feed)}
        weights |= under(f"model.layers.{index}.", layer)
    return {
        **weights,
        "model.layers.2.enorm.weight": make.norm(),
        "model.layers.2.hnorm.weight": make.norm(),
        "model.layers.2.eh_proj.weight": make.embedding_first(),
        "model.layers.2.shared_head.norm.weight": make.norm(),
        "model.layers.2.shared_head.head.weight": top["lm_head.weight"],
        "model.layers.2.embed_tokens.weight": top["model.embed_tokens.weight"],
    }


def _deepseek(make: Maker, top: Weights) -> Weights:
    return _numbered(
        make,
        top,
        lambda: latent_attention(
            make,
            HEADS,
            q_rank=MLA["q_lora_rank"],
            kv_rank=MLA["kv_lora_rank"],
            nope=MLA["qk_nope_head_dim"],
            rope=MLA["qk_rope_head_dim"],
            value=MLA["v_head_dim"],
        ),
    )


DEEPSEEK_V3 = Family(
    "deepseek_v3",
    "deepseek-ai/DeepSeek-V3",
    {
        **COMMON,
        **SIGMOID_MOE,
        **MLA,
        **_rope(),
        "architectures": ["DeepseekV3ForCausalLM"],
        "attention_bias": False,
        "model_type": "deepseek_v3",
        "moe_layer_freq": 1,
        "num_key_value_heads": HEADS,
        "rope_interleave": True,
    },
    _deepseek,
    on_cpu={"enable_chunked_prefill": False},  # "MLA is enabled on a non-GPU platform" (vllm/platforms/cpu.py)
)

GLM4_MOE = Family(
    "glm4_moe",
    "zai-org/GLM-4.5",
    {
        **COMMON,
        **SIGMOID_MOE,
        **_rope(partial_rotary_factor=0.5),
        "architectures": ["Glm4MoeForCausalLM"],
        "attention_bias": True,
        "head_dim": HEAD_DIM,
        "model_type": "glm4_moe",
        "partial_rotary_factor": 0.5,
        "use_qk_norm": True,
    },
    lambda make, top: _numbered(make, top, lambda: attention(make, HEADS, KV_HEADS, HEAD_DIM, bias=True, qk_norm=True)),
)


# ------------------------------------------------------------ ERNIE 4.5


def _ernie(make: Maker, top: Weights) -> Weights:
    """ernie45_moe.py, ernie_mtp.py."""

    def layer(feed: Weights) -> Weights:
        mixer = under("self_attn.", attention(make, HEADS, KV_HEADS, HIDDEN // HEADS))
        return {**_norms(make), **mixer, **under("mlp.", feed)}

    sparse = {
        "gate.weight": make.matrix(EXPERTS, HIDDEN),
        "moe_statics.e_score_correction_bias": np.zeros((1, EXPERTS), dtype=np.float32),
        **experts(make, EXPERTS, EXPERT),
        **under("shared_experts.", mlp(make, EXPERT)),
    }
    return {
        **under("model.layers.0.", layer(mlp(make, INNER))),
        **under("model.layers.1.", layer(sparse)),
        **under("model.mtp_block.0.", layer(mlp(make, INNER))),
        "model.mtp_emb_norm.0.weight": make.norm(),
        "model.mtp_hidden_norm.0.weight": make.norm(),
        "model.mtp_linear_proj.0.weight": make.embedding_first(),
    }


ERNIE4_5_MOE = Family(
    "ernie4_5_moe",
    "baidu/ERNIE-4.5-21B-A3B-PT",
    {
        **COMMON,
        **_rope(),
        "architectures": ["Ernie4_5_MoeForCausalLM"],
        "model_type": "ernie4_5_moe",
        "moe_intermediate_size": EXPERT,
        "moe_k": 2,
        "moe_layer_end_index": 1,
        "moe_layer_interval": 1,
        "moe_layer_start_index": 1,
        "moe_num_experts": EXPERTS,
        "moe_num_shared_experts": 1,
        "num_hidden_layers": 2,
        "num_nextn_predict_layers": 1,
        "pad_token_id": END,
        "use_bias": False,
    },
    _ernie,
)

FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family for family in (QWEN3_NEXT, QWEN3_5, MIMO, DEEPSEEK_V3, GLM4_MOE, ERNIE4_5_MOE)
}
