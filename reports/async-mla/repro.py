#!/usr/bin/env python3
"""The sequence lengths that vLLM's MLA works with for rows that have drafts, beside those that are right.

    python repro.py CHECKPOINT [ATTENTION_BACKEND]

Needs vLLM 0.32.0, and a checkpoint with MLA and an MTP head; Python 3.9 or newer. Exit code 1: some lengths are too
long. 0: none is. Attention backends that decode single tokens alone take rows with drafts for pieces of prompts;
CUTLASS_MLA and CPU_MLA are such. It speculates with three drafts, schedules asynchronously, and penalises repetition,
so that the drafter, which does not, is rejected now and then.
"""

import os
import random
import sys

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.inputs import TokensPrompt  # noqa: E402
from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadataBuilder  # noqa: E402

build, rows, wrong = MLACommonMetadataBuilder.build, [], []


def checked(self, common_prefix_len, common, fast_build=False):
    """What `build` makes; each of its pieces of prompts is looked at."""
    made = build(self, common_prefix_len, common, fast_build)
    if made.prefill is not None:
        given = made.prefill.query_start_loc.diff().tolist()
        if made.prefill.chunked_context is not None:
            before = made.prefill.chunked_context.context_lens.tolist()
            given = [own + earlier for own, earlier in zip(given, before)]
        exact = common.seq_lens[made.num_decodes : made.num_decodes + made.num_prefills].tolist()
        rows.extend(exact)
        wrong.extend((one, other) for one, other in zip(given, exact) if one != other)
    return made


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    MLACommonMetadataBuilder.build = checked
    backend = {"attention_backend": sys.argv[2]} if len(sys.argv) > 2 else {}
    llm = LLM(
        sys.argv[1], dtype="bfloat16", enforce_eager=True, max_num_seqs=8, max_model_len=256,
        enable_prefix_caching=False, async_scheduling=True,
        speculative_config={"method": "mtp", "num_speculative_tokens": 3}, **backend,
    )  # fmt: skip
    draw = random.Random(11)
    most = llm.llm_engine.model_config.get_vocab_size()
    prompts = [[draw.randrange(16, most) for _ in range(draw.randrange(8, 40))] for _ in range(16)]
    params = SamplingParams(temperature=0, max_tokens=32, repetition_penalty=1.5)
    llm.generate([TokensPrompt(prompt_token_ids=one) for one in prompts], params, use_tqdm=False)
    print(f"{len(wrong)} of {len(rows)} lengths are wrong; given and exact: {wrong[:8]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
