"""`cuda` and `ascend` on a machine that has neither: what they say of failures, what they refuse."""

from __future__ import annotations

import pytest

from parity.run import load_backend
from parity.run.backend import HoldsMemory, Patient


@pytest.mark.parametrize(
    ("backend", "log", "words"),
    [
        ("cuda", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "gpu_memory_utilization"),
        ("ascend", "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB", "gpu_memory_utilization"),
        ("cuda", "ModuleNotFoundError: No module named 'vllm'", "PARITY_CUDA_PYTHON"),
        (
            "cuda",
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)",
            "parity doctor cuda",
        ),
        ("cuda", "RuntimeError: No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES"),
        ("cuda", "ModuleNotFoundError: No module named 'flashinfer'", "VLLM_USE_FLASHINFER_SAMPLER=0"),
        ("cuda", "ModuleNotFoundError: No module named 'torch_npu'", "pip uninstall vllm-ascend"),
        ("ascend", "ModuleNotFoundError: No module named 'torch_npu'", "parity doctor ascend"),
        ("ascend", "ImportError: libascend_hal.so: cannot open shared object file", "set_env.sh"),
        ("ascend", "ImportError: libatb.so: cannot open shared object file", "atb/set_env.sh"),
        ("ascend", "rtSetDevice failed, error code is 507033", "davinci_manager"),
        ("ascend", "AssertionError: decode_threshold exceeded npu_fused_infer_attention_score's limit", "at most 15"),
        ("ascend", "EI0006: hcclCommInitRootInfo failed: HCCL function error", "HCCL_CONNECT_TIMEOUT"),
        ("ascend", "RuntimeError: HCCL error: invalid parameter", "HCCL_CONNECT_TIMEOUT"),
        ("ascend", "OPS function error: HcclAllreduce, error code is 6", "HCCL_CONNECT_TIMEOUT"),
        ("ascend", "[ERROR] HCCL(2717288,python3): listen on specific port[16666] fail", "HCCL_CONNECT_TIMEOUT"),
        (  # a start that had nothing to do with communication
            "ascend",
            "INFO parallel_state.py: world_size=1 rank=0 distributed_init_method=tcp://[::1]:4 backend=hccl\n"
            "INFO Set HCCL_OP_EXPANSION_MODE=AIV\nINFO Found hccl from library libhccl.so\nKeyError: 'layers.0'",
            None,
        ),
        ("cuda", "RuntimeError: VLLM batch_invariant mode is not supported for GDN_ATTN", "vllm#42960"),
        ("ascend", "ValueError: Model architectures ['XForCausalLM'] are not supported for now.", "a newer one"),
        ("cuda", "KeyError: 'something else'", None),
        ("cpu", "chunk_gated_delta_rule_cpu: initial_state dtype mismatch", "mamba_ssm_cache_dtype=float32"),
        (
            "cpu",
            "    top_k_mask = logits_sort.gather(1, top_k_mask.unsqueeze(dim=1))\n"
            "RuntimeError: index 2048 is out of bounds for dimension 1 with size 2048",
            "vllm#55005",
        ),
    ],
)
def test_a_failure_is_explained(backend: str, log: str, words: str | None) -> None:
    said = load_backend(backend).explain(f"INFO loading\n{log}\n")
    assert said is None if words is None else words in str(said)


@pytest.mark.parametrize("backend", ["cuda", "ascend"])
@pytest.mark.parametrize("variant", ["base", "mtp"])
def test_there_is_memory_left_to_score(backend: str, variant: str) -> None:
    """Logprobs of a prompt take memory that no profile run of an engine counts."""
    adapter = load_backend(backend)
    assert adapter.engine_defaults(variant, num_speculative_tokens=2)["gpu_memory_utilization"] == 0.8
    assert isinstance(adapter, HoldsMemory)
    too_little = (
        "ValueError: Free memory on device npu:0 (7.4/60.9 GiB) on startup is less than desired GPU memory utilization"
    )
    ordinary = "INFO [worker.py:819] Free memory on device (1.96/2.0 GiB) on startup. Desired GPU memory utilization is"
    assert [any(sign in line for sign in adapter.memory_signs) for line in (too_little, ordinary)] == [True, False]
    assert "device memory" in str(adapter.explain(too_little))
    assert "device memory" not in str(adapter.explain(ordinary))


def test_ranks_of_an_npu_are_spawned_and_waited_for() -> None:
    adapter = load_backend("ascend")
    assert adapter.env_defaults("base")["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert isinstance(adapter, Patient)
    assert adapter.stall_seconds > 1836  # HCCL's own limit: then it says which rank hangs
