#!/usr/bin/env python3
"""The sequence lengths that vLLM's MLA works with for rows that have drafts, beside those that are right.

    python repro.py CHECKPOINT [--backend CPU_MLA]
    python repro.py CHECKPOINT [--backend CPU_MLA] --out as-it-is.json
    python repro.py CHECKPOINT [--backend CPU_MLA] --mended --against as-it-is.json

Needs vLLM 0.32.0 or 0.23.0, and a checkpoint with MLA and an MTP head; Python 3.9 or newer. Exit code 1: some lengths are too
long. 0: none is. Attention backends that decode single tokens alone take rows with drafts for pieces of prompts;
TRITON_MLA, CUTLASS_MLA and CPU_MLA are such. It speculates with three drafts, schedules asynchronously, and penalises repetition,
so that the drafter, which does not, is rejected now and then. With --mended the right lengths are put in their place;
--against says in which completions the engine's own logprobs change by that, and how far.
"""

import argparse
import json
import os
import random
import sys

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.inputs import TokensPrompt  # noqa: E402
from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadataBuilder  # noqa: E402

build, rows, wrong, mended = MLACommonMetadataBuilder.build, [], [], []


def checked(self, common_prefix_len, common_attn_metadata, fast_build=False):
    """What `build` makes; each of its pieces of prompts is looked at."""
    common = common_attn_metadata
    if mended:
        common.seq_lens_cpu_upper_bound = common.seq_lens.cpu()
    made = build(self, common_prefix_len, common, fast_build)
    if made.prefill is not None:
        given = made.prefill.query_start_loc.diff().tolist()
        if made.prefill.chunked_context is not None:
            context = made.prefill.chunked_context
            before = (context.context_lens if hasattr(context, "context_lens") else context.seq_lens.sum(0)).tolist()
            given = [own + earlier for own, earlier in zip(given, before)]
        exact = common.seq_lens[made.num_decodes : made.num_decodes + made.num_prefills].tolist()
        rows.extend(exact)
        wrong.extend((one, other) for one, other in zip(given, exact) if one != other)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--backend", help="attention backend")
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--out", help="where tokens and logprobs go")
    parser.add_argument("--against", help="such a file")
    asked = parser.parse_args()
    MLACommonMetadataBuilder.build = checked
    mended.extend([True] * asked.mended)
    backend = {"attention_backend": asked.backend} if asked.backend else {}
    llm = LLM(
        asked.checkpoint, dtype="bfloat16", enforce_eager=True, max_num_seqs=8, max_model_len=256,
        enable_prefix_caching=False, async_scheduling=True, gpu_memory_utilization=0.3,
        speculative_config={"method": "mtp", "num_speculative_tokens": 3}, **backend,
    )  # fmt: skip
    draw = random.Random(11)
    most = llm.llm_engine.model_config.get_vocab_size()
    prompts = [[draw.randrange(16, most) for _ in range(draw.randrange(8, 40))] for _ in range(16)]
    params = SamplingParams(temperature=0, max_tokens=32, repetition_penalty=1.5, logprobs=0)
    outputs = llm.generate([TokensPrompt(prompt_token_ids=one) for one in prompts], params, use_tqdm=False)
    said = [
        [[token, listed[token].logprob] for token, listed in zip(one.outputs[0].token_ids, one.outputs[0].logprobs)]
        for one in outputs
    ]
    if asked.out:
        with open(asked.out, "w") as file:
            json.dump(said, file)
    if asked.against:
        with open(asked.against) as file:
            other = json.load(file)
        alike = [(a, b) for a, b in zip(said, other) if [token for token, _ in a] == [token for token, _ in b]]
        far = [max(abs(x - y) for (_, x), (_, y) in zip(a, b)) for a, b in alike]
        print(f"{len(alike)} of {len(said)} completions have the same tokens, {sum(map(bool, far))} of these other")
        print(f"logprobs, the farthest {max(far, default=0):.3f} nats away")
    print(f"{len(wrong)} of {len(rows)} lengths are wrong; given and exact: {wrong[:8]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
