"""How often is a token that is wrong by itself called another request's?

    python benchmarks/false_donors.py flat|peaked COMPLETIONS SEEDS FIRST_SEED [VIEW ...] [--temperature T]

In a fifth of the rows of a run (tests/worlds) one, two or three tokens are others: random ones, some that the run says
elsewhere, or the second best ones; the engine goes on after them, or as if nothing had happened. No other request has
to do with it, so each `row_leak` names somebody falsely. VIEW: what is known (`worlds.seen_as`), by default all, and
five logprobs listed and nothing scored. The rows that are
found are counted beside the names.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ.get("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from worlds import BASE, FLAT, PEAKED, Fault, World, speculating
from worlds.choosing import Lapse
from worlds.faults import Damage, Damaged, substitute
from worlds.model import EOS
from worlds.seen_as import VIEWS
from worlds.trials import Trial, judge
from worlds.world import WORDS

from parity.comparator import CompareOptions
from parity.records import Kind, TopLogprobs

SHAPES = {"flat": FLAT, "peaked": PEAKED}
TOKENS = 64
SHARE = 0.2
KINDS = ("unjustified", "garbled")


def of_pool(count: int, pool: Sequence[int]) -> Damage:
    """So many tokens in a row replaced by tokens of `pool`."""

    def damage(rng: random.Random, tokens: Sequence[int], donor: Sequence[int], vocabulary: int) -> Damaged:
        most = max(1, len(tokens) - count)
        place = rng.randrange(min(2, most - 1) if most > 1 else 0, most)
        wrong = list(tokens[place : place + count])
        for at, usual in enumerate(wrong):
            while wrong[at] in (EOS, usual):
                wrong[at] = rng.choice(pool)
        return Damaged((*tokens[:place], *wrong, *tokens[place + count :]), place, place + count)

    return damage


def faults(seed: int, pool: Sequence[int]) -> Iterator[tuple[str, Fault]]:
    for count in (1, 2, 3):
        for name, damage in (("random", substitute(count)), ("common", of_pool(count, pool))):
            for goes_on in (False, True):
                size = f"{count}, engine goes on" if goes_on else str(count)
                yield f"{name} {size}", Fault(name, size, "rows", KINDS, damage=damage, again=goes_on, share=SHARE)
        at = random.Random(f"{seed}{count}").randrange(4, 40)
        lapse = Lapse(second=True, start=at, stop=at + count)
        yield f"second best {count}", Fault("second", str(count), "rows", KINDS, lapse=lapse, share=SHARE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    for name in ("completions", "seeds", "first_seed"):
        parser.add_argument(name, type=int)
    parser.add_argument("views", nargs="*", default=["scored", "lists, unscored"])
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    shape, completions, seeds, first = options.shape, options.completions, options.seeds, options.first_seed
    views, rules = options.views, {"temperature": options.temperature}
    hit: Counter[str] = Counter()
    named: Counter[tuple[str, str]] = Counter()
    found: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        world = World(seed, SHAPES[shape])
        asked = world.requests(completions)
        base = world.run(asked, BASE, max_tokens=TOKENS, logprobs=5, **rules).capture
        pool = [token for one in base for token in one.token_ids.tolist()]
        known: dict[bytes, TopLogprobs] = {}
        for name, greedy in faults(seed, pool):
            fault = replace(greedy, rules=rules)
            made = world.run(asked, speculating(2), fault=fault, fault_seed=seed, max_tokens=TOKENS, logprobs=5)
            scores = world.score(base, made.capture, known=known)
            whole = Trial(name, seed, base, made.capture, scores, made.truth, CompareOptions(detokenize=WORDS))
            hit[name] += len(made.truth.rows)
            for view in views:
                said = judge(VIEWS[view](whole))
                found[view] += said.found
                leaks = [one for one in said.result.findings if one.kind is Kind.ROW_LEAK]
                named[name, view] += sum(one.key in made.truth.rows for one in leaks)
                for one in leaks:
                    print(
                        f"  {name}, {view}, seed {seed}: {one.key} at {one.position}: {one.evidence.why}",
                        file=sys.stderr,
                    )
    print("| wrong tokens | rows | " + " | ".join(f"named, {view}" for view in views) + " |")
    print("|---" * (2 + len(views)) + "|")
    for name, rows in hit.items():
        print(f"| {name} | {rows:,} | " + " | ".join(str(named[name, view]) for view in views) + " |")
    totals = [
        f"{sum(count for (_, one), count in named.items() if one == view)} (of {found[view]:,} found)" for view in views
    ]
    print(f"| all | {hit.total():,} | " + " | ".join(totals) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
