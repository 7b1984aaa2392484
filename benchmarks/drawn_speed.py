"""How fast two drawn captures are compared: every completion scored, with the chosen tokens' own logprobs.

    python benchmarks/drawn_speed.py [--completions 512] [--length 512] [--listed 20] [--vocabulary 32000]
        [--jobs 2]

Tokens are drawn at temperature 1 from lists of fixed shape over random ids, so that both arms are sound. Processor
seconds, the median of three. With --jobs it is seconds by the clock as well, of one process and of so many in turns,
the best of five each; answers that are not the same to the letter end it with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace

import numpy as np
from compare_speed import ARMS, clocks, header, timed

from parity.comparator import CompareOptions, compare
from parity.comparator.types import alone
from parity.forked import Forked
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


def shared(made: tuple[Capture, Capture, dict[ScoreKey, TopLogprobs]], jobs: int) -> int:
    """In turns: one process, and several."""
    said, best = set(), {1: float("inf"), jobs: float("inf")}
    for _ in range(5):
        for count, spread in ((1, alone), (jobs, Forked(jobs))):
            began = time.perf_counter()
            found = compare(*made, CompareOptions(spread=spread))
            best[count] = min(best[count], time.perf_counter() - began)
            said.add(json.dumps(found.to_json(), default=str))
    print(f"{best[1]:.2f} s by the clock, {best[jobs]:.2f} s with {jobs} processes, {len(said)} different answers")
    return int(len(said) > 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=512)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--listed", type=int, default=20)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    clocks.append(time.process_time)
    baseline, candidate, scores = captures(options.completions, options.length, options.listed, options.vocabulary)
    found = compare(baseline, candidate, scores, CompareOptions())
    seconds = timed(lambda: compare(baseline, candidate, scores, CompareOptions()))
    rate = options.completions * options.length / seconds
    print(f"{found.verdict}: {seconds:.2f} s of a processor, {rate / 1e3:.1f} thousand tokens/s a side")
    return shared((baseline, candidate, scores), options.jobs) if options.jobs > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
