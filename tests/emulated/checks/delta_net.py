"""The gated delta rule, head by head and token by token, and the convolution before it."""

from __future__ import annotations

import torch
from parity_emulated_npu import kernels
from parity_emulated_npu.operators import NAMESPACE, delta_net, operator_of

torch.manual_seed(6)
KEY_HEADS, HEADS, DK, DV = 2, 4, 6, 5


def golden(q, k, v, state, beta, g, scale, lengths, blocks, accepted):
    """What upstream's golden_recurrent_gated_delta_rule computes; lengths without the offset before them."""
    state, out, start = state.clone().float(), torch.zeros_like(v), 0
    for row, length in enumerate(lengths):
        first = start + (0 if accepted is None else accepted[row] - 1)
        for head in range(HEADS) if length else ():
            owner = head // (HEADS // KEY_HEADS)
            S = state[blocks[first], head].clone()
            for token in range(start, start + length):
                S = S * g[token, head].exp()
                S = S + torch.outer((v[token, head] - S @ k[token, owner]) * beta[token, head], k[token, owner])
                state[blocks[token], head] = S
                out[token, head] = S @ (q[token, owner] * scale)
        start += length
    return out, state


def inputs(tokens: int):
    normed = torch.nn.functional.normalize
    return (
        normed(torch.randn(tokens, KEY_HEADS, DK), dim=-1), normed(torch.randn(tokens, KEY_HEADS, DK), dim=-1),
        torch.randn(tokens, HEADS, DV), torch.rand(tokens, HEADS), -torch.rand(tokens, HEADS),
    )  # fmt: skip


def check_the_recurrence_as_upstreams_golden() -> None:
    for lengths, accepted in (([1, 1, 1], None), ([3, 1, 2], None), ([3, 3], [1, 3]), ([2, 0, 3], [2, 1, 1])):
        tokens = sum(lengths)
        q, k, v, beta, g = inputs(tokens)
        blocks = (torch.randperm(tokens + 3)[:tokens]).int()
        state = torch.randn(tokens + 3, HEADS, DV, DK)
        want, after = golden(q, k, v, state, beta, g, DK**-0.5, lengths, blocks.tolist(), accepted)
        got = delta_net.npu_recurrent_gated_delta_rule(
            q, k, v, state, beta=beta, scale=DK**-0.5, g=g, actual_seq_lengths=torch.tensor([0, *lengths]),
            ssm_state_indices=blocks, num_accepted_tokens=None if accepted is None else torch.tensor(accepted),
        )  # fmt: skip
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(state, after, rtol=1e-4, atol=1e-5)


def check_lengths_begin_with_an_offset() -> None:
    """`gdn_attn_builder._build_actual_seq_lengths`; read as plain ones, a run passes without MTP and fails with it."""
    q, k, v, beta, g = inputs(5)
    state, blocks = torch.randn(5, HEADS, DV, DK), torch.arange(5)
    arguments = dict(beta=beta, g=g, ssm_state_indices=blocks)
    got = delta_net.npu_recurrent_gated_delta_rule(
        q, k, v, state.clone(), actual_seq_lengths=torch.tensor([2, 1, 2]), **arguments
    )
    want = delta_net.npu_recurrent_gated_delta_rule(
        q, k, v, state.clone(), actual_seq_lengths=torch.tensor([0, 2, 1, 2]), **arguments
    )
    assert torch.equal(got[:2], torch.zeros(2, HEADS, DV))
    assert torch.equal(got[2:], want[2:])


def check_lengths_of_torch_npus_operator_have_no_offset() -> None:
    """vllm-ascend 0.18.0 (`patch_qwen3_next.py`) gives it `cu_seqlens[1:] - cu_seqlens[:-1]`."""
    lengths, accepted = [3, 1, 2], [2, 1, 2]
    q, k, v, beta, g = inputs(6)
    state, blocks = torch.randn(6, HEADS, DV, DK), torch.arange(6)
    want, after = golden(q, k, v, state, beta, g, DK**-0.5, lengths, blocks.tolist(), accepted)
    arguments = dict(beta=beta, scale=DK**-0.5, g=g, ssm_state_indices=blocks)
    given = dict(query=q, key=k, value=v, num_accepted_tokens=torch.tensor(accepted), **arguments)
    of = {"torch_npu": lengths, f"torch.ops.{NAMESPACE}": [0, *lengths]}
    for home, asked in of.items():
        left = state.clone()
        rule = operator_of("npu_recurrent_gated_delta_rule", home)
        got = rule(**given, state=left, actual_seq_lengths=torch.tensor(asked))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(left, after, rtol=1e-4, atol=1e-5)


def check_a_sequence_shorter_than_its_accepted_count_is_left_out() -> None:
    """As the kernel of 0.23.0, which goes no further there."""
    q, k, v, beta, g = inputs(5)
    state, blocks = torch.randn(5, HEADS, DV, DK), torch.arange(5)
    whole, cut = state.clone(), state.clone()
    arguments = dict(beta=beta, g=g, ssm_state_indices=blocks, actual_seq_lengths=torch.tensor([0, 2, 3]))
    rule = delta_net.npu_recurrent_gated_delta_rule
    want = rule(q, k, v, whole, num_accepted_tokens=torch.tensor([2, 1]), **arguments)
    got = rule(q, k, v, cut, num_accepted_tokens=torch.tensor([3, 1]), **arguments)
    assert torch.equal(got[:2], torch.zeros(2, HEADS, DV))
    assert torch.equal(got[2:], want[2:])
    assert torch.equal(cut[:2], state[:2])
    assert torch.equal(cut[2:], whole[2:])


