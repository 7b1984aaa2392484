"""How wide the comparison sees and how clean it stays, on the small engine of tests/worlds.

    python benchmarks/wide.py clean [--tokens 10000000] [--data FOLDER]   false alarms over clean tokens
    python benchmarks/wide.py faults [--seeds 20] [--shape flat] [--only WORD]   fault x size x tokens needed
    python benchmarks/wide.py hunt [--seeds 2] [--only WORD]   faults that nothing was tuned on: which get a PASS?
    python benchmarks/wide.py moved [--seeds 2] [--only WORD]   wrong numbers x tokens: which get a PASS?
    python benchmarks/wide.py views [--seeds 4] [--only WORD]   healthy arms with less known of them: is any accused?
    python benchmarks/wide.py habits [--pairs 500] [--triples 500]   are servers with several habits accused of them?
    python benchmarks/wide.py verdicts OUT [--data FOLDER]   every verdict and finding on a fixed set of trials
    python benchmarks/wide.py diff BEFORE AFTER   what two of these files differ in; exit code 1 if anything

`clean` compares arms that differ in nothing but the order of their sums, in the settings of `worlds.trials.SETTINGS`,
writes each false alarm to a file of its own, and counts why runs are INCONCLUSIVE. `faults` gives the tokens after
which a fault is seen in 95 % of the seeds and the share of greedy choices that it moves (the baseline's tokens forced
through the same kernels with and without it), for faults of single rows what is found of them in one run. `--quick`: a
minute of either. `--json FILE`: the rows of the table as data. `verdicts` makes its trials once and reads them again,
so that two checkouts judge the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ.get("OPENBLAS_NUM_THREADS", "1")  # small products: threads would wait
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import wide_habits
import wide_hunt
import wide_moved
import wide_views
from worlds import FLAT, PEAKED, SURE, Fault, Truth, catalogue
from worlds.claims import ADMITTED
from worlds.engine import SOUND, Arm, Broken
from worlds.seen_as import VIEWS
from worlds.trials import SETTINGS, Faulty, Judged, Setting, Trial, clean, judge, said
from worlds.world import PREFILL, WORDS

from parity.capture import read_capture, write_capture
from parity.comparator import CompareOptions, compare
from parity.records import Verdict

SHAPES = {"flat": FLAT, "peaked": PEAKED, "sure": SURE}
FAMILIES = ("numerics", "rows", "rules", "neighbours", "sampled", "places")
FEWEST = 8
"""Completions of the smallest run, of about 100 tokens each; each larger one has twice as many."""
SHARE = 0.95
MOVED_OF = 5
"""Blocks of requests on which the greedy choices that a fault moves are counted."""
ROWS = 128
"""Completions of a run with faults of single rows, FEWEST times a power of two."""


# ------------------------------------------------------------------ clean


def clean_part(
    tokens: int, alarms: Path, first_seed: int, data: Path | None, log: Path | None, only: str = ""
) -> list[dict[str, Any]]:
    """False alarms by setting, until so many tokens of candidates are judged. `log`: a line for each setting and seed,
    once it is judged; what stands there counts and is not judged again."""
    parts = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    done = {(part["setting"], part["seed"]) for part in parts}
    total, seed = sum(part["tokens"] for part in parts), first_seed
    while total < tokens:
        for number, setting in enumerate(SETTINGS):
            if (setting.name, seed) in done or total >= tokens or only not in setting.name:
                continue
            part = clean_seed(setting, seed, alarms, data and data / f"{seed}-{number:02d}")
            parts.append(part)
            total += part["tokens"]
            if log:
                with log.open("a") as file:
                    file.write(json.dumps(part) + "\n")
            alarmed = sum(sum(one["alarms"].values()) for one in parts)
            say(f"{total:,} clean tokens, {alarmed} false alarms ({setting.name}, seed {seed})")
        seed += 1
    return added(parts)


def clean_seed(setting: Setting, seed: int, alarms: Path, data: Path | None) -> dict[str, Any]:
    """The arms of one setting and seed."""
    part: dict[str, Any] = {"setting": setting.name, "seed": seed, "runs": 0, "tokens": 0}
    alarmed: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for trial in kept(setting, seed, data):
        judged = judge(trial)
        part["runs"] += 1
        part["tokens"] += trial.tokens
        verdict = str(judged.result.verdict)
        part[verdict] = part.get(verdict, 0) + 1
        left.update({one.settles for one in judged.result.next_steps})
        alarmed.update(str(one.kind) for one in judged.result.corrupt)
        if judged.result.corrupt:
            save(alarms, trial, judged)
    return {**part, "alarms": alarmed, "open": left}


def added(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The seeds of each setting together."""
    rows: dict[str, dict[str, Any]] = {}
    for part in parts:
        row = rows.setdefault(part["setting"], {"setting": part["setting"], "alarms": Counter(), "open": Counter()})
        for name, value in part.items():
            if name in ("alarms", "open"):
                row[name].update(value)
            elif name not in ("setting", "seed"):
                row[name] = row.get(name, 0) + value
    return list(rows.values())


