"""What the import system finds: modules that are stand-ins, and real ones of which a part is replaced."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import types
from collections.abc import Callable, Sequence
from typing import Any

from parity_emulated_npu.absent import Absent, AbsentOperators
from parity_emulated_npu.checkout import BUILT

NAMES = """
    acl arctic_inference batch_invariant_ops datasystem flash_attn_npu_v3 llm_datadist lmcache lmcache_ascend memcache
    memcache_hybrid memfabric_hybrid mindie_turbo mooncake ms_service_metric ms_service_profiler msprobe
    msserviceprofiler nixl npugraph_ex te torch_npu torchair torchvision ucm xlite yr
"""
ABSENT = frozenset(NAMES.split())
"""Top-level packages that vllm-ascend (0.18 to 0.23) and vLLM import or look for, and that a machine without an NPU
lacks, or must not have (torchvision: a CUDA build)."""

BINARY = "vllm_ascend.vllm_ascend_C"
"""vllm-ascend's compiled module: importing it registers the custom operators."""

CANN = "triton.language.extra.cann"

TORCHAIR_BRINGS = ("torchair.fx_summary", "torchair.npu_fx_compiler")
"""Parts that are there once torchair is: vllm-ascend 0.18 reloads them without importing them."""


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules that are not there."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in ABSENT or name in (BINARY, CANN) or name.startswith(CANN + "."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if name in BUILT and importlib.machinery.PathFinder.find_spec(name, path) is None:
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        if spec.name == "torch_npu" or spec.name.startswith("torch_npu."):
            return AbsentOperators(spec.name)
        return Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "torch_npu":
            from parity_emulated_npu import device

            device.install(module)
        elif module.__name__ == "torchair":
            for part in TORCHAIR_BRINGS:
                importlib.import_module(part)
        elif module.__name__ in BUILT:
            vars(module).update(BUILT[module.__name__])
        elif module.__name__ == BINARY:
            from parity_emulated_npu import custom

            custom.register()
        elif module.__name__ == CANN + ".extension":
            from parity_emulated_npu import triton_language

            vars(module).update(triton_language.EXTENSION)


def _triton_backends(module: types.ModuleType) -> None:
    from parity_emulated_npu.triton_driver import Driver

    module.backends.clear()
    module.backends["npu"] = types.SimpleNamespace(driver=Driver, compiler=None)


def _any_shape(module: types.ModuleType) -> None:
    from parity_emulated_npu.triton_language import validate_block_shape

    vars(module)["validate_block_shape"] = validate_block_shape


def _any_range(module: types.ModuleType) -> None:
    from parity_emulated_npu.triton_language import any_range

    any_range(module)


def _interpreter(module: types.ModuleType) -> None:
    from parity_emulated_npu.triton_driver import count_kernels, leave_overflow

    leave_overflow(module)
    count_kernels(module)


def _kernels(module: types.ModuleType) -> None:
    from parity_emulated_npu.kernels import replace

    replace(module)


AFTER: dict[str, Callable[[types.ModuleType], None]] = {
    "triton.backends": _triton_backends,
    "triton._utils": _any_shape,
    "triton.language.semantic": _any_range,
    "triton.runtime.interpreter": _interpreter,
}
"""What is done to a real module once it is loaded."""

KERNELS = (
    "vllm_ascend.ops.triton.",
    "vllm.model_executor.layers.fla.ops.l2norm",
    "vllm.third_party.flash_linear_attention.ops.l2norm",
    "vllm.v1.worker.block_table",
)
"""Where modules begin in which `kernels.REPLACED` may replace something."""


class Replaced(importlib.abc.MetaPathFinder):
    """Loads the real module and changes what `AFTER` says, or puts torch in the place of kernels that are too slow."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = _kernels if name.startswith(KERNELS) else AFTER.get(name)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def load(module: types.ModuleType) -> None:
            run(module)
            change(module)

        spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec
