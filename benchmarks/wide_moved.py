"""The part `moved` of benchmarks/wide.py: which wrong numbers that move more than 1 greedy choice in 1,000 get a PASS?

Every numerics fault of `worlds.faults` and `worlds.unseen`, greedy and scored, in runs of RUNS completions, the larger
one with the smaller in it; once a run is DIVERGED no larger one is made. *Moved*: greedy choices in 1,000 that are
others with the fault, on the baseline's text of the second run (the completions that the fault is in count alone, over
all tokens). Every PASS is compared with its own numbers and messages, as in `hunt` (`worlds.claims`), with what is
moved in its own text.

A fault of the size of rounding moves as many choices as another order of sums, and gets as few of them wrong. So of a
PASS that moves more than LEAST it is also counted what the fault moves *beyond* rounding: choices that are not the
scorer's with the fault, less those that are not without it, of the baseline's text of the largest run, in the mean over
KERNELS; with its standard error over completions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from wide_hunt import FIRST, LEAST, LETTERS, blocks_of, moved_of, say
from worlds import BASE, SMALL, WIDE, Fault, Shape, catalogue, speculating
from worlds.claims import EXCLUDED, UNSPOKEN, planted, spoken, turned_by_rounding
from worlds.engine import SOUND, Arm
from worlds.faults import NUMERICS
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, judge
from worlds.unseen import unseen
from worlds.world import PREFILL

from parity.records import Capture, Key, Verdict

RUNS = (64, 256, 1024)
"""Completions of a run, of some 110 tokens each."""
SCORED = "scored"
KERNELS = (BASE, SMALL, WIDE, speculating(2))
"""Orders of sums that a fault is tried with: with one alone, what rounding happens to turn hides a small fault."""


def faults(only: str = "") -> list[Fault]:
    """Greedy ones that move choices."""
    every = [one for one in (*catalogue(), *unseen()) if one.kinds is NUMERICS and not one.rules.get("temperature")]
    return [one for one in every if only in f"{one.name}, {one.size}" and not one.broken.lift]


def table(
    shapes: Mapping[str, Shape], seeds: Sequence[int], every: Sequence[Fault], runs: Sequence[int], log: Path | None
) -> list[dict[str, Any]]:
    """One row for each fault, shape and seed. `log`: a line for each row, so that the same command goes on."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    done = {(row["shape"], row["seed"], row["fault"], row["size"]) for row in rows}
    for name, shape in shapes.items():
        for seed in seeds:
            left = [one for one in every if (name, seed, one.name, one.size) not in done]
            faulty = Faulty(seed, shape, first=FIRST)
            base = faulty.baseline(left[0], blocks_of(runs[:2][-1])) if left else None
            rounding = turned_by_rounding(faulty, base) if base else 0.0
            for fault in left:
                row = {"shape": name, "seed": seed, "rounding": 1000 * rounding, **_row(fault, faulty, runs)}
                rows.append(row)
                faulty.forget()
                if log:
                    with log.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                say(f"{name} {seed} {fault.name}, {fault.size}: {row['moved']:.2f} in 1,000  {row['verdicts']}")
    return rows


def _row(fault: Fault, faulty: Faulty, runs: Sequence[int]) -> dict[str, Any]:
    hunted = replace(fault, family="hunted")
    verdicts, tokens, passes = "", [], []
    for completions in runs:
        trial = VIEWS[SCORED](faulty.trial(hunted, blocks_of(completions)))
        result = judge(trial).result
        verdicts += LETTERS[result.verdict]
        tokens.append(trial.tokens)
        if result.verdict is Verdict.PASS:
            own = moved_of(faulty, fault, replace(trial, baseline=trial.candidate))
            truth = planted(fault, faulty, trial, own)
            how, why = spoken(result.stats, truth, (*result.reasons, *result.notes))
            found = result.stats.moved
            most = 1000 * found.at_most if found else None
            passes.append({"completions": completions, "tokens": trial.tokens, "moved": 1000 * own, "spoken": how,
                           "why": why, "at_most": most})  # fmt: skip
        if result.verdict is Verdict.DIVERGED:
            break
    base = faulty.trial(hunted, blocks_of(runs[:2][-1])) if len(tokens) > 1 else trial
    moved = 1000 * moved_of(faulty, fault, base)
    row = {"fault": fault.name, "size": fault.size, "moved": moved, "verdicts": verdicts, "tokens": tokens,
           "passes": passes}  # fmt: skip
    if any(one["moved"] > LEAST for one in passes):
        text = faulty.baseline(hunted, blocks_of(runs[-1]))
        row["beyond"], row["beyond_error"] = (1000 * one for one in beyond_rounding(faulty, fault, text))
    return row


