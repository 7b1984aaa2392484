"""What `parity doctor` expects of a host with each kind of hardware: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parity.messages import Message, joined, message

MORE = message("vllm.torch_says_more", "`python -c 'import torch'` says more")
DRIVER = message("vllm.is_driver_there", "is its driver there?")

SOURCES = "`source /usr/local/Ascend/ascend-toolkit/set_env.sh` and `source /usr/local/Ascend/nnal/atb/set_env.sh`"


@dataclass(frozen=True)
class Hardware:
    """Where to look, and what to say where something is not as it must be."""

    name: str
    packages: Message | str = "vllm"
    """What a Python must have, in words."""
    tool: str = ""
    """The vendor's program; "": there are no devices to look for, the processor is the hardware."""
    driver: Message | str = ""
    pattern: str = ""
    """Device files."""
    pass_on: str = ""
    """How a container gets them."""
    manager: str = ""
    """A device file that must be there besides."""
    driver_version: str = ""
    """Finds it in what the tool prints; "": the tool prints a line of fields for each device."""
    torch_fails: Message | str = MORE
    """Where torch does not load."""
    torch_sees_none: Message | str = DRIVER
    determinism: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Variables that take run-to-run differences out, and the values that do: vLLM's documentation of batch
    invariance; vllm-ascend's FAQ, "How to ensure determinism"."""
    through_plugin: bool = False
    """vLLM reaches it through vllm-ascend, which brings the versions of torch and CANN that it needs."""
    emulated: bool = False
    """The plugin is there, and what it drives is played by the processor: nothing of the vendor's is looked for."""
    setup_variable: str = ""
    """Set where the vendor's environment is loaded."""
    least_memory_gib: int = 8
    shares_memory: bool = True
    """Its processes need room in /dev/shm."""

    @property
    def is_processor(self) -> bool:
        return not self.tool


HARDWARE = {
    row.name: row
    for row in (
        Hardware("cpu", least_memory_gib=4, shares_memory=False),
        Hardware(
            "ascend-emulated",
            packages=message("vllm.both_packages", "vllm and vllm-ascend"),
            least_memory_gib=4,
            shares_memory=False,
            emulated=True,
        ),
        Hardware(
            "cuda",
            tool="nvidia-smi",
            driver=message("vllm.driver_nvidia", "NVIDIA's driver"),
            pattern="/dev/nvidia*",
            pass_on="`--gpus all`",
            torch_fails=message(
                "vllm.torch_fits", "does this torch fit the driver? `python -c 'import torch'` says more"
            ),
            torch_sees_none=message(
                "vllm.driver_too_old", "the driver is too old for this build, or CUDA_VISIBLE_DEVICES hides them"
            ),
            determinism={"VLLM_BATCH_INVARIANT": ("1",), "CUBLAS_WORKSPACE_CONFIG": (":4096:8", ":16:8")},
        ),
        Hardware(
            "ascend",
            packages=message("vllm.both_packages", "vllm and vllm-ascend"),
            tool="npu-smi",
            driver=message("vllm.driver_ascend", "the Ascend driver and firmware (HDK)"),
            pattern="/dev/davinci*",
            pass_on="`--device /dev/davinci0 --device /dev/davinci_manager …`",
            manager="/dev/davinci_manager",
            driver_version=r"Version:\s*(\S+)",
            torch_fails=SOURCES,
            torch_sees_none=joined(
                [SOURCES, message("vllm.hidden_devices", "does ASCEND_RT_VISIBLE_DEVICES hide them?")], "; "
            ),
            determinism={
                "HCCL_DETERMINISTIC": ("true", "strict"),
                "LCCL_DETERMINISTIC": ("1",),
                "ATB_MATMUL_SHUFFLE_K_ENABLE": ("0",),
                "ATB_LLM_LCOC_ENABLE": ("0",),
            },
            through_plugin=True,
            setup_variable="ASCEND_HOME_PATH",
        ),
    )
}
