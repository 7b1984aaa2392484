"""What was put in the place of a Triton kernel, against that kernel in the interpreter.

The chunked delta rule is not here: 0.23.0 computes two of its steps in operators of its own, which have no stand-in
(`chunk_gated_delta_rule_fwd_h`, `chunk_fwd_o`). It is held to the recurrence in checks/delta_net.py.
"""

from __future__ import annotations

import dataclasses
import itertools

import torch
import torch_npu  # noqa: F401  (the device)
import triton
import triton.language as tl
from parity_emulated_npu.operators import CALLS
from triton.runtime import interpreter
from vllm.model_executor.layers.fla.ops import l2norm
from vllm.v1.worker import block_table
from vllm_ascend.ops.triton import layernorm_gated, rope
from vllm_ascend.ops.triton.fla import fused_qkvzba_split_reshape, layernorm_guard, utils
from vllm_ascend.ops.triton.triton_utils import init_device_properties_triton

init_device_properties_triton()
torch.manual_seed(9)


def both(module, name: str, *args, **kwargs):
    """What the replacement gives, and what the release's own function does, each on its own copies."""
    replaced = getattr(module, name)

    def copies(values):
        return [value.clone() if torch.is_tensor(value) else value for value in values]

    got = replaced(*copies(args), **dict(zip(kwargs, copies(kwargs.values()), strict=True)))
    before = sum(count for call, count in CALLS.items() if call.startswith("triton."))
    want = replaced.interpreted(*copies(args), **dict(zip(kwargs, copies(kwargs.values()), strict=True)))
    assert sum(count for call, count in CALLS.items() if call.startswith("triton.")) > before, "no kernel ran"
    return got, want


def check_rope() -> None:
    cache = torch.randn(32, 16)
    positions = torch.tensor([3, 0, 31])
    q, k = torch.randn(3, 4, 16), torch.randn(3, 2, 16)
    for neox in (True, False):
        got, want = both(
            rope, "rope_forward_triton", q, k, cos_sin_cache=cache, positions=positions, rope_dim=16, is_neox_style=neox
        )
        torch.testing.assert_close(got[0], want[0].view_as(got[0]), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got[1], want[1].view_as(got[1]), rtol=1e-5, atol=1e-5)


def check_gated_norms() -> None:
    x, z, weight = torch.randn(5, 16), torch.randn(5, 16), torch.randn(16)
    for module, name in ((layernorm_guard, "_layer_norm_fwd"), (layernorm_gated, "layer_norm_fwd_npu")):
        for before, rms, gate in itertools.product((True, False), (True, False), (z, None)):
            got, want = both(
                module, name, x, weight, None, 1e-6, z=gate, norm_before_gate=before, is_rms_norm=rms
            )  # fmt: skip
            torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(got[2], want[2], rtol=1e-5, atol=1e-5)


def check_norms_of_queries_and_keys() -> None:
    for shape in ((1, 40, 2, 64), (1, 1, 4, 16)):  # more and fewer rows than a block of the kernel
        got, want = both(l2norm, "l2norm_fwd", torch.randn(shape))
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def check_queries_keys_values_and_gates_are_put_apart() -> None:
    for tokens in (1, 7):
        qkvz, ba = torch.randn(tokens, 2 * (8 + 8 + 2 * 4 + 2 * 4)), torch.randn(tokens, 2 * 4)
        got, want = both(fused_qkvzba_split_reshape, "fused_qkvzba_split_reshape_cat", qkvz, ba, 2, 4, 8, 4)
        assert len(got) == len(want) == 4
        for one, other in zip(got, want, strict=True):
            assert torch.equal(one, other)


def check_states_of_new_rows_are_cleared() -> None:
    flags = torch.tensor([True, False, True, False])
    once = torch.randn(4, 2, 3, 50)
    again = once.clone()
    utils.clear_ssm_states(once, flags)
    utils.clear_ssm_states.interpreted(again, flags)
    assert torch.equal(once, again)
    assert bool(once[0].any())
    assert not bool(once[1].any())


def check_slots_of_tokens() -> None:
    """Rows of no token, of one, and across blocks; one rank and the second of two, which holds every other pair."""
    lengths, begins = torch.tensor([3, 0, 1, 9, 5]), torch.tensor([6, 0, 30, 2, 1])
    starts = torch.cat((torch.zeros(1, dtype=torch.long), lengths.cumsum(0))).int()
    tokens, most = int(starts[-1]), 40
    positions = torch.cat([torch.arange(begin, begin + n) for begin, n in zip(begins, lengths, strict=True)])
    table = torch.randperm(8 * 16).int().view(8, 16)
    for world, rank, interleave in ((1, 0, 1), (2, 1, 2)):
        slots, wanted = (torch.full((most,), 7) for _ in range(2))
        kernel = block_table._compute_slot_mapping_kernel
        for launch, into in ((kernel, slots), (kernel.interpreted, wanted)):
            launch[(len(lengths) + 1,)](
                tokens, most, starts, positions, table, table.stride(0), 4, into, TOTAL_CP_WORLD_SIZE=world,
                TOTAL_CP_RANK=rank, CP_KV_CACHE_INTERLEAVE_SIZE=interleave, PAD_ID=-1, BLOCK_SIZE=16,
            )  # fmt: skip
        assert torch.equal(slots, wanted)
        assert slots[0] != -1 if world == 1 else (slots[:tokens] == -1).any()


@triton.jit
def add_one(values):
    tl.store(values, tl.load(values) + 1)


def check_integers_wrap_whether_overflow_is_looked_for_or_not() -> None:
    builder = interpreter.interpreter_builder
    fast = builder.options
    assert not fast.sanitize_overflow
    for options in (fast, dataclasses.replace(fast, sanitize_overflow=True)):
        values = torch.tensor([torch.iinfo(torch.int32).max], dtype=torch.int32)
        try:
            builder.options = options
            add_one[(1,)](values)
        finally:
            builder.options = fast
        assert values.item() == torch.iinfo(torch.int32).min
