"""In how few tokens an 8-bit KV cache of a GPU is seen by the logprobs alone.

    python benchmarks/few_tokens.py [--seeds 40] [--tokens 1000,1500,2500,4000]

The captures are tests/data/h200/fp8: vLLM 0.23.0 on an NVIDIA H200, the embedded checkpoint, 128 completions an arm,
scored on the same card by the engine without drafts. `fp8kv` has `kv_cache_dtype=fp8`, and says so; in `kv_fp8` keys
and values are rounded to e4m3 where nothing says it (the fault lab, with two drafts); `mtp` has two drafts and is
sound. Of each, completions are drawn until they have so many tokens, and compared with the same ones of `base`.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

from parity.capture import read_capture, read_scores
from parity.comparator import compare
from parity.records import Capture, Key, Kind, Scores

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "h200" / "fp8"
ARMS = {"fp8kv": "cuda-fp8kv", "kv_fp8": "cuda-mtp-control-kv_fp8", "mtp": "cuda-mtp"}


def read(name: str) -> Capture:
    return read_capture(DATA / f"{name}.jsonl.gz")


def drawn(capture: Capture, tokens: int, seed: int) -> list[Key]:
    """Completions of so many tokens, in an order of the seed's."""
    keys = sorted(capture.completions)
    random.Random(seed).shuffle(keys)
    kept: list[Key] = []
    for key in keys:
        if sum(len(capture.completions[one].token_ids) for one in kept) >= tokens:
            break
        kept.append(key)
    return kept


def part(capture: Capture, keys: list[Key]) -> Capture:
    return replace(capture, completions={key: capture.completions[key] for key in keys})


def seen(base: Capture, candidate: Capture, scores: Scores, tokens: int, seed: int) -> tuple[bool, str]:
    """Whether the numerics of the arm are a finding in these tokens, and the verdict."""
    keys = drawn(candidate, tokens, seed)
    found = compare(part(base, keys), part(candidate, keys), scores)
    return any(one.kind is Kind.NUMERICS for one in found.findings), str(found.verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--tokens", default="1000,1500,2500,4000", help="numbers of tokens, by commas")
    args = parser.parse_args()
    base, scores = read("cuda-base"), read_scores(DATA / "scores.jsonl.gz")
    for name, file in ARMS.items():
        candidate = read(file)
        for tokens in map(int, args.tokens.split(",")):
            found = [seen(base, candidate, scores, tokens, seed) for seed in range(args.seeds)]
            verdicts = dict(sorted(Counter(verdict for _, verdict in found).items()))
            print(
                f"{name:7} {tokens:5,} tokens: numerics in {sum(one for one, _ in found)} of {args.seeds}; {verdicts}"
            )


if __name__ == "__main__":
    main()
