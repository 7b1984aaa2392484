"""vLLM on Huawei Ascend NPUs, through vllm-ascend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.messages import Message, joined, message
from parity_backends.vllm.accelerator import Accelerator
from parity_backends.vllm.impossible import MOST_ON_ASCEND, on_ascend
from parity_backends.vllm.worker.arguments import Table
from parity_backends.vllm.worker.limits import refusal

MISSING = ": cannot open shared object file"
"""What the loader says of a library; its mere name stands in start messages and in backtraces too."""

SET_ENV = message(
    "ascend.set_env",
    "`source /usr/local/Ascend/ascend-toolkit/set_env.sh` (`setup` of this backend in parity.toml)",
)

EMULATED = message(
    "ascend.emulated",
    "without an NPU: `parity run --backends cpu,ascend-emulated` runs vllm-ascend's own code on an emulated one, which "
    "says nothing of the hardware",
)


class AscendBackend(Accelerator):
    """Looks for an Ascend driver, devices and a Python with vLLM and vllm-ascend."""

    name = "ascend"
    hardware = "Ascend NPU"
    interpreter_variable = "PARITY_ASCEND_PYTHON"
    distributions = ("vllm", "vllm-ascend", "torch", "torch-npu")
    required = ("vllm", "vllm-ascend")
    tool = ("npu-smi", "info", "-l")
    device_pattern = "/dev/davinci[0-9]*"
    device_variable = "ASCEND_RT_VISIBLE_DEVICES"
    far_modules = ("vllm", "vllm_ascend")
    stall_seconds = 3000.0
    """HCCL waits 1836 s and then says which rank and operator hang; vllm-ascend asks for as much (`platform.py`)."""

    def env_defaults(self, variant: str) -> dict[str, str]:
        return {
            **super().env_defaults(variant),
            # vllm-ascend's own tests start its ranks so, never by vLLM's default, a fork of a process with threads.
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            # Longer than HCCL's own limit; vLLM gives up after 300 s and cannot say who hangs. Newer releases of
            # vllm-ascend set it themselves.
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": f"{self.stall_seconds:.0f}",
        }

    def _elsewhere(self) -> Message:
        return joined([super()._elsewhere(), EMULATED], "; ")

    def impossible(self, engine: Mapping[str, Any], config: Mapping[str, Any]) -> Message | None:
        return on_ascend(engine)

    def impossible_at(
        self, versions: Mapping[str, str], engine: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Message | None:
        if "vllm-ascend" not in versions:
            return None
        said = refusal(Table(versions.get("vllm", "0"), versions["vllm-ascend"]), engine, config)
        return None if said is None else Message.from_json(said)

    remedies = (
        (
            (
                *(f"lib{name}.so{MISSING}" for name in ("ascend_hal", "hccl", "ascendcl", "torch_npu")),
                "ASCEND_HOME_PATH",
            ),
            message("ascend.cann", "CANN's environment is not loaded: {how}", how=SET_ENV),
        ),
        (
            (f"libatb.so{MISSING}",),
            message(
                "ascend.atb",
                "ATB's environment is not loaded: `source /usr/local/Ascend/nnal/atb/set_env.sh` "
                "(`setup` in parity.toml)",
            ),
        ),
        (
            ("No module named 'torch_npu'", "No module named 'vllm_ascend'"),
            message(
                "ascend.missing",
                "torch-npu or vllm-ascend is missing: `parity doctor ascend` says which versions belong together",
            ),
        ),
        (
            ("drvDeviceOpen", "aclrtSetDevice", "rtSetDevice", "error code is 507033", "error code is 507899"),
            message(
                "ascend.device",
                "the device does not open: is another process on it, and does the container have /dev/davinci*, "
                "/dev/davinci_manager, /dev/devmm_svm and /dev/hisi_hdc? `npu-smi info` shows",
            ),
        ),
        (
            ("decode_threshold exceeded",),
            message("ascend.draft_tokens", "vllm-ascend takes at most {most} draft tokens", most=MOST_ON_ASCEND),
        ),
        (
            (  # what failed, not the mere name, which every start prints (`backend=hccl`, `HCCL_OP_EXPANSION_MODE`)
                *("HCCL error", "HCCL function error", "call hccl api failed", "function error: Hccl"),
                *("[ERROR] HCCL(", "WorkHCCL(", "EI0002", "EI0006", "EI0009", "EJ0001"),
            ),
            message(
                "ascend.communication",
                "the communication library failed: HCCL_CONNECT_TIMEOUT and HCCL_BUFFSIZE may be too small, or a "
                "device of the group is taken",
            ),
        ),
    )
