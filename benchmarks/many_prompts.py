"""Many short prompts, cut out of the documentation, for clean runs of a real engine.

    python benchmarks/many_prompts.py > prompts.txt        # --count 400, --seed 5
    parity run --backends cpu --prompts prompts.txt --max-tokens 96
    parity run --backends cpu --prompts prompts.txt --max-tokens 3
    parity run --backends cpu --prompts prompts.txt --max-tokens 48 --repetition-penalty 1.15 --rounds 2 -k 3
    parity model tiny --arch deepseek_v3 -o build/tiny-deepseek
    parity run --backends cpu --prompts prompts.txt --max-tokens 96 --model build/tiny-deepseek
    python benchmarks/many_prompts.py --count 200 --seed 11 --words 4,10,40,180,260,320 > long.txt
    python benchmarks/many_prompts.py --commands           # more of them, a line each

None of them may accuse anybody: what is compared is one engine with and without speculation.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
LENGTHS = (3, 5, 8, 12, 20, 30, 45, 60)
"""Words of a prompt."""

OBJECT = """'json={"type":"object","properties":{"name":{"type":"string","maxLength":12},"n":{"type":"integer"}},""" + (
    """"required":["name","n"]}'"""
)

RUNS = (
    "--backends cpu --max-tokens 64 --stop the --stop .",
    "--backends cpu --max-tokens 64 --bad-words the --bad-words parity --bad-words ' a'",
    "--backends cpu --max-tokens 64 --min-tokens 40 --logprobs 5",
    "--backends cpu --max-tokens 96 --churn heavy",
    "--backends cpu --max-tokens 96 --output-lengths 8:96 --rounds 2 --shuffle --max-num-seqs 32",
    "--backends cpu --max-tokens 64 --presence-penalty 0.5 --frequency-penalty 0.3 -k 1",
    "--backends cpu --max-tokens 64 --repetition-penalty 1.3",
    "--backends cpu --max-tokens 64 --record -k 3",
    "--backends cpu --max-tokens 384 --max-num-seqs 64",
    "--backends cpu --max-tokens 64 --stop e --include-stop-str-in-output --min-tokens 8",
    "--backends cpu --max-tokens 64 --tolerance auto --score-top 20 --logprobs 20",
    "--backends cpu --max-tokens 64 --vary max_num_batched_tokens=64,2048",
    "--backends cpu,cpu-v2 --variants base --max-tokens 96",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 64 --temperature 0.8",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 64 --temperature 1 --top-p 0.9",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 64 --temperature 1 --top-k 20 --min-p 0.02",
    "--backends cpu --vary max_num_seqs=16,256 --variants base --max-tokens 32 --temperature 0.7 --top-k 40 --n 4",
    "--backends cpu --vary max_num_seqs=16,64 --variants base --max-tokens 32 --temperature 0.6 --rounds 3 --shuffle",
    "--backends cpu --max-tokens 96 --ignore-eos -k 4",
    "--backends cpu --max-tokens 64 --max-num-batched-tokens 24 --max-num-seqs 8",
    "--backends cpu --max-tokens 96 --max-num-batched-tokens 16 --max-num-seqs 4 -k 1",
    "--backends cpu --max-tokens 24 --rounds 2 --samples 2 -k 4 --churn light",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 64 "
    "--logit-bias 11=4 --logit-bias 200=-3 --logit-bias 300=2.5",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 48 --temperature 0.8 "
    "--logit-bias 11=3 --logit-bias 200=-3",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 48 --temperature 0.9 --logprobs 5",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 48 --temperature 1.1 --min-p 0.05",
    "--backends cpu --vary max_num_seqs=32,64 --variants base --max-tokens 48 --temperature 1.1 --min-p 0.05 --seed 1",
    "--backends cpu --vary max_num_seqs=32,64 --variants base --max-tokens 48 --temperature 1.1 --min-p 0.05 --seed 2",
    "--backends cpu --vary max_num_seqs=32,64 --variants base --max-tokens 48 --temperature 0.8 --seed 1",
    "--backends cpu --vary max_num_seqs=32,64 --variants base --max-tokens 48 --temperature 0.8 --seed 2",
    "--backends cpu --vary max_num_seqs=32,64 --variants base --max-tokens 48 --temperature 1 --top-p 0.9 --top-k 50 "
    "--logprobs 3 --seed 1",
    "--backends cpu --vary max_num_seqs=16,64 --variants base --max-tokens 24 --temperature 0.8 --n 2 --rounds 2 "
    "--shuffle --top-p 0.95",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 48 --temperature 0.9 --min-p 0.1 "
    "--repetition-penalty 1.1",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 48 --temperature 0.9 --stop the "
    "--min-tokens 6 --logprobs 3",
    f"--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 64 --structured-outputs {OBJECT}",
    "--backends cpu --vary max_num_seqs=8,64 --variants base --max-tokens 64 --temperature 0.9 "
    f"--structured-outputs {OBJECT}",
    "--backends cpu,ascend-emulated --max-tokens 48",
    "--backends cpu,ascend-emulated --variants base --max-tokens 48 --temperature 0.8",
    "--backends cpu,ascend-emulated --variants base --max-tokens 48 --max-num-seqs 8 --repetition-penalty 1.2",
    "--backends cpu --variants base --server tiny=$URL --max-tokens 48",
    "--backends cpu --variants base --server tiny=$URL --max-tokens 48 --logprobs 5",
    "--backends cpu --variants base --server tiny=$URL --max-tokens 48 --logprobs 0 --stop the "
    "--server-option stream=true",
    "--backends cpu --variants base --server tiny=$URL --max-tokens 48 --logprobs 0 --repetition-penalty 1.2",
    "--backends cpu --variants base --server tiny=$URL --max-tokens 48 --logprobs 0 --temperature 0.8",
)
"""Options of further clean runs. $URL: `vllm serve` on the same checkpoint, with speculation but for the last, whose
drawn tokens it would spoil (docs/adapters.md)."""

LONG = (
    "--backends cpu --max-tokens 64 -k 3",
    "--backends cpu --variants base --vary enable_prefix_caching=false,true --max-tokens 64",
    "--backends cpu --variants base --vary max_num_seqs=8,32 --max-tokens 48 --temperature 1",
)
"""Options of clean runs with long.txt."""


def prompts(count: int, seed: int, lengths: Sequence[int] = LENGTHS) -> list[str]:
    """A prompt is some words in a row of the English pages."""
    pages = (page for page in sorted(DOCS.glob("*.md")) if not page.name.endswith(".zh.md"))
    words = " ".join(page.read_text(encoding="utf-8") for page in pages).split()
    rng = random.Random(seed)
    sizes = [rng.choice(lengths) for _ in range(count)]
    starts = [rng.randrange(len(words) - size) for size in sizes]
    return [" ".join(words[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--words", default=",".join(map(str, LENGTHS)), help="how many a prompt may have")
    parser.add_argument("--commands", action="store_true", help="more clean runs, a command a line")
    asked = parser.parse_args()
    if asked.commands:
        files = [("prompts.txt", options) for options in RUNS] + [("long.txt", options) for options in LONG]
        print("\n".join(f"parity run --prompts {file} {options}" for file, options in files))
        return
    print("\n".join(prompts(asked.count, asked.seed, [int(size) for size in asked.words.split(",")])))


if __name__ == "__main__":
    main()