def kept(setting: Setting, seed: int, folder: Path | None) -> Iterator[Trial]:
    """The clean trials of a setting, from `folder` where they were made before."""
    if folder is None:
        yield from clean(setting, seed)
        return
    if not (folder / "whole").exists():
        for number, trial in enumerate(clean(setting, seed)):
            write_trial(folder / str(number), trial, "")
        (folder / "whole").touch()
    base = None
    for place in sorted(one for one in folder.iterdir() if one.is_dir()):
        base = base or read_capture(place / "base.jsonl")
        candidate = read_capture(place / "candidate.jsonl")
        name = f"{setting.name}: {candidate.header.arm}"
        yield Trial(name, seed, base, candidate, {}, Truth(), CompareOptions(detokenize=WORDS))


def save(folder: Path, trial: Trial, judged: Judged) -> None:
    """A false alarm, so that it can be looked at: the captures, the scores and what was said of them."""
    place = folder / f"{trial.name} {trial.seed}".replace("/", "-").replace(" ", "_").replace(":", "").replace(",", "")
    write_trial(place, trial)
    (place / "said.json").write_text(json.dumps(judged.result.to_json(), indent=1))


def show_clean(rows: Sequence[Mapping[str, Any]]) -> None:
    print("| clean arms | runs | tokens | PASS | INCONCLUSIVE | DIVERGED | false alarms |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        counts = [row.get(str(one), 0) for one in (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.DIVERGED)]
        alarms = ", ".join(f"{kind} {count}" for kind, count in row["alarms"].items()) or "0"
        print(f"| {row['setting']} | {row['runs']} | {row['tokens']:,} | {' | '.join(map(str, counts))} | {alarms} |")
    tokens, alarms = sum(row["tokens"] for row in rows), sum(sum(row["alarms"].values()) for row in rows)
    wrong = sum(row.get(str(Verdict.DIVERGED), 0) for row in rows)
    print(
        f"\n{tokens:,} clean tokens in {sum(row['runs'] for row in rows)} runs: {alarms} false alarms, {wrong} DIVERGED"
    )
    why = sorted((reason, row["setting"], count) for row in rows for reason, count in row["open"].items())
    if why:
        print("\n| INCONCLUSIVE because of | setting | runs |\n|---|---|---|")
    for reason, setting, count in why:
        print(f"| {reason} | {setting} | {count} |")


# ------------------------------------------------------------------ faults


def needed(faulty: Faulty, fault: Fault, most: int) -> tuple[int | None, int | None, Judged]:
    """Tokens from which on the run is DIVERGED, whatever larger run is looked at; those from which on it is no PASS;
    and the largest run looked at."""
    first: int | None = None
    no_pass: int | None = None
    last: Judged | None = None
    in_a_row = 0
    for blocks in range(1, blocks_of(most) + 1):
        last = judge(faulty.trial(fault, blocks))
        no_pass = None if last.result.verdict is Verdict.PASS else no_pass or last.trial.tokens
        if not last.seen:
            first, in_a_row = None, 0
            continue
        first = last.trial.tokens if first is None else first
        in_a_row += 1
        if in_a_row == 3:
            break
    assert last is not None
    return first, no_pass, last


def best_of(faulty: Faulty, fault: Fault, broken: Broken) -> list[int]:
    """What an engine takes for the best token at each place of the baseline's completions."""
    made = faulty.world.score(faulty.baseline(fault, MOVED_OF), top=1, arm=Arm("cuda/base", PREFILL, broken=broken))
    return [int(one) for top in made.values() for one in top.ids[:, 0]]


def blocks_of(completions: int) -> int:
    """Blocks of a run of so many completions."""
    return 1 + max(0, (completions // FEWEST).bit_length() - 1)


def of_seeds(values: Sequence[int | None]) -> int | None:
    """The value that SHARE of the seeds stay within."""
    ordered = sorted(float("inf") if one is None else one for one in values)
    found = ordered[max(0, -(-int(1000 * SHARE * len(ordered)) // 1000) - 1)]
    return None if found == float("inf") else int(found)


def fault_part(
    seeds: int, shape: str, only: str, most: int, families: Sequence[str], first_seed: int
) -> list[dict[str, Any]]:
    faults = [one for one in catalogue() if only in f"{one.name} {one.size}" and one.family in families]
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for number in range(seeds):
        faulty = Faulty(first_seed + number, SHAPES[shape], first=FEWEST)
        sound = best_of(faulty, faults[0], SOUND) if faults and "numerics" in families else []
        for fault in faults:
            row = rows.setdefault(
                (fault.family, fault.name, fault.size),
                {"family": fault.family, "fault": fault.name, "size": fault.size, "needed": [], "no_pass": []}
                | dict.fromkeys(
                    (
                        "seeds",
                        "seen",
                        "passed",
                        "moved",
                        "choices",
                        "tokens",
                        "hit",
                        "found",
                        "kind",
                        "place",
                        "donor",
                        "donors",
                        "accused",
                        "named",
                    ),
                    0,
                ),
            )
            if fault.hits_rows:
                last = judge(faulty.trial(fault, blocks_of(ROWS)))
            else:
                tokens, no_pass, last = needed(faulty, fault, most)
                row["needed"].append(tokens)
                row["no_pass"].append(no_pass)
                row["passed"] += last.result.verdict is Verdict.PASS
                if fault.family == "numerics":
                    other = best_of(faulty, fault, fault.broken)
                    row["moved"] += sum(a != b for a, b in zip(sound, other, strict=True))
                    row["choices"] += len(sound)
            row["tokens"] = max(row["tokens"], last.trial.tokens)
            row["seeds"] += 1
            row["seen"] += last.seen
            row["named"] += last.named
            row["accused"] += len({one.key for one in last.accused})
            for name in ("hit", "found", "kind", "place", "donor"):
                row[name] += getattr(last, name)
            row["donors"] += sum(hit.donor is not None for hit in last.trial.truth.rows.values())
            faulty.forget()
            told = f"{last.found} of {last.hit} rows" if fault.hits_rows else f"from {row['needed'][-1]} tokens on"
            say(f"{fault.name}, {fault.size}, seed {first_seed + number}: {last.result.verdict}, {told}")
    return [
        {
            **row,
            "tokens_needed": of_seeds(row["needed"]) if row["needed"] else None,
            "tokens_to_no_pass": of_seeds(row["no_pass"]) if row["no_pass"] else None,
        }
        for row in rows.values()
    ]


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""


def show_faults(rows: Sequence[Mapping[str, Any]]) -> None:
    if any(row["needed"] for row in rows):
        print("| fault of the whole arm | size | greedy choices moved, in 1,000 ", end="")
        print(f"| no PASS from, tokens ({SHARE:.0%} of seeds) | DIVERGED from | largest runs DIVERGED | PASS |")
        print("|---|---|---|---|---|---|---|")
    for row in rows:
        if row["needed"]:
            least = [row["tokens_to_no_pass"], row["tokens_needed"]]
            texts = [f"{one:,}" if one is not None else f"not by {row['tokens']:,}" for one in least]
            of_all = [share(row[name], row["seeds"]) for name in ("seen", "passed")]
            rate = f"{1000 * row['moved'] / row['choices']:.2f}" if row["choices"] else ""
            print("| " + " | ".join([row["fault"], row["size"], rate, *texts, *of_all]) + " |")
    if any(not row["needed"] for row in rows):
        print(
            f"\n| fault of rows ({ROWS} completions a run) | size | runs DIVERGED | rows hit | found | kind right |",
            end="",
        )
        print(" first token right | donor right | others accused |")
        print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        if not row["needed"]:
            of_hit = [share(row[name], row["hit"]) for name in ("found", "kind", "place")]
            cells = [row["fault"], row["size"], share(row["seen"], row["seeds"]), str(row["hit"]), *of_hit]
            print("| " + " | ".join([*cells, share(row["donor"], row["donors"]), str(row["accused"])]) + " |")


# ------------------------------------------------------------------ verdicts


def write_trial(folder: Path, trial: Trial, packed: str = ".gz") -> None:
    """Both captures, the scores in the candidate's; logprobs to a millionth."""
    folder.mkdir(parents=True, exist_ok=True)
    scores = {
        key: replace(top, values=top.values.round(6)) for key, top in {**trial.candidate.scores, **trial.scores}.items()
    }
    for name, arm in (("base", trial.baseline), ("candidate", replace(trial.candidate, scores=scores))):
        made = {
            key: replace(one, logprobs=one.logprobs and replace(one.logprobs, values=one.logprobs.values.round(6)))
            for key, one in arm.completions.items()
        }
        write_capture(folder / f"{name}.jsonl{packed}", replace(arm, completions=made), compact=True)


def snapshot_trials() -> Iterator[tuple[str, Trial]]:
    """A few thousand tokens of every clean setting and every fault."""
    for setting in SETTINGS:
        small = replace(setting, requests=min(setting.requests, 24), sampling={**setting.sampling, "max_tokens": 96})
        for number, trial in enumerate(clean(small, 9001)):
            yield f"clean-{SETTINGS.index(setting):02d}-{number}", trial
    for seed, (name, shape) in enumerate(SHAPES.items(), 9101):
        faulty = Faulty(seed, shape, first=FEWEST)
        for number, fault in enumerate(catalogue()):
            yield f"fault-{name}-{number:03d}", faulty.trial(fault, blocks_of(32))
            faulty.forget()


def verdicts(out: Path, data: Path) -> None:
    if not (data / "whole").exists():
        for name, trial in snapshot_trials():
            write_trial(data / name, trial)
            (data / name / "name").write_text(f"{trial.name}, seed {trial.seed}")
        (data / "whole").touch()
    with out.open("w") as file:
        for folder in sorted(one for one in data.iterdir() if one.is_dir()):
            base = read_capture(folder / "base.jsonl.gz")
            candidate = read_capture(folder / "candidate.jsonl.gz", beside=base)
            result = said(compare(base, candidate, None, CompareOptions(detokenize=WORDS)))
            file.write(json.dumps({"trial": folder.name, "name": (folder / "name").read_text(), **result}) + "\n")


def difference(before: Path, after: Path) -> int:
    """Prints what differs, trial by trial; how many trials do."""
    sides = [{one["trial"]: one for one in map(json.loads, path.read_text().splitlines())} for path in (before, after)]
    count = 0
    for trial in sorted(sides[0].keys() | sides[1].keys()):
        one, other = (side.get(trial) for side in sides)
        if one == other:
            continue
        count += 1
        if one is None or other is None:
            print(f"{trial}: only in {before if other is None else after}")
            continue
        verdict = one["verdict"] if one["verdict"] == other["verdict"] else f"{one['verdict']} -> {other['verdict']}"
        print(f"{trial} ({one['name']}): {verdict}")
        for part in ("reasons", "findings"):
            for sign, left, right in (("-", one, other), ("+", other, one)):
                for entry in (each for each in left[part] if each not in right[part]):
                    print(f"    {sign} {entry}")
    print(f"{count} of {len(sides[0])} trials differ")
    return count


# ------------------------------------------------------------------ command


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("clean")
    one.add_argument("--tokens", type=int, default=10_000_000)
    one.add_argument("--alarms", type=Path, default=Path("build/wide-alarms"))
    one.add_argument("--data", type=Path, help="where the trials are kept, to be judged again")
    one.add_argument("--only", default="", help="settings with this in their name")
    one.add_argument("--log", type=Path, help="a line for each part, so that the same command goes on after a stop")
    two = parts.add_parser("faults")
    two.add_argument("--seeds", type=int, default=20)
    two.add_argument("--shape", choices=tuple(SHAPES), default="flat")
    two.add_argument("--only", default="", help="faults with this in their name or size")
    two.add_argument("--family", action="append", choices=FAMILIES)
    two.add_argument("--most", type=int, default=1024, help="completions of the largest run")
    for part in (one, two):
        part.add_argument("--quick", action="store_true")
        part.add_argument("--json", type=Path)
        part.add_argument("--first-seed", type=int, default=1000)
    hunting = parts.add_parser("hunt", description=wide_hunt.__doc__)
    hunting.add_argument("--seeds", type=int, default=2)
    hunting.add_argument("--first-seed", type=int, default=40_000)
    hunting.add_argument("--shape", choices=tuple(SHAPES), action="append")
    hunting.add_argument("--only", default="", help="faults with this in their family, name or size")
    hunting.add_argument("--view", choices=tuple(VIEWS), action="append")
    hunting.add_argument("--catalogue", action="store_true", help="the faults of `wide.py faults` as well")
    hunting.add_argument("--after", type=int, default=0, help="leaves out so many faults, the first of the list")
    hunting.add_argument("--share", type=float, default=0.0, help="of the rows, that have the fault")
    hunting.add_argument("--said", action="store_true", help="with the first reason of each such PASS")
    hunting.add_argument("--most", type=int, default=64, help="completions of a run")
    hunting.add_argument(
        "--log", type=Path, help="a line for each fault, so that the same command goes on after a stop"
    )
    moving = parts.add_parser("moved", description=wide_moved.__doc__)
    moving.add_argument("--seeds", type=int, default=2)
    moving.add_argument("--first-seed", type=int, default=40_000)
    moving.add_argument("--shape", choices=tuple(SHAPES), action="append")
    moving.add_argument("--only", default="", help="faults with this in their name or size")
    moving.add_argument("--runs", type=int, nargs="+", default=wide_moved.RUNS, help="completions of each run")
    moving.add_argument("--log", type=Path, help="a line for each fault, so that the same command goes on after a stop")
    seen = parts.add_parser("views", description=wide_views.__doc__)
    seen.add_argument("--seeds", type=int, default=4)
    seen.add_argument("--first-seed", type=int, default=60_000)
    seen.add_argument("--only", default="", help="settings with this in their name")
    seen.add_argument("--view", choices=tuple(VIEWS), action="append")
    seen.add_argument("--parts", type=int, default=wide_views.WHOLE, help="completions of a run, at most")
    seen.add_argument("--faults", action="store_true", help="greedy faults in their place")
    seen.add_argument("--log", type=Path, help="a line for each part, so that the same command goes on after a stop")
    several = parts.add_parser("habits", description=wide_habits.__doc__)
    several.add_argument("--pairs", type=int, default=500)
    several.add_argument("--triples", type=int, default=500)
    several.add_argument("--first-seed", type=int, default=1000)
    three = parts.add_parser("verdicts")
    three.add_argument("out", type=Path)
    three.add_argument("--data", type=Path, default=Path("build/wide-trials"))
    four = parts.add_parser("diff")
    four.add_argument("before", type=Path)
    four.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.part == "verdicts":
        verdicts(asked.out, asked.data)
        return 0
    if asked.part == "hunt":
        shapes = {name: SHAPES[name] for name in asked.shape or SHAPES}
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        faults = wide_hunt.faults(asked.only, asked.share, known_ones=asked.catalogue)[asked.after :]
        found = wide_hunt.hunt(shapes, seeds, faults, asked.most, asked.view or tuple(VIEWS), asked.log)
        wide_hunt.show(found, whole=asked.said)
        return int(any(wide_hunt.false_passes(found)))
    if asked.part == "moved":
        shapes = {name: SHAPES[name] for name in asked.shape or SHAPES}
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        table = wide_moved.table(shapes, seeds, wide_moved.faults(asked.only), asked.runs, asked.log)
        wide_moved.show(table, asked.runs)
        return int(any(one["spoken"] != ADMITTED for row in table for one in row["passes"]))
    if asked.part == "views":
        names = asked.view or tuple(VIEWS)
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        if asked.faults:
            wide_views.show_faults(wide_views.of_faults(seeds, asked.only, names, asked.log), names)
            return 0
        return int(wide_views.show(wide_views.views(seeds, asked.only, names, asked.log, asked.parts), names) > 0)
    if asked.part == "habits":
        return int(wide_habits.habits(asked.pairs, asked.triples, asked.first_seed) > 0)
    if asked.part == "diff":
        return int(difference(asked.before, asked.after) > 0)
    if asked.part == "clean":
        rows = clean_part(
            500_000 if asked.quick else asked.tokens,
            asked.alarms,
            asked.first_seed,
            asked.data,
            asked.log,
            asked.only,
        )
        show_clean(rows)
        bad = any(row["alarms"] for row in rows)
    else:
        most = 64 if asked.quick else asked.most
        families = asked.family or FAMILIES
        rows = fault_part(2 if asked.quick else asked.seeds, asked.shape, asked.only, most, families, asked.first_seed)
        show_faults(rows)
        bad = any(row["accused"] for row in rows)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
