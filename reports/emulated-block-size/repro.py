"""vllm-ascend 0.23.0 does not start a dense model without chunked prefill and without a prefix cache.

    python repro.py --model DIR                   # exit code 1: ValueError, "No common block size for 16"
    python repro.py --model DIR --block-size 128  # exit code 0: it starts, and generates

Any model that is not hybrid; needs vLLM 0.23.0 and vllm-ascend 0.23.0 alone.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def main() -> int:
    from vllm import LLM, SamplingParams

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--block-size", type=int)
    asked = parser.parse_args()
    more = {} if asked.block_size is None else {"block_size": asked.block_size}
    try:
        llm = LLM(
            asked.model,
            enable_chunked_prefill=False,
            enable_prefix_caching=False,
            max_model_len=256,
            max_num_batched_tokens=256,
            enforce_eager=True,
            **more,
        )
    except ValueError as error:
        print(f"it does not start: {error}")
        return 1
    (answer,) = llm.generate([{"prompt_token_ids": [5, 6, 7]}], SamplingParams(temperature=0, max_tokens=4))
    print(f"it starts: {list(answer.outputs[0].token_ids)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
