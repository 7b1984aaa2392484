"""Single rows of drawn completions that are wrong: found one by one, named, and of the right arm?

    python benchmarks/drawn_rows.py faults|clean [--shape flat peaked rough] [--requests 64 256] [--tokens 16 64 256]
        [--seeds 4] [--first-seed 4100000] [--only WORD] [--views scored 'no own logprobs'] [--log FILE]

Runs of the small engine of tests/worlds, the candidate's draws of another seed than the baseline's, all scored, and
what their own prompts do not explain scored once more after those of others, as `parity run` does. `faults`:
completions that were swapped, or decoded at another temperature, or that took the logits of a step before or of another
row at some steps. Of the rows hit: found, of a right kind, with the right donor; others accused. Then the same arms the
other way round, where it is the baseline that is wrong: the verdict, and how many of its rows it names. `clean`: both
arms sound, rows and runs that are accused. `--log`: a line for each run, so that the same command goes on after a stop.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ.get("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from wide_hunt import LETTERS, say
from worlds import BASE, FLAT, PEAKED, ROUGH, Fault, World, speculating
from worlds.choosing import Lapse
from worlds.seen_as import VIEWS
from worlds.trials import Judged, Trial, crossed, judge
from worlds.world import WORDS, Truth

from parity.comparator import CompareOptions
from parity.messages import Message
from parity.records import RUN, TopLogprobs

SHAPES = {"flat": FLAT, "peaked": PEAKED, "rough": ROUGH}
TEMPERATURE = ("wrong_temperature", "garbled", "unjustified", "repetition")
FOREIGN = ("row_leak",)
AT_FAULT = ("conclude.baseline_drawn", "conclude.baseline_logprobs", "conclude.baseline_rejected")
"""Reasons that count the baseline's completions."""

ONE = 0.001
"""Share of the rows: the least, which is one row, or one pair."""

SHARES = (0.01, 0.03, 0.05)
"""Of the rows, that are drawn at another temperature."""

PAIRS = ((1.0, 0.0), (0.7, 0.0), (0.7, 1.0), (1.0, 0.7), (1.0, 1.4))
"""Temperatures that were asked for and got."""

OTHERS = {0.0: "greedy", 0.7: "0.7", 1.0: "1", 1.4: "1.4"}

ARM = replace(speculating(2), draws=1)

Seen = Iterator[tuple[str, str, Trial, Trial]]
"""Name, view, trial, and the same with its arms exchanged."""


def faults() -> list[Fault]:
    def at(name: str, asked: float, got: float, share: float) -> Fault:
        size = "one row" if share == ONE else f"{share:.0%} of rows"
        rules = {"temperature": asked}
        return Fault(
            name, size, "drawn", TEMPERATURE, lapse=Lapse(values={"temperature": got}), share=share, rules=rules
        )

    warm = {"temperature": 1.0}
    return [
        Fault("swapped", "one pair", "drawn", FOREIGN, swap=True, share=ONE, rules=warm),
        Fault("swapped", "5% of rows", "drawn", FOREIGN, swap=True, share=0.05, rules=warm),
        *(at(f"{OTHERS[got]} for {asked:g}", asked, got, share) for asked, got in PAIRS for share in SHARES),
    ]


def stale() -> list[Fault]:
    """Logits of another step, or of another row, at one step in so many."""

    def of(whose: str, asked: float, every: int, share: float) -> Fault:
        size = f"1 step in {every}, temperature {asked:g}, " + ("one row" if share == ONE else f"{share:.0%} of rows")
        lapse = Lapse(stale=whose, rate=1 / every)
        return Fault(f"{whose} stale logits", size, "drawn", TEMPERATURE, lapse=lapse, share=share,
                     rules={"temperature": asked})  # fmt: skip

    return [of(whose, asked, every, 0.05) for whose in ("own", "other") for asked in (1.0, 0.0) for every in (10, 50)]


def runs(shape: str, requests: int, tokens: int, seed: int, only: str, views: Sequence[str]) -> Seen:
    """Each fault's run."""
    world = World(seed, SHAPES[shape])
    asked = world.requests(requests)
    known: dict[bytes, TopLogprobs] = {}
    bases: dict[float, Any] = {}
    for fault in [*faults(), *stale()]:
        if only not in f"{fault.name}, {fault.size}":
            continue
        temperature = fault.rules["temperature"]
        if temperature not in bases:
            bases[temperature] = world.run(asked, BASE, max_tokens=tokens, **fault.rules).capture
        base = bases[temperature]
        made = world.run(asked, ARM, fault=fault, fault_seed=seed, max_tokens=tokens)
        scores = world.score(base, made.capture, known=known)
        name = f"{fault.name}, {fault.size}"
        trial = Trial(name, seed, base, made.capture, scores, made.truth, CompareOptions(detokenize=WORDS))
        yield from seen(world, trial, views)


