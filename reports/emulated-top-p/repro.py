"""vllm-ascend 0.26.0rc1: with top-k, top-p is a share of all tokens and not of what top-k leaves, as it is in vLLM.

    python repro.py     # exit code 1 where the two keep other tokens, 0 where they keep the same

Needs vLLM 0.26.0 and vllm-ascend 0.26.0rc1, no checkpoint; starts no engine.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import torch

TOKENS, TOP_K, TOP_P = 1000, 20, 0.9


def kept(logits: torch.Tensor) -> int:
    """Tokens of the only row that may be drawn."""
    return int(torch.isfinite(logits).sum())


def main() -> int:
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch
    from vllm_ascend.sample import sampler

    sampler.get_ascend_config = lambda: SimpleNamespace(enable_reduce_sample=False)  # its default, without an engine
    logits = torch.linspace(3.0, 0.0, TOKENS).unsqueeze(0)
    k, p = torch.tensor([TOP_K]), torch.tensor([TOP_P])
    of_vllm = kept(apply_top_k_top_p_pytorch(logits.clone(), k, p))
    of_ascend = kept(sampler.apply_top_k_top_p(logits.clone(), k, p))
    print(f"top_k={TOP_K}, top_p={TOP_P}: vLLM keeps {of_vllm} tokens, vllm-ascend {of_ascend}")
    return int(of_vllm != of_ascend)


if __name__ == "__main__":
    sys.exit(main())
