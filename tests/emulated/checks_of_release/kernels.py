"""What was put in the place of a Triton kernel, against that kernel in the interpreter.

The chunked delta rule is not here: 0.23.0 computes two of its steps in operators of its own, which have no stand-in
(`chunk_gated_delta_rule_fwd_h`, `chunk_fwd_o`). It is held to the recurrence in checks/delta_net.py.
"""

from __future__ import annotations

import torch
import torch_npu  # noqa: F401  (the device)
from parity_emulated_npu.operators import CALLS
from vllm_ascend.ops.triton import rope
from vllm_ascend.ops.triton.fla import layernorm_guard
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


def check_gated_norm() -> None:
    x, z, weight = torch.randn(5, 16), torch.randn(5, 16), torch.randn(16)
    for before in (True, False):
        for rms in (True, False):
            for gate in (z, None):
                got, want = both(
                    layernorm_guard, "_layer_norm_fwd", x, weight, None, 1e-6, z=gate, norm_before_gate=before,
                    is_rms_norm=rms,
                )  # fmt: skip
                torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)
                torch.testing.assert_close(got[2], want[2], rtol=1e-5, atol=1e-5)
