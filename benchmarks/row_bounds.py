"""Single rows drawn at another temperature: how many can be found at all, and how many are?

    python benchmarks/row_bounds.py [--shape flat peaked rough] [--rows 400] [--among 128] [--first-seed 4500000]

Rows of the small engine of tests/worlds, all drawn at a wrong temperature. The bound: the share of them that the most
powerful test finds of a row that is one of `--among`, with a chance of 1 in 1,000 that it accuses any (Neyman, Pearson:
the likelihood ratio of the whole row; its tail for rows drawn as asked by importance sampling), which knows both
temperatures, the first token, and the whole distribution, or the 20 best tokens of it. Beside it: what parity's bets
find of the same rows by lists of 20.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ.get("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import numpy as np
from drawn_rows import OTHERS, PAIRS, SHAPES
from worlds import BASE, World
from worlds.decoding import Forced, force
from worlds.engine import Arm
from worlds.world import PREFILL

from parity.comparator.reference.drawn_lists import Cut, draws_of
from parity.comparator.reference.temperature import GREEDY, HEDGE, bets
from parity.comparator.statistics import FloatArray
from parity.records import Completion, TopLogprobs

ALPHA = 0.001
LISTED = 20
TOKENS = (64, 256)


def ratio(scored: Forced, tokens: np.ndarray, asked: float, got: float, listed: int) -> float:
    """Log of the likelihood ratio of a row; what is not listed is one outcome. Greedy decoding with HEDGE, as rounding
    puts another token first."""
    values, ids = scored.values[: len(tokens), :-1], scored.ids[: len(tokens), :-1]
    place = (ids == tokens[:, None]).argmax(axis=1)

    def likelihood(temperature: float) -> FloatArray:
        weights = np.exp((values - values[:, :1]) / temperature)
        gathered = np.concatenate([weights[:, :listed], weights[:, listed:].sum(axis=1, keepdims=True)], axis=1)
        chosen = gathered[np.arange(len(tokens)), np.minimum(place, listed)]
        return np.log(np.maximum(chosen / gathered.sum(axis=1), 1e-300))

    mine, other = likelihood(asked), likelihood(got or GREEDY)
    if not got:
        other = np.logaddexp(np.log(1 - HEDGE) + other, np.log(HEDGE) + mine)
    return float((other - mine).sum())


def most_found(logs: FloatArray, level: float) -> float:
    """The share of rows above the threshold that rows drawn as asked pass with this chance: it is the mean of
    1 / ratio over those that are not."""
    above = np.sort(logs)[::-1]
    return float((np.cumsum(np.exp(-np.clip(above, -700, 700))) / len(above) <= level).mean())


def won(scored: Forced, row: Completion, tokens: int) -> TopLogprobs:
    """The score as lists of LISTED, and the chosen token."""
    chosen = row.token_ids[:tokens]
    ids, values = scored.ids[: len(chosen)], scored.values[: len(chosen)]
    own = np.where(ids == chosen[:, None], values, -np.inf).max(axis=1)
    apart = ~(ids[:, :LISTED] == chosen[:, None]).any(axis=1)
    last = np.where(apart, chosen, -1)[:, None], np.where(apart, own, np.nan)[:, None]
    return TopLogprobs(np.concatenate([ids[:, :LISTED], last[0]], 1), np.concatenate([values[:, :LISTED], last[1]], 1))


def lines(shape: str, rows: int, among: int, seed: int) -> Iterator[str]:
    world = World(seed, SHAPES[shape])
    requests = world.requests(rows)
    for asked, got in PAIRS:
        made = list(world.run(requests, BASE, max_tokens=max(TOKENS), temperature=got).capture)
        pairs = [(tuple(one.prompt_token_ids.tolist()), one.token_ids) for one in made]
        scored = force(world.model, Arm("cuda/base", PREFILL), pairs, top=len(world))
        for tokens in TOKENS:
            both = list(zip(scored, made, strict=True))
            logs = [
                np.array([ratio(said, one.token_ids[:tokens], asked, got, listed) for said, one in both])
                for listed in (len(world), LISTED)
            ]
            draws = [draws_of(won(said, one, tokens), one.token_ids[:tokens], LISTED, len(world))[0]
                     for said, one in both]  # fmt: skip
            bet = [0.0 if one is None else one.log_won for one in bets(draws, asked, Cut())]
            found = float((np.array(bet) >= np.log(among / ALPHA)).mean())
            bounds = [most_found(one, ALPHA / among) for one in logs]
            cells = [f"{OTHERS[got]} for {asked:g}", shape.upper(), str(tokens), f"{logs[0].mean():.1f}"]
            yield "| " + " | ".join([*cells, *(f"{one:.0%}" for one in (*bounds, found))]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--among", type=int, default=128)
    parser.add_argument("--first-seed", type=int, default=4_500_000)
    options = parser.parse_args()
    print("| drawn at | model | tokens | nats a row | bound, all listed | bound, 20 listed | found |")
    print("|---" * 7 + "|")
    for shape in options.shape:
        for line in lines(shape, options.rows, options.among, options.first_seed):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
