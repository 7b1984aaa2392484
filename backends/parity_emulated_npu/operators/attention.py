"""Attention over plain and paged keys.

A sequence at a time and in float32, so that what a request gets does not depend on who shares its batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parity_emulated_npu.operators.registry import only, operator, refuse, unused

CAUSAL_RIGHT = 3
"""`sparse_mode`: causal, aligned at the right end."""
BAND = 4
"""`sparse_mode`: causal with `pre_tokens` before it."""


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees; both are aligned at their right ends."""

    causal: bool
    before: int | None = None
    """A causal query sees so many keys before its own; None: all."""

    def hidden(self, queries: int, keys: int) -> Tensor | None:
        """(queries, keys), true where a key is not seen; None: all are."""
        if not self.causal or (queries == 1 and self.before is None):
            return None
        hidden = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
        if self.before is not None:
            hidden |= torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries - self.before - 1)
        return hidden


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Mask) -> tuple[Tensor, Tensor]:
    """One sequence: q (queries, heads, d), k and v (keys, key heads, …); the output and log-sum-exp (queries, heads).

    A query that sees no key gets zeros, and -inf.
    """
    heads, groups = q.shape[1], q.shape[1] // k.shape[1]
    queries = q.transpose(0, 1).float()
    keys, values = (t.transpose(0, 1).float() for t in (k, v))
    if groups > 1:
        queries = queries.reshape(k.shape[1], groups * q.shape[0], -1)
    scores = (queries @ keys.transpose(-1, -2) * scale).view(heads, q.shape[0], -1)
    hidden = mask.hidden(q.shape[0], k.shape[0])
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    lse = scores.logsumexp(-1)
    weights = scores.softmax(-1)
    if hidden is not None:
        weights = weights.nan_to_num(0.0)
    out = weights.view(k.shape[1], groups * q.shape[0], -1) @ values
    return out.view(heads, q.shape[0], -1).transpose(0, 1), lse.transpose(0, 1)


def _numbers(lengths: Any) -> list[int]:
    return [int(length) for length in (lengths.tolist() if torch.is_tensor(lengths) else lengths)]


def _ends(name: str, lengths: Any, tokens: int) -> list[int]:
    """Ends of the sequences among the query tokens, checked as the operator does for TND."""
    ends = _numbers(lengths)
    if not ends or ends[-1] != tokens:
        raise ValueError(f"{name}, TND: {tokens} query tokens, lengths end at {ends[-1:]}")
    if any(after < before for before, after in itertools.pairwise(ends)):
        raise ValueError(f"{name}: actual_seq_lengths must not fall")
    return ends


Source = Callable[[int], tuple[Tensor, Tensor]]
"""Keys and values of a sequence, each (keys, key heads, …)."""


def _plain(key: Tensor, value: Tensor, ends: Sequence[int]) -> Source:
    """Keys of all sequences one after the other."""
    starts = (0, *ends)
    return lambda row: (key[starts[row] : ends[row]], value[starts[row] : ends[row]])