def seen(world: World, trial: Trial, views: Sequence[str]) -> Seen:
    """The trial with less known of it, and the same one with its arms exchanged; what is suspicious is scored once
    more."""
    for view in views:
        some = VIEWS[view](trial)
        other = replace(some, baseline=some.candidate, candidate=some.baseline, truth=Truth())
        yield trial.name, view, crossed(world, some), crossed(world, other)


def sound(shape: str, requests: int, tokens: int, seed: int, only: str, views: Sequence[str]) -> Seen:
    """Sound arms at each temperature."""
    world = World(seed, SHAPES[shape])
    asked = world.requests(requests)
    for temperature in (1.0, 0.7):
        name = f"clean, {temperature:g}"
        if only not in name:
            continue
        same = {"max_tokens": tokens, "temperature": temperature}
        base, made = (world.run(asked, arm, **same).capture for arm in (BASE, ARM))
        scores = world.score(base, made)
        trial = Trial(name, seed, base, made, scores, Truth(), CompareOptions(detokenize=WORDS))
        yield from seen(world, trial, views)


def row_of(trial: Trial, exchanged: Trial) -> dict[str, Any]:
    """What is said of a run, and of the same one with its arms exchanged."""
    said, rows, other = judge(trial), trial.truth.rows, judge(exchanged)
    return {
        "hit": len(rows), "verdict": LETTERS[said.result.verdict], "found": said.found, "kind": said.kind,
        "donors": sum(hit.donor is not None for hit in rows.values()), "donor": said.donor, "asked": len(trial.crossed),
        "accused": sorted({f"{one.key} {one.kind}" for one in said.accused}),
        "of_run": sorted({f"{one.kind}" for one in said.of_run}),
        "lost": [str(key) for key in rows if not any(one.key == key for one in said.result.corrupt)],
        "at_fault": LETTERS[other.result.verdict], "named": named(other),
        "blamed": sorted({f"{one.kind} {'run' if one.request == RUN else one.key}" for one in other.result.corrupt}),
        "because": sorted({one.id for one in other.result.reasons}),
        "passed": str(said.result.reasons[0]) if LETTERS[said.result.verdict] == "P" else "",
    }  # fmt: skip


def named(judged: Judged) -> int:
    """Completions of the baseline that the verdict says are not as asked."""
    found = (one.parameters.get("completions") for one in judged.result.reasons if one.id in AT_FAULT)
    return sum(int(str(one.parameters["count"])) for one in found if isinstance(one, Message))


def collect(options: argparse.Namespace) -> list[dict[str, Any]]:
    log = options.log
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    done = {(row["shape"], row["requests"], row["tokens"], row["seed"]) for row in rows}
    make = runs if options.what == "faults" else sound
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for shape in options.shape:
            for requests in options.requests:
                for tokens in options.tokens:
                    where = {"shape": shape, "requests": requests, "tokens": tokens, "seed": seed}
                    if tuple(where.values()) in done:
                        continue
                    some = [
                        {"fault": name, "view": view, **where, **row_of(trial, other)}
                        for name, view, trial, other in make(shape, requests, tokens, seed, options.only, options.views)
                    ]
                    rows += some
                    if log:
                        with log.open("a") as file:
                            file.writelines(json.dumps(row) + "\n" for row in some)
                    say(f"{shape}, {requests} x {tokens}, seed {seed}")
    return rows


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    print(
        "| fault | known | model | completions x tokens | verdicts | rows hit | found | kind right | donor right ",
        end="",
    )
    print("| others accused | baseline at fault: verdicts | rows named | candidate accused |")
    print("|---" * 13 + "|")
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["fault"], row["view"], row["shape"], row["requests"], row["tokens"]), []).append(row)
    for (fault, view, shape, requests, tokens), some in sorted(groups.items(), key=lambda one: one[0]):
        cells = [fault, view, shape, f"{requests} x {tokens}", "".join(row["verdict"] for row in some)]
        cells += [str(sum(row[name] for row in some)) for name in ("hit", "found", "kind", "donor")]
        cells += [str(sum(len(row["accused"]) for row in some)), "".join(row["at_fault"] for row in some)]
        cells += [str(sum(row[name] for row in some)) for name in ("named",)]
        print("| " + " | ".join([*cells, str(sum(bool(row["blamed"]) for row in some))]) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("faults", "clean"))
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--requests", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--tokens", nargs="+", type=int, default=[16, 64, 256])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=4_100_000)
    parser.add_argument("--views", nargs="+", choices=VIEWS, default=["scored", "no own logprobs"])
    parser.add_argument("--only", default="")
    parser.add_argument("--log", type=Path)
    show(collect(parser.parse_args()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
