"""How often does a watch that nothing is wrong with raise an alarm, and how soon does it see a change?

    python benchmarks/watching.py numbers [--years 200] [--looks 8760]   the evidence alone, on numbers of many kinds
    python benchmarks/watching.py probes [--looks 8760] [--seeds 2]   whole probes, compared as `parity watch` does
    python benchmarks/watching.py slow [--looks 2000] [--drift 0.1] [--ramp 1]   probes that drift from the middle on

A year of hourly looks is 8,760. `numbers` follows series in which nothing changes and counts the years in which their
evidence passed 10, 100 and 1,000 at any look (a martingale passes 1 / alpha with a chance of alpha at most), then the
looks that a shift needs. `probes` and `slow` let the small engine of tests/worlds answer the same requests at every
look, with sums in another order each time as a server's batches have them.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ.get("OPENBLAS_NUM_THREADS", "1")  # small products: threads would wait
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import numpy as np
import numpy.typing as npt
from worlds import BASE, FLAT, PEAKED, World
from worlds.engine import SOUND, Arm
from worlds.rounding import Orders
from worlds.world import WORDS

from parity.comparator import DEFAULT_ALPHA, CompareOptions, compare
from parity.comparator.martingale import POWERS, Series, _not_begun
from parity.comparator.statistics import spent
from parity.records import Capture, TopLogprobs, Verdict
from parity.watch.evidence import NOTHING_YET, Change

Floats = npt.NDArray[np.float64]
PASSED = (10.0, 100.0, 1000.0)


# ------------------------------------------------------------------ numbers


def ranks(values: Floats) -> tuple[Floats, Floats]:
    """Of each value among those before it: the shares, itself included, that are as large or larger, and as small or
    smaller; each of the shape of `values`, (years, looks)."""
    levels, codes = np.unique(values, return_inverse=True)
    codes = codes.reshape(values.shape)
    upper, lower = np.empty(values.shape), np.empty(values.shape)
    for year, row in enumerate(codes):
        tree = np.zeros(len(levels) + 1, dtype=np.int64)  # counts by level, as a Fenwick tree
        for look, code in enumerate(row.tolist()):
            up_to, below = _summed(tree, code + 1), _summed(tree, code)
            upper[year, look] = (look - below + 1) / (look + 1)
            lower[year, look] = (up_to + 1) / (look + 1)
            at = code + 1
            while at < len(tree):
                tree[at] += 1
                at += at & -at
    return upper, lower


def _summed(tree: npt.NDArray[np.int64], at: int) -> int:
    total = 0
    while at > 0:
        total += int(tree[at])
        at -= at & -at
    return total


def evidence(upper: Floats, lower: Floats) -> Floats:
    """Natural logarithm of `Series.log_e` after each look, shape (years, looks): the same sum over beginnings, one look
    after the other."""
    years, looks = upper.shape
    powers = np.array(POWERS)
    log_p = np.log(np.stack([upper, lower], axis=1))
    begun = np.full((years, 2, len(powers)), -np.inf)
    found = np.empty((years, looks))
    for look in range(looks):
        weight = math.log(_not_begun(look) - _not_begun(look + 1))
        step = np.log(powers) + (powers - 1) * log_p[:, :, look, None]
        begun = np.logaddexp(begun, weight) + step
        mixed = np.logaddexp.reduce(begun.reshape(years, -1), axis=1) - math.log(2 * len(powers))
        found[:, look] = np.logaddexp(mixed, math.log(_not_begun(look + 1)))
    return found


KINDS = {
    "normal": lambda rng, size: rng.normal(size=size),
    "heavy tails (t, 2)": lambda rng, size: rng.standard_t(2, size=size),
    "mostly 0": lambda rng, size: rng.poisson(0.05, size=size).astype(float),
    "counts": lambda rng, size: rng.binomial(64, 0.05, size=size) / 64,
}


def numbers(years: int, looks: int) -> None:
    rng = np.random.default_rng(13)
    for name, draw in KINDS.items():
        values = draw(rng, (years, looks))
        found = evidence(*ranks(values))
        check(values[0, :200], found[0, :200])
        most = found.max(axis=1)
        passed = ", ".join(f"{limit:,.0f} in {int((most >= math.log(limit)).sum())}" for limit in PASSED)
        print(f"{name}: {years} years of {looks:,} looks; evidence passed {passed}; most {math.exp(most.max()):.3g}")
    print("a shift after so many looks, in standard deviations: looks until it is seen, median and slowest of 50")
    for before in (100, 400, 2000):
        for shift in (1.0, 2.0, 4.0):
            values = rng.normal(size=(50, before + 400))
            values[:, before:] += shift
            found = evidence(*ranks(values)) >= math.log(4 / DEFAULT_ALPHA)
            late = np.where(found.any(axis=1), found.argmax(axis=1) - before + 1, np.inf)
            print(f"    {before:,} looks, {shift:g}: {np.median(late):g}, {late.max():g}")


def check(values: Floats, found: Floats) -> None:
    """That this file's evidence is that of parity."""
    series = Series()
    for value, log_e in zip(values.tolist(), found.tolist(), strict=True):
        series = series.after("", value)
        if abs(series.log_e - log_e) > 1e-6:
            raise AssertionError(f"evidence {log_e} here, {series.log_e} in parity")