def check_the_chunk_rule_is_the_recurrence() -> None:
    lengths = [4, 1, 3]
    q, k, v, beta, g = inputs(sum(lengths))
    start = torch.randn(3, HEADS, DK, DV)
    cu = torch.tensor([0, 4, 5, 8])
    out, last = kernels.chunk_gated_delta_rule(
        *(t.unsqueeze(0) for t in (q, k, v, g, beta)), initial_state=start, output_final_state=True, cu_seqlens=cu,
        use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    owners = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths)).tolist()
    want, after = golden(q, k, v, start.transpose(-1, -2), beta, g, DK**-0.5, lengths, owners, None)
    torch.testing.assert_close(out[0], want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last, after.transpose(-1, -2), rtol=1e-4, atol=1e-4)


WIDTH, DIM = 4, 6


def convolved(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A causal depthwise convolution over (width - 1 + n, dim) with torch's own, and silu."""
    made = torch.nn.functional.conv1d(rows.T.unsqueeze(0), weight.T.unsqueeze(1), bias, groups=DIM)[0].T
    return torch.nn.functional.silu(made)


def check_convolution_of_prompts_with_and_without_a_state() -> None:
    x, weight, bias = torch.randn(7, DIM), torch.randn(WIDTH, DIM), torch.randn(DIM)
    state = torch.randn(5, WIDTH - 1, DIM)
    before, out = state.clone(), torch.empty_like(x)
    delta_net.npu_causal_conv1d_custom(
        out, x, weight, state, bias, torch.tensor([0, 5, 7]), torch.tensor([3, 1]), torch.tensor([False, True]),
        None, 1, -1, 0,
    )  # fmt: skip
    zeros = torch.zeros(WIDTH - 1, DIM)
    first, second = torch.cat((zeros, x[:5])), torch.cat((before[1], x[5:]))
    torch.testing.assert_close(out, torch.cat([convolved(rows, weight, bias) for rows in (first, second)]))
    assert torch.equal(state[3], first[-3:])
    assert torch.equal(state[1], second[-3:])
    assert torch.equal(state[[0, 2, 4]], before[[0, 2, 4]])


def check_an_update_begins_at_the_last_accepted_token() -> None:
    """The state of a row with drafts holds all of them; the accepted count picks where the next step begins."""
    drafts, weight, bias = 2, torch.randn(WIDTH, DIM), torch.randn(DIM)
    history = torch.randn(20, DIM)
    state = torch.zeros(2, WIDTH - 1 + drafts, DIM)
    state[1] = history[: WIDTH - 1 + drafts]
    accepted = 2  # of the three tokens of the last step, the window of the next ends after the second
    window = history[accepted - 1 : accepted - 1 + WIDTH - 1]
    x, out = torch.randn(3, DIM), torch.empty(3, DIM)
    delta_net.npu_causal_conv1d_custom(
        out, x, weight, state, bias, torch.tensor([0, 3]), torch.tensor([1]), None, torch.tensor([accepted]), 1, -1, 1
    )
    rows = torch.cat((window, x))
    torch.testing.assert_close(out, convolved(rows, weight, bias))
    assert torch.equal(state[1], rows[1:])
    assert torch.equal(state[0], torch.zeros_like(state[0]))


def check_gates() -> None:
    A, a, b, bias = torch.randn(HEADS), torch.randn(3, HEADS), torch.randn(3, HEADS), torch.randn(HEADS)
    g, beta = delta_net.npu_fused_gdn_gating(A, a, b, bias)
    torch.testing.assert_close(g, -(A.exp() * (1 + (a + bias).exp()).log()).unsqueeze(0))
    torch.testing.assert_close(beta, (1 / (1 + (-b).exp())).unsqueeze(0))


def check_the_convolution_as_older_releases_call_it() -> None:
    """Lists for tensors, without an output (0.18.0) and with one (0.21.0rc1): the same numbers and the same state."""
    x, weight, state = torch.randn(7, 6), torch.randn(4, 6), torch.randn(5, 3, 6)
    bias, own = torch.randn(6), state.clone()
    starts, blocks, begins = [0, 3, 7], [4, 1], [0, 1]
    wanted = torch.empty_like(x)
    tensors = (torch.tensor(starts), torch.tensor(blocks), torch.tensor(begins))
    delta_net.npu_causal_conv1d_custom(wanted, x, weight, own, bias, *tensors, None, 1, -1, 0)
    assert not torch.equal(own, state)
    given = torch.empty_like(x)
    for output in ((), (given,)):
        theirs = state.clone()
        made = delta_net.npu_causal_conv1d_custom(
            *output, x, weight, theirs, bias, starts, blocks, begins, [], 1, -1, 0
        )
        assert torch.equal(made, wanted)
        assert torch.equal(theirs, own)
    assert torch.equal(given, wanted)