def _paged(key: Tensor, value: Tensor, table: Tensor, lengths: Sequence[int], size: int, heads: int) -> Source:
    """Keys in blocks: (blocks, size, heads * d), or (blocks, heads, size, d)."""

    def of(cache: Tensor, row: int) -> Tensor:
        blocks = cache[table[row, : -(-lengths[row] // size)].long()]
        if cache.dim() == 4:
            blocks = blocks.transpose(1, 2)
        return blocks.reshape(-1, heads, blocks.shape[-1] if cache.dim() == 4 else cache.shape[-1] // heads)[
            : lengths[row]
        ]

    return lambda row: (of(key, row), of(value, row))


def _all(q: Tensor, ends: Sequence[int], source: Source, scale: float, mask: Mask, width: int) -> tuple[Tensor, Tensor]:
    """All sequences of q (tokens, heads, d): outputs (tokens, heads, width), log-sum-exp (tokens, heads, 1)."""
    out = q.new_zeros((q.shape[0], q.shape[1], width))
    lse = torch.full((q.shape[0], q.shape[1], 1), float("-inf"))
    start = 0
    for row, end in enumerate(ends):
        if end > start:
            keys, values = source(row)
            if keys.shape[0]:
                made, sums = attend(q[start:end], keys, values, scale, mask)
                out[start:end], lse[start:end, :, 0] = made.to(out.dtype), sums
        start = end
    return out, lse


def _mask(name: str, sparse_mode: int, pre_tokens: int) -> Mask:
    if sparse_mode == 0:
        return Mask(causal=False)
    if sparse_mode == CAUSAL_RIGHT:
        return Mask(causal=True)
    if sparse_mode == BAND:
        return Mask(causal=True, before=pre_tokens)
    raise refuse(name, f"sparse_mode={sparse_mode}")


def _fused(name: str, query: Tensor, key: Tensor, value: Tensor, asked: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """What both versions of the fused operator compute: a layout of queries, and where the keys are."""
    layout, _, layout_out = asked["layout"].partition("_")
    heads = asked["key_heads"] or asked["heads"]
    rope_q, rope_k, table = asked["query_rope"], asked["key_rope"], asked["block_table"]
    if layout == "TND":
        ends = _ends(name, asked["query_lengths"], query.shape[0])
        q = query if rope_q is None else torch.cat((query, rope_q), -1)
    elif layout in ("BNSD", "BSND") and table is not None:
        turn = layout == "BNSD"
        whole = query if rope_q is None else torch.cat((query, rope_q), -1)
        whole = whole.transpose(1, 2) if turn else whole
        length = whole.shape[1]
        q, ends = whole.flatten(0, 1), [length * (row + 1) for row in range(whole.shape[0])]
    else:
        raise refuse(name, f"input_layout={asked['layout']!r}{' without a block table' if table is None else ''}")
    lengths = _numbers(asked["key_lengths"])
    if len(lengths) != len(ends):
        raise ValueError(f"{name}: {len(ends)} query lengths, {len(lengths)} key lengths")
    if rope_k is not None and table is not None and key.dim() == 3:
        raise refuse(name, "key_rope with keys in three dimensions")
    k = key if rope_k is None else torch.cat((key, rope_k), -1)
    if table is None:
        source, width = _plain(k, value, lengths), value.shape[-1]
    else:
        source = _paged(k, value, table, lengths, asked["block_size"], heads)
        width = value.shape[-1] if value.dim() == 4 else value.shape[-1] // heads
    out, lse = _all(q, ends, source, asked["scale"], asked["mask"], width)
    if layout_out == "NTD":
        return out.transpose(0, 1).contiguous(), lse
    if layout != "TND":
        out = out.view(len(ends), -1, *out.shape[1:])  # (batch, sequence, heads, d)
        orders = {"NBSD": (2, 0, 1, 3), "BNSD": (0, 2, 1, 3), "BSND": (0, 1, 2, 3)}
        out = out.permute(*orders[layout_out or layout]).contiguous()
    return out, lse


@operator
def npu_fused_infer_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: Any = None,
    actual_seq_lengths_kv: Any = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    block_table: Tensor | None = None,
    block_size: int = 0,
    softmax_lse_flag: bool = False,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    antiquant_mode: int = 0,
    **other: Any,
) -> tuple[Tensor, Tensor]:
    """TND: query (tokens, heads, d), `actual_seq_lengths` the ends of its sequences. Without a block table keys are
    TND too and theirs are ends; with one `key` is paged and theirs are plain lengths. The rope parts are further
    numbers of each head. The mask is that of `sparse_mode` (0: none, 3: causal, 4: causal within `pre_tokens`);
    `atten_mask` only says it again. Returns the output and the log-sum-exp (tokens, heads, 1) in float32."""
    name = "npu_fused_infer_attention_score"
    unused(name, other)
    if antiquant_mode:
        raise refuse(name, f"antiquant_mode={antiquant_mode}")
    asked = {
        "layout": input_layout, "heads": num_heads, "key_heads": num_key_value_heads, "scale": scale,
        "query_lengths": actual_seq_lengths, "key_lengths": actual_seq_lengths_kv, "query_rope": query_rope,
        "key_rope": key_rope, "block_table": block_table, "block_size": block_size,
        "mask": _mask(name, sparse_mode, pre_tokens),
    }  # fmt: skip
    return _fused(name, query, key, value, asked)


@operator
def npu_fused_infer_attention_score_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    atten_mask: Tensor | None = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    block_table: Tensor | None = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    block_size: int = 0,
    return_softmax_lse: bool = False,
    **other: Any,
) -> tuple[Tensor, Tensor]:
    """The same under other names; also BNSD and BSND with one query token a row, and outputs in another order
    (`BNSD_NBSD`, `TND_NTD`), as MLA decodes."""
    name = "npu_fused_infer_attention_score_v2"
    unused(name, other)
    asked = {
        "layout": input_layout, "heads": num_query_heads, "key_heads": num_key_value_heads, "scale": softmax_scale,
        "query_lengths": actual_seq_qlen, "key_lengths": actual_seq_kvlen, "query_rope": query_rope,
        "key_rope": key_rope, "block_table": block_table, "block_size": block_size,
        "mask": _mask(name, sparse_mode, pre_tokens),
    }  # fmt: skip
    return _fused(name, query, key, value, asked)


@operator
def _npu_paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: Tensor,
    context_lens: Tensor,
    out: Tensor,
    workspace: object = None,
) -> None:
    """One query token a row: query (rows, heads, d), caches (blocks, size, key heads, d); into `out`."""
    rows = query.shape[0]
    made, _ = npu_fused_infer_attention_score(
        query, key_cache.flatten(2), value_cache.flatten(2), actual_seq_lengths=range(1, rows + 1),
        actual_seq_lengths_kv=_numbers(context_lens)[:rows], num_heads=num_heads, num_key_value_heads=num_kv_heads,
        scale=scale_value, input_layout="TND", sparse_mode=CAUSAL_RIGHT, block_table=block_table,
        block_size=key_cache.shape[1],
    )  # fmt: skip
    out.copy_(made.view(out.shape))


@operator
def npu_ring_mla(
    q_nope: Tensor,
    q_rope: Tensor,
    k_nope: Tensor,
    k_rope: Tensor,
    value: Tensor,
    mask: Tensor | None,
    seqlen: Tensor,
    head_num: int,
    kv_head_num: int,
    pre_out: Tensor | None = None,
    prev_lse: Tensor | None = None,
    qk_scale: float = 1.0,
    kernel_type: str = "kernel_type_high_precision",
    mask_type: str = "mask_type_triu",
    input_layout: str = "type_bsnd",
    calc_type: str = "calc_type_default",
    *,
    output: Tensor,
    softmax_lse: Tensor,
) -> None:
    """One ring of MLA's prefill: tokens of all sequences one after the other, (tokens, heads, …). `seqlen`: lengths of
    queries and keys alike, or both (2, sequences). The first ring begins; a further one is put together with `pre_out`
    and `prev_lse`. Into `output` (tokens, heads, dv) and `softmax_lse` (heads, tokens). A sequence without keys keeps
    what it has: op-plugin's golden has zeros there, with which vllm-ascend 0.18.0 would lose rows without context."""
    name = "npu_ring_mla"
    only(name, input_layout=(input_layout, "type_bsnd"), kernel_type=(kernel_type, "kernel_type_high_precision"))
    if mask_type not in ("mask_type_triu", "no_mask") or calc_type not in ("calc_type_first_ring", "calc_type_default"):
        raise refuse(name, f"mask_type={mask_type!r}, calc_type={calc_type!r}")
    only(name, heads=((head_num, kv_head_num), (q_nope.shape[1], k_nope.shape[1])))
    lengths = seqlen.long()
    queries, keys = (
        list(itertools.accumulate(_numbers(one))) for one in (lengths if lengths.dim() == 2 else [lengths] * 2)
    )
    ends = _ends(name, queries, q_nope.shape[0])
    q, k = torch.cat((q_nope, q_rope), -1), torch.cat((k_nope, k_rope), -1)
    causal = Mask(causal=mask_type == "mask_type_triu")
    made, sums = _all(q, ends, _plain(k, value, keys), qk_scale, causal, value.shape[-1])
    if calc_type == "calc_type_default":
        if pre_out is None or prev_lse is None:
            raise refuse(name, "a further ring without the ones before")
        made, sums = npu_attention_update(
            (prev_lse.T.flatten(), sums.flatten()), (pre_out.flatten(0, 1), made.flatten(0, 1)), 0
        )
    output.copy_(made.view(output.shape))
    softmax_lse.copy_(sums.view(q.shape[0], head_num).T)


@operator
def npu_attention_update(lse: Sequence[Tensor], local_out: Sequence[Tensor], update_type: int) -> tuple[Tensor, Tensor]:
    """Attention over all keys from that over parts of them: outputs (n, d) weighed by their log-sum-exp (n)."""
    sums = torch.stack(tuple(lse)).float()
    weights = sums.softmax(0).nan_to_num(0.0).unsqueeze(-1)
    return (torch.stack(tuple(local_out)).float() * weights).sum(0).to(local_out[0].dtype), sums.logsumexp(0)
