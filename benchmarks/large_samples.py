"""Is a clean arm accused in a large run drawn at random, for no more than that its kernels round otherwise?

    python benchmarks/large_samples.py [--tokens 4000000] [--first-seed 1000] [--json FILE]

A run of so many tokens an arm for each shape of the small engine of tests/worlds, at temperature 1: 16 samples of each
request, drawn independently by arms that add up in other orders. Exit code 1 where anything is found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ.get("OPENBLAS_NUM_THREADS", "1")  # small products: threads would wait
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from worlds import BASE, FLAT, PEAKED, SURE, Shape, World, speculating

from parity.comparator import compare

SHAPES = {"flat": FLAT, "peaked": PEAKED, "sure": SURE}
SAMPLES = 16
LENGTH = 128


def judged(name: str, shape: Shape, seed: int, tokens: int) -> dict[str, Any]:
    world = World(seed, shape)
    rules: dict[str, Any] = {"temperature": 1.0, "max_tokens": LENGTH, "ignore_eos": True, "n": SAMPLES}
    asked = world.requests(max(8, tokens // (LENGTH * SAMPLES)))
    base, other = (world.run(asked, arm, **rules).capture for arm in (BASE, speculating(2)))
    result = compare(base, other, world.score(base, other))
    assert result.stats.sampling
    return {
        "shape": name,
        "tokens": result.stats.tokens,
        "verdict": str(result.verdict),
        "corrupt": len(result.corrupt),
        "allowed": result.stats.sampling.allowed_for_rounding,
        "p_values": dict(result.stats.sampling.p_values),
        "numerics": result.stats.numerics.to_json() if result.stats.numerics else None,
    }


def show(row: dict[str, Any]) -> None:
    test, least = min(row["p_values"].items(), key=lambda one: float(one[1]))
    cells = [row["shape"], f"{row['tokens']:,}", f"{row['allowed']:.5f}", f"{least:.3g} ({test})"]
    cells += [f"{row['p_values'].get('likelihood', 1.0):.3g}", str(row["corrupt"]), row["verdict"]]
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    print("| shape | tokens | allowed, nats | smallest p-value | likelihood | corrupt | verdict |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for number, (name, shape) in enumerate(SHAPES.items()):
        rows.append(judged(name, shape, asked.first_seed + number, asked.tokens))
        show(rows[-1])
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["corrupt"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
