"""What is not there says so, with its name and who called it."""

from __future__ import annotations

import torch
from parity_emulated_npu import schemas
from parity_emulated_npu.absent import AbsentOperators
from parity_emulated_npu.operators import CALLS, NotEmulated, cache, is_operator, operator_of


def said_by(call) -> str:
    try:
        call()
    except NotEmulated as error:
        return str(error)
    raise AssertionError("it did something")


def check_an_operator_that_is_missing_names_itself_its_arguments_and_its_caller() -> None:
    said = said_by(lambda: operator_of("npu_quant_matmul", "torch_npu")(torch.zeros(2, 3), scale=1))
    assert "torch_npu.npu_quant_matmul has no stand-in" in said
    assert "registry.py:" in said
    assert "tests/emulated" in said
    assert "torch.float32[2, 3]" in said
    assert "scale=1" in said


def check_so_does_one_in_a_namespace_of_its_own() -> None:
    torch_npu = AbsentOperators("torch_npu")
    assert "torch_npu.atb.npu_not_written_yet has no stand-in" in said_by(lambda: torch_npu.atb.npu_not_written_yet(1))
    assert torch_npu.atb.npu_paged_cache_load.__wrapped__ is cache.npu_paged_cache_load
    assert torch_npu.profiler.profile(1) is not None


def check_an_unknown_argument_is_named() -> None:
    said = said_by(lambda: operator_of("npu_swiglu", "torch_npu")(torch.zeros(2), swizzle=2))
    assert "npu_swiglu" in said
    assert "swizzle" in said


def check_an_error_inside_stays_what_it_is() -> None:
    try:
        operator_of("npu_swiglu", "torch_npu")(None)
    except AttributeError:
        return
    raise AssertionError("another error")


def check_calls_are_counted_by_name() -> None:
    before = CALLS["torch_npu.npu_fast_gelu"]
    operator_of("npu_fast_gelu", "torch_npu")(torch.zeros(1))
    assert CALLS["torch_npu.npu_fast_gelu"] == before + 1


def check_names_of_operators_are_told_from_other_names() -> None:
    assert is_operator("npu_rms_norm")
    assert is_operator("_npu_matmul_add_fp32")
    assert is_operator("npu_not_written_yet")
    assert is_operator("empty_with_format")
    assert not is_operator("profiler")


def check_schemas_are_read_from_source_and_from_a_binary_alike(tmp=None) -> None:
    import tempfile
    from pathlib import Path

    folder = Path(tempfile.mkdtemp())
    (folder / "csrc").mkdir()
    source = folder / "csrc" / "torch_binding.cpp"
    source.write_text(
        'ops.def("one(Tensor x) -> Tensor");  // ops.def("no(Tensor x) -> Tensor");\n'
        '  ops.def(\n    "two(Tensor(a!) x, "\n    "int   y) -> (Tensor, Tensor)");\n ops.impl("two", &two);\n'
        'ops.def("one(Tensor y) -> ()");'
    )
    binary = folder / "vllm_ascend_C.so"
    binary.write_bytes(
        b"\x7fELF\0junk\0one(Tensor x) -> Tensor\0two(Tensor(a!) x, int   y) -> (Tensor, Tensor)\0void f()\0"
    )
    want = {"one": "one(Tensor x) -> Tensor", "two": "two(Tensor(a!) x, int y) -> (Tensor, Tensor)"}
    assert schemas.of_source(source) == want
    assert schemas.of_binary(binary) == want
    assert schemas.of_package(folder / "vllm_ascend") == want
