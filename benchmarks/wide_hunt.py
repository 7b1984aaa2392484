"""The part `hunt` of benchmarks/wide.py: which faults that nothing was tuned on get a PASS?

Each fault of `worlds.unseen`, with `--catalogue` those of `worlds.faults` as well, in runs of `--most` completions, is
compared as it looks with all that is known of it and with less (`worlds.seen_as`). *Moved*: how many in 1,000 of the
candidate's tokens are other ones by the fault's doing; where they are drawn, the total variation between what they are
drawn from and what was asked for; for numerics, greedy choices on the baseline's text. Every PASS is compared with its
own numbers and messages (`worlds.claims`): one that says that it would have seen what was planted contradicts itself,
one that does not speak of it is silent. `--said`: what the verdict says of each PASS of a fault that moves more than
LEAST.
`--share`: the faults of rows that lapse, in that share of the rows. In the view `baseline at fault` the arms have
changed places: whoever is DIVERGED there is accused of what the other has done.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from worlds import Fault, Shape, catalogue
from worlds.claims import EXCLUDED, UNSPOKEN, planted, spoken
from worlds.engine import SOUND, Arm
from worlds.faults import NUMERICS
from worlds.seen_as import AT_FAULT, VIEWS
from worlds.trials import Faulty, Trial, judge
from worlds.unseen import unseen
from worlds.world import PREFILL

from parity.records import Verdict

LEAST = 1.0
"""Tokens moved in 1,000, above which a PASS must say that it does not exclude so much."""
LETTERS = {Verdict.PASS: "P", Verdict.INCONCLUSIVE: "I", Verdict.DIVERGED: "D"}
FIRST = 16


def faults(only: str = "", share: float = 0.0, *, known_ones: bool = False) -> list[Fault]:
    """Those with `only` in family, name or size, in the order in which they are hunted."""
    every = [*unseen(), *(catalogue() if known_ones else ())]
    if share:
        every = [one.at(share) for one in every if one.lapse and not one.share and not one.where]
    return [one for one in every if only in f"{one.family}: {one.name}, {one.size}"]


def hunt(
    shapes: Mapping[str, Shape],
    seeds: Sequence[int],
    every: Sequence[Fault],
    most: int,
    views: Sequence[str],
    log: Path | None,
) -> list[dict[str, Any]]:
    """One row for each fault and shape: verdicts by view, one letter for each seed. `log`: a line for each row."""
    known = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    done = {(row["shape"], row["fault"], row["size"]) for row in known}
    rows = known
    for name, shape in shapes.items():
        worlds = [Faulty(seed, shape, first=FIRST, logprobs=5) for seed in seeds]
        for fault in every:
            if (name, fault.name, fault.size) in done:
                continue
            row = row_of(name, fault, worlds, most, views)
            rows.append(row)
            if log:
                with log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            told = "  ".join(f"{view} {''.join(found)}" for view, found in row["verdicts"].items())
            say(f"{name} {fault.name}, {fault.size}: {row['moved']:.1f} in 1,000  {told}")
    return rows


def row_of(name: str, fault: Fault, worlds: Sequence[Faulty], most: int, views: Sequence[str]) -> dict[str, Any]:
    verdicts: dict[str, list[str]] = {view: [] for view in views}
    moved = tokens = 0.0
    passes: list[dict[str, Any]] = []
    blamed: list[dict[str, Any]] = []
    kinds: Counter[str] = Counter()
    for faulty in worlds:
        trial = faulty.trial(replace(fault, family="hunted"), blocks_of(most))
        share = moved_of(faulty, fault, trial)
        # A PASS speaks of the choices in its own text: a loop of the baseline has one choice many times.
        own = moved_of(faulty, fault, replace(trial, baseline=trial.candidate)) if fault.kinds is NUMERICS else share
        truth = planted(fault, faulty, trial, own)
        moved, tokens = moved + share * trial.tokens, tokens + trial.tokens
        for view in views:
            judged = judge(VIEWS[view](trial))
            verdicts[view].append(LETTERS[judged.result.verdict])
            if view == views[0]:
                kinds.update({str(one.kind) for one in judged.result.corrupt})
            if view == AT_FAULT and judged.result.verdict is Verdict.DIVERGED:
                blamed.append({"seed": faulty.seed, "said": str(judged.result.reasons[0])})
            if judged.result.verdict is Verdict.PASS:
                said = str(judged.result.reasons[0])
                messages = (*judged.result.reasons, *judged.result.notes)
                how, why = ("", "") if view == AT_FAULT else spoken(judged.result.stats, truth, messages)
                one = {"view": view, "seed": faulty.seed, "moved": 1000 * share, "said": said}
                passes.append({**one, "spoken": how, "why": why})
        faulty.forget()
    return {
        "shape": name, "family": fault.family, "fault": fault.name, "size": fault.size, "moved": 1000 * moved / tokens,
        "tokens": round(tokens / len(worlds)), "verdicts": verdicts, "kinds": sorted(kinds), "passes": passes,
        "blamed": blamed,
    }  # fmt: skip


def blocks_of(completions: int) -> int:
    return 1 + max(0, (completions // FIRST).bit_length() - 1)


def moved_of(faulty: Faulty, fault: Fault, trial: Trial) -> float:
    """Share of tokens; of greedy choices for numerics, of the completions that these are in."""
    if fault.kinds is not NUMERICS:
        return trial.truth.moved / max(1, trial.tokens)
    base = trial.baseline
    where = fault.where
    if where is not None:
        kept = {
            k: one for k, one in base.completions.items() if where.holds(k, len(one.prompt_token_ids), fault.rounds)
        }
        base = replace(base, completions=kept)
    best = [
        faulty.world.score(base, top=1, arm=Arm(f"cuda/{name}", PREFILL, broken=broken))
        for name, broken in (("sound", SOUND), ("broken", fault.broken))
    ]
    sides = [[int(one) for top in made.values() for one in top.ids[:, 0]] for made in best]
    return sum(a != b for a, b in zip(*sides, strict=True)) / max(1, sum(len(one.token_ids) for one in trial.baseline))


def show(rows: Sequence[Mapping[str, Any]], *, whole: bool = False) -> None:
    """A line for each fault and shape, a column for each view. `whole`: with what is said of each false PASS."""
    views = list(rows[0]["verdicts"]) if rows else []
    print("| fault | size | model | tokens | moved, in 1,000 | " + " | ".join(views) + " |")
    print("|---" * (5 + len(views)) + "|")
    for row in rows:
        cells = [row["fault"], row["size"], row["shape"], f"{row['tokens']:,}", f"{row['moved']:.1f}"]
        print("| " + " | ".join([*cells, *("".join(row["verdicts"][view]) for view in views)]) + " |")
    passed = list(false_passes(rows))
    total = sum(len(found) for row in rows for found in row["verdicts"].values())
    print(f"\n{len(passed)} of {total} verdicts are a PASS of a fault that moves more than {LEAST:g} token in 1,000")
    every = [(row, one) for row in rows for one in row["passes"]]
    for how, what in ((EXCLUDED, "contradict themselves: they say that this would have been seen"),
                      (UNSPOKEN, f"of what moves more than {LEAST:g} in 1,000 do not speak of it")):  # fmt: skip
        told = [(row, one) for row, one in every if one.get("spoken") == how]
        some = [(row, one) for row, one in told if how == EXCLUDED or _moved_by(one, row) > LEAST]
        print(f"{len(some)} of {len(every)} PASS {what}")
        for row, one in some:
            print(f"  {row['shape']} {row['fault']}, {row['size']} ({_moved_by(one, row):.1f}), {one['view']}, "
                  f"seed {one['seed']}: {one['why']}")  # fmt: skip
    wrong = [(row, one) for row in rows for one in row.get("blamed", ())]
    if AT_FAULT in views:
        print(f"{len(wrong)} accuse the candidate of what the baseline has done")
    for row, one in wrong if whole else ():
        print(f"{row['shape']} {row['fault']}, {row['size']} ({row['moved']:.1f}), accused: {one['said']}")
    for row, one in passed if whole else ():
        moved = _moved_by(one, row)
        print(f"{row['shape']} {row['fault']}, {row['size']} ({moved:.1f}), {one['view']}: {one['said']}")


def false_passes(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    return ((row, one) for row in rows for one in row["passes"] if _moved_by(one, row) > LEAST)


def _moved_by(one: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Tokens in 1,000 that the fault moves in the run that is a PASS."""
    moved: float = one.get("moved", row["moved"])
    return moved


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
