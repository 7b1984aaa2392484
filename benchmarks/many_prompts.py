"""Many short prompts, cut out of the documentation, for clean runs of a real engine.

    python benchmarks/many_prompts.py > prompts.txt        # --count 400, --seed 5
    parity run --backends cpu --prompts prompts.txt --max-tokens 96
    parity run --backends cpu --prompts prompts.txt --max-tokens 3
    parity run --backends cpu --prompts prompts.txt --max-tokens 48 --repetition-penalty 1.15 --rounds 2 -k 3
    parity model tiny --arch deepseek_v3 -o build/tiny-deepseek
    parity run --backends cpu --prompts prompts.txt --max-tokens 96 --model build/tiny-deepseek

None of them may accuse anybody: what is compared is one engine with and without speculation.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
LENGTHS = (3, 5, 8, 12, 20, 30, 45, 60)
"""Words of a prompt."""


def prompts(count: int, seed: int) -> list[str]:
    """A prompt is some words in a row of the English pages."""
    pages = (page for page in sorted(DOCS.glob("*.md")) if not page.name.endswith(".zh.md"))
    words = " ".join(page.read_text(encoding="utf-8") for page in pages).split()
    rng = random.Random(seed)
    sizes = [rng.choice(LENGTHS) for _ in range(count)]
    starts = [rng.randrange(len(words) - size) for size in sizes]
    return [" ".join(words[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=5)
    asked = parser.parse_args()
    print("\n".join(prompts(asked.count, asked.seed)))


if __name__ == "__main__":
    main()