# ------------------------------------------------------------------ probes

ASKED: dict[str, dict[str, Any]] = {
    "greedy, scored": {"max_tokens": 48, "logprobs": 0},
    "greedy, a recording with lists": {"max_tokens": 48, "logprobs": 5},
    "drawn, scored": {"max_tokens": 24, "logprobs": 0, "temperature": 0.8},
}


def answers(
    world: World, asked: Any, rng: np.random.Generator, drift: Callable[[int], float], sampling: dict[str, Any]
) -> Iterator[Capture]:
    """The server's captures, look after look; `drift`: a bias of some logits at a look, in nats."""
    for look in itertools.count(1):
        splits = tuple(int(one) for one in rng.choice([1, 2, 4], 6))
        orders = Orders(splits, int(rng.integers(1, 4)), int(rng.choice([1, 2, 4, 8, 16])))
        arm = Arm("server/live", orders, draws=int(rng.integers(1 << 30)), broken=replace(SOUND, bias=drift(look)))
        yield world.run(asked, arm, **sampling).capture


def watched(name: str, seed: int, looks: int, drift: Callable[[int], float]) -> None:
    world = World(seed, FLAT if seed % 2 else PEAKED)
    asked = world.requests(16)
    sampling, rng = ASKED[name], np.random.default_rng([seed, 13])
    baseline = world.run(asked, replace(BASE, name="server/golden"), **sampling).capture
    known: dict[bytes, TopLogprobs] = {}
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    found, began, first = NOTHING_YET, time.monotonic(), None
    changes: tuple[Change, ...] = ()
    for look, capture in enumerate(itertools.islice(answers(world, asked, rng, drift, sampling), looks), start=1):
        scores = {} if "recording" in name else world.score(baseline, capture, known=known)
        options = CompareOptions(alpha=spent(DEFAULT_ALPHA, look), detokenize=WORDS)
        result = compare(baseline, capture, scores, options)
        counts[str(result.verdict)] += 1
        kinds.update(str(one.kind) for one in result.corrupt)
        if first is None and result.verdict is Verdict.DIVERGED:
            first = look
        found = found.after(str(look), {"server/live": result.stats})
        if not changes and (changes := found.changes()):
            print(f"    look {look}: {changes[0].sentence}", flush=True)
        if look % 1000 == 0 or look == looks:
            most = {measure: round(one.log_e / math.log(10), 2) for (_, measure), one in found.series.items()}
            print(
                f"{name}, seed {seed}: {look:,} probes, {dict(counts)}, findings {dict(kinds)}, first DIVERGED "
                f"{first}, log10 of the evidence {most}; {time.monotonic() - began:.0f} s",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("numbers", "probes", "slow"))
    parser.add_argument("--years", type=int, default=200)
    parser.add_argument("--looks", type=int, default=8760)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--drift", type=float, default=0.1, help="nats, at the end of the ramp")
    parser.add_argument("--ramp", type=int, default=1, help="looks over which it grows")
    given = parser.parse_args()
    if given.what == "numbers":
        numbers(given.years, given.looks)
        return
    begins, slope = given.looks // 2, given.drift / max(1, given.ramp) if given.what == "slow" else 0.0

    def drift(look: int) -> float:
        return slope * min(max(0, look - begins), max(1, given.ramp))

    for name in (one for one in ASKED if given.only in one):
        for seed in range(given.seeds):
            watched(name, seed, given.looks, drift)


if __name__ == "__main__":
    main()
