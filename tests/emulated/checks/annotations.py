"""`torch.device` in annotations, which is another class here: custom operators are declared by them."""

from __future__ import annotations

import torch
import torch_npu  # noqa: F401 - puts the device in
from torch._library.infer_schema import infer_schema


def check_a_custom_operator_may_take_a_device() -> None:
    def operator(x, device, other=None):  # type: ignore[no-untyped-def]
        return x

    operator.__annotations__ = {
        "x": torch.Tensor, "device": torch.device, "other": torch.device | None, "return": torch.Tensor
    }  # fmt: skip
    assert infer_schema(operator, mutates_args=()) == "(Tensor x, Device device, Device? other=None) -> Tensor"


def check_unions_with_a_device_are_unions() -> None:
    assert torch.device | None == type(torch.device("cpu")) | None
