"""How fast two drawn captures are compared: every completion scored, with the chosen tokens' own logprobs.

    python benchmarks/drawn_speed.py [--completions 512] [--length 512] [--listed 20] [--vocabulary 32000]

Tokens are drawn at temperature 1 from lists of fixed shape over random ids, so that both arms are sound. Processor
seconds, the median of three.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
from compare_speed import ARMS, clocks, header, timed

from parity.comparator import CompareOptions, compare
from parity.records import Capture, Completion, Key, ScoreKey, TopLogprobs

FALL = 0.6
"""Nats from each listed token to the next."""

LEFT_OUT = 0.02
"""Share of the probability that the lists leave out."""

NOISE = 0.01
"""Nats by which the engine's own logprobs lie off the scores."""


def captures(
    count: int, length: int, listed: int, vocabulary: int, seed: int = 0
) -> tuple[Capture, Capture, dict[ScoreKey, TopLogprobs]]:
    """Baseline, candidate and the scores of both; completions of `length` tokens, lists of `listed`."""
    rng = np.random.default_rng(seed)
    chance = np.exp(-FALL * np.arange(listed))
    chance /= chance.sum()
    logs = np.log(chance * (1.0 - LEFT_OUT))
    sides: tuple[dict[Key, Completion], dict[Key, Completion]] = ({}, {})
    scores: dict[ScoreKey, TopLogprobs] = {}
    for index in range(count):
        key, prompt = Key(f"p{index}", 0, 0), rng.integers(3, vocabulary, 16)
        for arm, side in zip(ARMS, sides, strict=True):
            steps = rng.integers(1, (vocabulary - 4) // listed, (length, listed))
            ids = rng.permuted(3 + np.cumsum(steps, axis=1), axis=1)  # no id twice
            column = rng.choice(listed, length, p=chance)
            tokens = ids[np.arange(length), column]
            own = (logs[column] + rng.normal(0, NOISE, length))[:, None]
            top = TopLogprobs(tokens[:, None].copy(), np.minimum(own, 0.0))
            side[key] = Completion(key, prompt, tokens, None, "length", None, logprobs=top)
            scores[ScoreKey(arm, *key)] = TopLogprobs(ids, np.tile(logs, (length, 1)))
    made = [
        Capture(replace(one, sampling={"temperature": 1.0, "max_tokens": length, "n": 1, "seed": 1}), side, {}, {})
        for one, side in zip((header(arm, length) for arm in ARMS), sides, strict=True)
    ]
    return made[0], made[1], scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=512)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--listed", type=int, default=20)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    options = parser.parse_args()
    clocks.append(time.process_time)
    baseline, candidate, scores = captures(options.completions, options.length, options.listed, options.vocabulary)
    found = compare(baseline, candidate, scores, CompareOptions())
    seconds = timed(lambda: compare(baseline, candidate, scores, CompareOptions()))
    rate = options.completions * options.length / seconds
    print(f"{found.verdict}: {seconds:.2f} s of a processor, {rate / 1e3:.1f} thousand tokens/s a side")


if __name__ == "__main__":
    main()
