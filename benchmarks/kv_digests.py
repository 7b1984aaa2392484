"""What digests of keys and values cost in each step of `--sketch`.

    python benchmarks/kv_digests.py [--rows 4,64,256] [--layers 32] [--heads 8] [--width 128] [--tokens 128]
        [--steps 50]

Without an engine: caches of random numbers in blocks of 16 tokens, and requests of so many tokens in them. A step
digests what a request's tokens have as it begins, what they have as it ends, and what the next one looks at. Says the
milliseconds of a processor that all three take: the median of the steps.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from parity_backends.vllm.worker.kv_digests import KeyValueDigests

BLOCK = 16
"""Tokens of a block."""

CACHES = 4
"""Layers that have one of their own; the others have theirs in turns, so that the benchmark fits into memory."""


def milliseconds(rows: int, layers: int, numbers: int, tokens: int, steps: int) -> list[float]:
    """Of each step; numbers: of an entry, keys and values of all heads."""
    rng = np.random.default_rng(0)
    each = -(-(tokens + steps) // BLOCK)
    caches = [rng.integers(-(2**15), 2**15, (rows * each, BLOCK * numbers), dtype=np.int16) for _ in range(CACHES)]
    where = np.arange(BLOCK * numbers).reshape(BLOCK, numbers)
    digests = KeyValueDigests([(caches[layer % CACHES], where) for layer in range(layers)], BLOCK, BLOCK)
    blocks = [list(map(int, one)) for one in rng.permutation(rows * each).reshape(rows, each)]
    parts: list[object] = [None] * rows
    spent = []
    for step in range(steps):
        began = time.process_time()
        found = digests.of(parts, blocks)
        if not np.array_equal(found, digests.of(parts, blocks)):
            raise AssertionError("what nobody wrote over has another digest")
        parts = list(digests.turn(step, [tokens + step] * rows))
        digests.of(parts, blocks)
        spent.append(1000 * (time.process_time() - began))
    return spent[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="4,64,256")
    for name, value in (("layers", 32), ("heads", 8), ("width", 128), ("tokens", 128), ("steps", 50)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    for rows in map(int, asked.rows.split(",")):
        spent = milliseconds(rows, asked.layers, 2 * asked.heads * asked.width, asked.tokens, asked.steps)
        print(f"{rows} rows, {asked.layers} layers: {statistics.median(spent):.2f} ms a step (most {max(spent):.2f})")


if __name__ == "__main__":
    main()