def beyond_rounding(faulty: Faulty, fault: Fault, text: Capture) -> tuple[float, float]:
    """Share of the choices in a text that the fault gets wrong beyond those that rounding does, and its standard
    error."""
    world, where = faulty.world, fault.where
    hit = {
        key: one
        for key, one in text.completions.items()
        if where is None or where.holds(key, len(one.prompt_token_ids), fault.rounds)
    }
    some = replace(text, completions=hit)

    def best(arm: Arm) -> dict[Key, Any]:
        return {Key(*name[1:]): top.ids[:, 0] for name, top in world.score(some, top=1, arm=arm).items()}

    right = best(Arm("cuda/score", PREFILL))
    each = dict.fromkeys(hit, 0.0)
    for number, arm in enumerate(KERNELS):
        for sign, broken in ((1, fault.broken), (-1, SOUND)):
            made = best(replace(arm, name=f"cuda/{number}", broken=broken))
            for key in hit:
                each[key] += sign * float((made[key] != right[key]).sum()) / len(KERNELS)
    tokens = sum(len(one.token_ids) for one in text)
    values = np.array([each.get(key, 0.0) for key in text.completions])
    return float(values.sum()) / tokens, float(values.std()) * len(values) ** 0.5 / tokens


def show(rows: Sequence[Mapping[str, Any]], runs: Sequence[int]) -> None:
    """A line for each fault, for each shape what is moved and the verdicts of its runs, a word for each seed."""
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    print("| fault | size | " + " | ".join(f"`{one.upper()}`: moved | verdicts" for one in shapes) + " |")
    print("|---" * (2 + 2 * len(shapes)) + "|")
    for fault, size in dict.fromkeys((row["fault"], row["size"]) for row in rows):
        cells = [fault, size]
        for shape in shapes:
            some = [row for row in rows if (row["shape"], row["fault"], row["size"]) == (shape, fault, size)]
            cells.append(f"{sum(row['moved'] for row in some) / max(1, len(some)):.2f}")
            cells.append(" ".join(row["verdicts"] for row in some))
        print("| " + " | ".join(cells) + " |")
    for shape in shapes:
        known = {row["seed"]: row["rounding"] for row in rows if row["shape"] == shape}
        print(f"\n`{shape.upper()}`: rounding alone moves {min(known.values()):.2f} to {max(known.values()):.2f}")
    print(f"\n| completions | runs | DIVERGED | INCONCLUSIVE | PASS | of a fault above {LEAST:g} in 1,000: PASS "
          "| that its own sentence excludes | silent |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for place, completions in enumerate(runs):
        counts = Counter(_letter(row["verdicts"], place) for row in rows)
        passes = [one for row in rows for one in row["passes"] if one["completions"] == completions]
        wide = [one for one in passes if one["moved"] > LEAST]
        told = [sum(one["spoken"] == how for one in passes) for how in (EXCLUDED, UNSPOKEN)]
        print(f"| {completions} | {len(rows)} | {counts['D']} | {counts['I']} | {counts['P']} | {len(wide)} "
              f"| {told[0]} | {told[1]} |")  # fmt: skip
    for row in rows:
        for one in row["passes"]:
            if one["moved"] > LEAST or one["spoken"] != "admitted":
                beyond = f", beyond rounding {row['beyond']:.2f} ± {row['beyond_error']:.2f}" if "beyond" in row else ""
                print(f"{row['shape']} {row['seed']} {row['fault']}, {row['size']}, {one['tokens']:,} tokens: "
                      f"{one['moved']:.2f} in 1,000{beyond}, {one['spoken']}: {one['why']}")  # fmt: skip


def _letter(verdicts: str, place: int) -> str:
    """Of the run in this place; a run with a DIVERGED one in it counts as that."""
    return verdicts[min(place, len(verdicts) - 1)]
