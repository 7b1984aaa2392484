"""`torch.ops._C_ascend`: the schemas are the release's own; each operator is its stand-in, or raises when called."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from parity_emulated_npu import schemas
from parity_emulated_npu.operators import NAMESPACE, operator_of

_LIBRARIES: list[Any] = []
"""Registrations live as long as the object that made them."""

NOT_TAKEN: dict[str, str] = {}
"""Schemas that this torch did not take, and what it said: named when the operator is asked for."""


def register() -> None:
    """Defines every custom operator of the vllm-ascend that is installed."""
    import torch

    package = importlib.util.find_spec("vllm_ascend")
    folders = list(package.submodule_search_locations or []) if package else []
    if _LIBRARIES or not folders:
        return
    library = torch.library.Library(NAMESPACE, "DEF")
    _LIBRARIES.append(library)
    for name, schema in schemas.of_package(Path(folders[0])).items():
        try:
            library.define(schema)
        except RuntimeError as error:
            NOT_TAKEN[name] = str(error).splitlines()[0]
            print(f"parity_emulated_npu: schema of {name} not taken: {NOT_TAKEN[name]}", file=sys.stderr)
            continue
        library.impl(name, operator_of(name, f"torch.ops.{NAMESPACE}"), "CPU")
