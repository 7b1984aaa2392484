"""The model: its configuration, and two changes that let it train on a processor in minutes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import transformers.models.qwen3_next.modeling_qwen3_next as qwen
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

HIDDEN = 128
VOCABULARY = 2048
_CHUNK = 32
"""Chunk of the gated delta rule, in tokens: shorter than the default 64 is faster at this size."""


def build() -> tuple[Qwen3NextConfig, Qwen3NextForCausalLM]:
    """A fresh model: three gated-delta-net layers, one of full attention, four experts, two of them used."""
    config = Qwen3NextConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=4 * HIDDEN,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_conv_kernel_dim=4,
        moe_intermediate_size=HIDDEN,
        shared_expert_intermediate_size=HIDDEN,
        num_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=2048,
        decoder_sparse_step=1,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
        tie_word_embeddings=False,
        partial_rotary_factor=0.25,
        norm_topk_prob=True,
    )
    _make_trainable()
    return config, Qwen3NextForCausalLM(config)


def _dense_experts(self: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Every expert on every token, weighted by the top-k weights: the same maths in fixed shapes.

    `hidden` [tokens, width], `chosen` and `weights` [tokens, k].
    """
    tokens, width, experts = hidden.shape[0], hidden.shape[1], self.num_experts
    full = torch.zeros(tokens, experts, dtype=weights.dtype).scatter(1, chosen, weights)
    both = F.linear(hidden, self.gate_up_proj.reshape(-1, width)).view(tokens, experts, 2, -1)
    active = F.silu(both[:, :, 0]) * both[:, :, 1] * full.unsqueeze(-1).to(both.dtype)
    down = self.down_proj.transpose(0, 1).reshape(width, -1)
    return F.linear(active.reshape(tokens, -1), down).to(hidden.dtype)


def _make_trainable() -> None:
    torch.set_flush_denormal(True)
    qwen.Qwen3NextExperts.forward = _dense_experts
    original = qwen.torch_chunk_gated_delta_rule
    if getattr(original, "chunked", False):
        return

    def chunked(*args: Any, **more: Any) -> Any:
        return original(*args, **{**more, "chunk_size": _CHUNK})

    chunked.chunked = True  # type: ignore[attr-defined]
    qwen.torch_chunk_gated_delta_rule = chunked


class Head(torch.nn.Module):
    """The MTP head: joins a token's embedding with the hidden state before it; one layer of full attention."""

    def __init__(self, config: Qwen3NextConfig, main: Qwen3NextForCausalLM) -> None:
        super().__init__()
        width = config.hidden_size
        self.fc = torch.nn.Linear(2 * width, width, bias=False)
        attention = config.layer_types.index("full_attention")
        self.layers = torch.nn.ModuleList([qwen.Qwen3NextDecoderLayer(config, attention)])
        self.norm = qwen.Qwen3NextRMSNorm(width, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = qwen.Qwen3NextRMSNorm(width, eps=config.rms_norm_eps)
        self.pre_fc_norm_embedding = qwen.Qwen3NextRMSNorm(width, eps=config.rms_norm_eps)
        # Begins as the main model's last layer fed with the mean of both inputs: far better than at random.
        self.layers[0].load_state_dict(main.model.layers[-1].state_dict())
        self.norm.load_state_dict(main.model.norm.state_dict())
        with torch.no_grad():
            self.fc.weight.normal_(0, 0.02)
            self.fc.weight[:, :width] += 0.5 * torch.eye(width)
            self.fc.weight[:, width:] += 0.5 * torch.eye(width)

    def unroll(
        self, main: Qwen3NextForCausalLM, tokens: torch.Tensor, steps: int
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Draft `steps` tokens ahead at every position, as vLLM does.

        `tokens` [batch, length + 1]. For each step (the head's logits, the main model's logits for the same
        token), each [batch, length - steps, vocabulary]. A step attends to the keys of the first step at all
        earlier positions, and to those of the steps in between at its own.
        """
        with torch.no_grad():
            hidden = main.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
            teacher = main.lm_head(hidden)
        batch, length = tokens.shape[0], hidden.shape[1] - steps
        state = hidden[:, :length]
        layer = self.layers[0]
        attention = layer.self_attn
        width = attention.head_dim
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        past: list[tuple[torch.Tensor, torch.Tensor]] = []
        drafted = []
        for step in range(1, steps + 1):
            embedded = main.model.embed_tokens(tokens[:, step : step + length])
            joined = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(state)], -1))
            normed = layer.input_layernorm(joined)
            query, gate = torch.chunk(attention.q_proj(normed).view(batch, length, -1, 2 * width), 2, -1)
            query = attention.q_norm(query).transpose(1, 2)
            key = attention.k_norm(attention.k_proj(normed).view(batch, length, -1, width)).transpose(1, 2)
            value = attention.v_proj(normed).view(batch, length, -1, width).transpose(1, 2)
            cos, sin = main.model.rotary_emb(joined, (torch.arange(length) + step - 1)[None])
            query, key = qwen.apply_rotary_pos_emb(query, key, cos, sin)
            groups = query.shape[1] // key.shape[1]
            past.append((key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)))
            mixed = _attend(query, past, causal, attention.scaling)
            mixed = mixed.transpose(1, 2).reshape(batch, length, -1) * torch.sigmoid(gate.reshape(batch, length, -1))
            output = joined + attention.o_proj(mixed)
            output = output + layer.mlp(layer.post_attention_layernorm(output))
            state = self.norm(output)
            drafted.append((main.lm_head(state), teacher[:, step : step + length]))
        return drafted


def _attend(
    query: torch.Tensor, past: list[tuple[torch.Tensor, torch.Tensor]], causal: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Attention of one draft step; all of `query`, keys and values [batch, heads, length, width]."""
    length = query.shape[2]
    first_key, first_value = past[0]
    scores = (query @ first_key.transpose(-1, -2) * scaling).float().masked_fill(~causal, float("-inf"))
    own = [(query * key).sum(-1, keepdim=True).float() * scaling for key, _ in past[1:]]
    weights = torch.softmax(torch.cat([scores, *own], -1), -1).to(first_value.dtype)
    mixed: torch.Tensor = weights[..., :length] @ first_value
    for index, (_, value) in enumerate(past[1:]):
        mixed = mixed + weights[..., length + index : length + index + 1] * value
    return mixed
