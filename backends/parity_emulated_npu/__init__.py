"""vllm-ascend's own code on a device `npu` that is the CPU.

It goes into an engine environment beside the real vLLM and the real vllm-ascend, whose files it does not change, and
stands in for what only the hardware's software has: `torch_npu`, `vllm_ascend_C`, CANN's backend of Triton. It needs
the standard library, torch and triton, and nothing of parity. `start` puts it to work (a `.pth` file of the
environment imports it in every process); docs/emulated.md says what a run on it proves and what not.
"""

from __future__ import annotations

EMULATES = "Ascend 910B1"
"""The device that vllm-ascend finds (A2, on which the release is tested most)."""
