"""Attention against sums over single keys, and against each other's ways of holding them."""

from __future__ import annotations

import math

import torch
from parity_emulated_npu.operators import NotEmulated, attention

torch.manual_seed(3)
HEADS, KEY_HEADS, DIM, SIZE = 4, 2, 8, 4


def naive(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, seen) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence; `seen(query, key)` with both counted from the left."""
    out, sums = torch.zeros(q.shape[0], q.shape[1], v.shape[-1]), torch.zeros(q.shape[0], q.shape[1])
    for i in range(q.shape[0]):
        for head in range(q.shape[1]):
            owner = head // (q.shape[1] // k.shape[1])
            weights = {j: math.exp(float(q[i, head] @ k[j, owner]) * scale) for j in range(k.shape[0]) if seen(i, j)}
            total = sum(weights.values())
            sums[i, head] = math.log(total)
            for j, weight in weights.items():
                out[i, head] += weight / total * v[j, owner]
    return out, sums


def paged(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """(blocks, SIZE, heads, d) and the table of blocks for these sequences, blocks in a shuffled order."""
    need = [-(-row.shape[0] // SIZE) for row in rows]
    order = torch.randperm(sum(need) + 2)[: sum(need)].tolist()
    cache = torch.full((sum(need) + 2, SIZE, *rows[0].shape[1:]), float("nan"))
    table = torch.zeros(len(rows), max(need), dtype=torch.int32)
    for row, (keys, count) in enumerate(zip(rows, need, strict=True)):
        for place in range(count):
            block = order.pop()
            table[row, place] = block
            part = keys[place * SIZE : (place + 1) * SIZE]
            cache[block, : part.shape[0]] = part
    return cache, table


def batch(queries: list[int], keys: list[int], width: int = DIM):
    q = [torch.randn(n, HEADS, DIM) for n in queries]
    k = [torch.randn(n, KEY_HEADS, DIM) for n in keys]
    v = [torch.randn(n, KEY_HEADS, width) for n in keys]
    return q, k, v


def check_paged_causal_attention_is_aligned_at_the_right() -> None:
    queries, keys = [1, 5, 3], [9, 5, 7]
    q, k, v = batch(queries, keys)
    blocks = torch.randint(0, 9, (1,)).item()
    torch.manual_seed(blocks)
    kc, table = paged(k)
    torch.manual_seed(blocks)
    vc, same = paged(v)
    assert torch.equal(table, same)
    out, lse = attention.npu_fused_infer_attention_score(
        torch.cat(q), kc.flatten(2), vc.flatten(2), actual_seq_lengths=[1, 6, 9], actual_seq_lengths_kv=keys,
        num_heads=HEADS, num_key_value_heads=KEY_HEADS, scale=0.3, input_layout="TND", sparse_mode=3,
        block_table=table, block_size=SIZE,
    )  # fmt: skip
    start = 0
    for row in range(3):
        shift = keys[row] - queries[row]
        want, sums = naive(q[row], k[row], v[row], 0.3, lambda i, j, shift=shift: j <= i + shift)
        torch.testing.assert_close(out[start : start + queries[row]], want)
        torch.testing.assert_close(lse[start : start + queries[row], :, 0], sums)
        start += queries[row]


def check_a_window_hides_what_is_too_far_back() -> None:
    q, k, v = batch([4], [4])
    out, _ = attention.npu_fused_infer_attention_score(
        q[0], k[0], v[0], actual_seq_lengths=[4], actual_seq_lengths_kv=[4], num_heads=HEADS,
        num_key_value_heads=KEY_HEADS, scale=1.0, input_layout="TND", sparse_mode=4, pre_tokens=2, next_tokens=0,
    )  # fmt: skip
    want, _ = naive(q[0], k[0], v[0], 1.0, lambda i, j: i - 2 <= j <= i)
    torch.testing.assert_close(out, want)


def check_plain_keys_without_a_mask_and_a_rope_part() -> None:
    q, k, v = batch([2, 3], [4, 2], width=6)
    out, _ = attention.npu_fused_infer_attention_score(
        torch.cat(q)[..., :5], torch.cat(k)[..., :5], torch.cat(v), query_rope=torch.cat(q)[..., 5:],
        key_rope=torch.cat(k)[..., 5:], actual_seq_lengths=[2, 5], actual_seq_lengths_kv=[4, 6], num_heads=HEADS,
        num_key_value_heads=KEY_HEADS, scale=1.0, input_layout="TND", sparse_mode=0, softmax_lse_flag=True,
    )  # fmt: skip
    want = torch.cat([naive(*rows, 1.0, lambda i, j: True)[0] for rows in zip(q, k, v, strict=True)])
    torch.testing.assert_close(out, want)


def check_mla_decodes_alike_in_both_layouts() -> None:
    """One latent head: keys are latent and rope part, values the latent; (blocks, 1, size, d)."""
    lengths, rank, rope = [6, 3], 6, 2
    q = torch.randn(2, HEADS, rank + rope)
    keys = [torch.randn(n, 1, rank + rope) for n in lengths]
    cache, table = paged(keys)
    latent, turned = (part.transpose(1, 2).contiguous() for part in cache.split((rank, rope), -1))
    common = dict(
        num_query_heads=HEADS, num_key_value_heads=1, softmax_scale=0.5, block_table=table, block_size=SIZE,
        actual_seq_kvlen=lengths, key_rope=turned,
    )  # fmt: skip
    want = torch.stack(
        [naive(q[row : row + 1], k, k[..., :rank], 0.5, lambda i, j: True)[0][0] for row, k in enumerate(keys)]
    )
    tnd, _ = attention.npu_fused_infer_attention_score_v2(
        q[..., :rank], latent, latent, query_rope=q[..., rank:], input_layout="TND_NTD", sparse_mode=3,
        actual_seq_qlen=[1, 2], **common,
    )  # fmt: skip
    bnsd, _ = attention.npu_fused_infer_attention_score_v2(
        q[..., :rank].unsqueeze(2), latent, latent, query_rope=q[..., rank:].unsqueeze(2), input_layout="BNSD_NBSD",
        actual_seq_qlen=None, **common,
    )  # fmt: skip
    torch.testing.assert_close(tnd, want.transpose(0, 1))
    torch.testing.assert_close(bnsd.squeeze(2), want.transpose(0, 1))


def check_parts_put_together_are_attention_over_all_keys() -> None:
    q, k, v = batch([3], [8])
    parts = [naive(q[0], k[0][part], v[0][part], 1.0, lambda i, j: True) for part in (slice(0, 5), slice(5, 8))]
    whole, sums = naive(q[0], k[0], v[0], 1.0, lambda i, j: True)
    empty = (torch.zeros_like(whole), torch.full_like(sums, float("-inf")))
    flat = [(out.flatten(0, 1), lse.flatten()) for out, lse in (*parts, empty)]
    out, lse = attention.npu_attention_update([lse for _, lse in flat], [out for out, _ in flat], 0)
    torch.testing.assert_close(out.view_as(whole), whole)
    torch.testing.assert_close(lse.view_as(sums), sums)


def check_rings_of_mla_are_attention_over_context_and_prompt() -> None:
    """A first ring over the prompts' own tokens, a second over what stands before the first of them."""
    queries, context = [3, 2], [4, 0]
    q, k, v = batch(queries, [n + before for n, before in zip(queries, context, strict=True)], width=5)
    whole = [
        naive(one, keys, values, 0.4, lambda i, j, before=before: j <= i + before)
        for one, keys, values, before in zip(q, k, v, context, strict=True)
    ]
    out, lse = torch.full((5, HEADS, 5), float("nan")), torch.full((HEADS, 5), float("nan"))
    parts_of_keys, parts_of_values = (
        [part.split((before, part.shape[0] - before)) for part, before in zip(rows, context, strict=True)]
        for rows in (k, v)
    )
    for ring, lengths in ((1, torch.tensor(queries)), (0, torch.tensor([queries, context]))):
        keys, values = (torch.cat([part[ring] for part in parts]) for parts in (parts_of_keys, parts_of_values))
        attention.npu_ring_mla(
            q_nope=torch.cat(q)[..., :6], q_rope=torch.cat(q)[..., 6:], k_nope=keys[..., :6], k_rope=keys[..., 6:],
            value=values, mask=None, seqlen=lengths, head_num=HEADS, kv_head_num=KEY_HEADS, qk_scale=0.4,
            pre_out=None if ring else out, prev_lse=None if ring else lse,
            mask_type="mask_type_triu" if ring else "no_mask",
            calc_type="calc_type_first_ring" if ring else "calc_type_default", output=out, softmax_lse=lse,
        )  # fmt: skip
    torch.testing.assert_close(out, torch.cat([made for made, _ in whole]))
    torch.testing.assert_close(lse, torch.cat([sums for _, sums in whole]).T)


