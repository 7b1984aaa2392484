"""The emulated device itself, and the release's operators on it."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path

import torch
import torch_npu
from parity_emulated_npu import custom, schemas
from parity_emulated_npu.operators import NotEmulated
from torch._library.infer_schema import infer_schema


def check_a_transfer_copies() -> None:
    """Code that forgets to copy anew reads old numbers, as on a device with memory of its own."""
    host = torch.arange(4)
    for moved in (host.to("npu"), host.to(torch.device("npu:0")), host.to(device="npu"), host.npu(), host.to(0)):
        assert moved.data_ptr() != host.data_ptr()
    device = host.to("npu", non_blocking=True)
    host[0] = 9
    assert device.tolist() == [0, 1, 2, 3]
    back, also = device.cpu(), device.to("cpu")
    device[1] = 7
    assert back.tolist() == also.tolist() == [0, 1, 2, 3]


def check_a_tensor_may_be_recorded_on_a_stream() -> None:
    """vllm-ascend 0.26.0rc1 does it when it draws (`sample/sampler.py`)."""
    drawn = torch.empty(3, device="npu").exponential_()
    drawn.record_stream(torch.npu.current_stream())
    assert drawn.min() > 0


def check_a_change_of_type_alone_does_not_transfer() -> None:
    x = torch.ones(2)
    assert x.to(torch.float32).data_ptr() == x.data_ptr()
    assert x.to(torch.bfloat16).dtype == torch.bfloat16


def check_devices_are_named_npu_and_are_the_cpu() -> None:
    assert torch.device("npu", 1).type == "cpu"
    assert isinstance(torch.device("npu"), torch.device)
    assert torch.zeros(2, device="npu:0", pin_memory=True).device.type == "cpu"
    assert "emulated" in torch.npu.get_device_name(0)
    assert "emulated" in torch.npu.emulated
    assert torch_npu.npu is torch.npu


def check_every_schema_of_the_release_is_taken() -> None:
    importlib.import_module("vllm_ascend.vllm_ascend_C")
    folder = Path(str(importlib.metadata.distribution("vllm-ascend").locate_file("vllm_ascend")))
    found = schemas.of_package(folder)
    assert len(found) > 50
    assert custom.NOT_TAKEN == {}
    for name, schema in found.items():
        assert getattr(torch.ops._C_ascend, name).default._schema.name == f"_C_ascend::{name}", schema


def check_a_custom_operator_without_a_stand_in_raises_with_its_name() -> None:
    importlib.import_module("vllm_ascend.vllm_ascend_C")
    try:
        torch.ops._C_ascend.npu_sign_bits_pack(torch.zeros(8), 1)
    except NotEmulated as error:
        assert "npu_sign_bits_pack" in str(error)
        assert "device.py:" in str(error)
    else:
        raise AssertionError("it did something")


def check_a_custom_operator_computes() -> None:
    importlib.import_module("vllm_ascend.vllm_ascend_C")
    x = torch.randn(2, 8)
    y, _, total = torch.ops._C_ascend.npu_add_rms_norm_bias(x, x, torch.ones(8), None, 1e-6)
    torch.testing.assert_close(total, 2 * x)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(2 * x, (8,), eps=1e-6))


def check_a_custom_operator_may_take_a_device() -> None:
    def operator(x, device, other=None):  # type: ignore[no-untyped-def]
        return x

    operator.__annotations__ = {
        "x": torch.Tensor, "device": torch.device, "other": torch.device | None, "return": torch.Tensor
    }  # fmt: skip
    assert infer_schema(operator, mutates_args=()) == "(Tensor x, Device device, Device? other=None) -> Tensor"


def check_unions_with_a_device_are_unions() -> None:
    assert torch.device | None == type(torch.device("cpu")) | None