def check_paged_attention_of_one_token_a_row() -> None:
    lengths = [5, 2]
    q, k, v = batch([1, 1], lengths)
    torch.manual_seed(1)
    kc, table = paged(k)
    torch.manual_seed(1)
    vc, _ = paged(v)
    out = torch.empty(2, HEADS, DIM)
    attention._npu_paged_attention(torch.cat(q), kc, vc, KEY_HEADS, HEADS, 0.7, table, torch.tensor(lengths), out=out)
    want = torch.cat([naive(*rows, 0.7, lambda i, j: True)[0] for rows in zip(q, k, v, strict=True)])
    torch.testing.assert_close(out, want)


def check_what_a_request_gets_does_not_depend_on_its_batch() -> None:
    q, k, v = batch([2, 3, 1], [4, 9, 2])
    q, k, v = ([part.bfloat16() for part in parts] for parts in (q, k, v))

    def run(rows: list[int]) -> list[torch.Tensor]:
        ends = torch.tensor([q[row].shape[0] for row in rows]).cumsum(0).tolist()
        keys = torch.tensor([k[row].shape[0] for row in rows]).cumsum(0).tolist()
        out, _ = attention.npu_fused_infer_attention_score(
            torch.cat([q[row] for row in rows]), torch.cat([k[row] for row in rows]),
            torch.cat([v[row] for row in rows]), actual_seq_lengths=ends, actual_seq_lengths_kv=keys,
            num_heads=HEADS, num_key_value_heads=KEY_HEADS, scale=1.0, input_layout="TND", sparse_mode=3,
        )  # fmt: skip
        return list(out.split([q[row].shape[0] for row in rows]))

    together, alone = run([0, 1, 2]), [run([row])[0] for row in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def check_what_is_not_known_raises_with_its_name() -> None:
    q, k, v = batch([2], [2])
    common = dict(actual_seq_lengths=[2], actual_seq_lengths_kv=[2], num_heads=HEADS)
    for asked, said in (
        ({"input_layout": "BSH"}, "input_layout='BSH'"),
        ({"input_layout": "TND", "sparse_mode": 2}, "sparse_mode=2"),
        ({"input_layout": "TND", "pse_shift": q[0]}, "pse_shift"),
    ):
        try:
            attention.npu_fused_infer_attention_score(q[0], k[0], v[0], **common, **asked)
        except NotEmulated as error:
            assert said in str(error), error
        else:
            raise AssertionError(said)


def check_lengths_that_do_not_fit_are_refused_as_on_the_device() -> None:
    q, k, v = batch([2], [2])
    try:
        attention.npu_fused_infer_attention_score(
            q[0], k[0], v[0], actual_seq_lengths=[3], actual_seq_lengths_kv=[2], num_heads=HEADS, input_layout="TND"
        )
    except ValueError as error:
        assert "2 query tokens" in str(error)
    else:
        raise AssertionError("taken")
