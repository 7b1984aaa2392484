"""The part `views` of benchmarks/wide.py: is a healthy arm accused where less is known of it?

Each setting of `worlds.trials.SETTINGS` and each of `MORE`, with five logprobs listed and all scored, one arm against
the baseline, judged in each view of `worlds.seen_as`: other scores, other logprobs, servers. `--faults`: greedy
faults of `catalogue()` in FLAT and ROUGH instead, 128 completions each: the verdicts, and how many of the rows hit are
found. `--parts`: each run cut into runs of so many completions. `--log`: a line for each of these.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wide_hunt import say
from worlds import FLAT, PEAKED, ROUGH, Fault, catalogue, speculating
from worlds.seen_as import VIEWS
from worlds.trials import CUTS, DRAWS, PENALTIES, RULES, SETTINGS, Faulty, Setting, Trial, clean, in_parts, judge

MOST = 96
"""Completions of a run, and tokens of one: many small runs find more than few large ones."""

WHOLE = 1024
"""Completions of a part, of which no run has more."""

ARM = speculating(2)

BLOCKS = 4
"""Of requests, the first of 16: 128 completions."""

MORE = (
    Setting("experts far apart, penalties", ROUGH, sampling={"max_tokens": 96}, own=PENALTIES),
    Setting("experts far apart, rules", ROUGH, sampling={"max_tokens": 96}, own=RULES),
    Setting("experts far apart, three rounds", ROUGH, 32, {"max_tokens": 96}, rounds=3),
    Setting("experts far apart, sampled, 1", ROUGH, 96, {"max_tokens": 96, "temperature": 1.0}),
    Setting("experts far apart, sampled, 0.7, two samples", ROUGH, 48, {"max_tokens": 96, "temperature": 0.7, "n": 2}),
    Setting("experts far apart, cut off", ROUGH, 96, {"max_tokens": 96, "temperature": 1.0}, CUTS),
    Setting("experts far apart, each its own temperature", ROUGH, 96, {"max_tokens": 96, "temperature": 0.5}, DRAWS),
    Setting("sampled, 1, peaked", PEAKED, 96, {"max_tokens": 96, "temperature": 1.0}),
    Setting("sampled, 0.3", FLAT, 96, {"max_tokens": 96, "temperature": 0.3}),
    Setting("each its own temperature, flat", FLAT, 96, {"max_tokens": 96, "temperature": 0.5}, DRAWS),
    Setting("drawn, three rounds", FLAT, 32, {"max_tokens": 96, "temperature": 0.7}, rounds=3),
)
"""Clean settings besides: where logits move by nats, and more that is drawn, mixtures of temperatures among it."""


def views(
    seeds: Sequence[int], only: str, names: Sequence[str], log: Path | None, completions: int = WHOLE
) -> list[dict[str, Any]]:
    """A row for each setting and seed, and each part of so many completions. `names`: of the views; `log`: so that the
    same command goes on after a stop."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    done = {(row["setting"], row["seed"]) for row in rows}
    for seed in seeds:
        for setting in (*SETTINGS, *MORE):
            if only not in setting.name or (setting.name, seed) in done:
                continue
            parts = (one for trial in trials(setting, seed) for one in in_parts(trial, completions))
            some = [{"setting": setting.name, "seed": seed, **_seen(one, names)} for one in parts]
            rows += some
            if log:
                with log.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in some)
    return rows


def _seen(trial: Trial, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The verdict in each view, and who is accused in it."""
    verdicts, accused = {}, {}
    for name in names:
        result = judge(VIEWS[name](trial)).result
        verdicts[name] = str(result.verdict)
        if result.corrupt:
            accused[name] = [f"{one.kind} {one.request} {one.position}" for one in result.corrupt[:4]]
            say(f"{trial.name}, seed {trial.seed}, {name}: {accused[name]}")
    return {"verdicts": verdicts, "accused": accused}


def trials(setting: Setting, seed: int) -> Iterator[Trial]:
    tokens = min(setting.sampling.get("max_tokens", MOST), MOST)
    small = replace(setting, requests=min(setting.requests, MOST), sampling={**setting.sampling, "max_tokens": tokens})
    yield from clean(replace(small, logprobs=5, scored="all"), seed, arms=(ARM,))


def of_faults(seeds: Sequence[int], only: str, names: Sequence[str], log: Path | None) -> list[dict[str, Any]]:
    """The same of each greedy fault, with the rows that it hit and those that are found of them."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    done = {(row["setting"], row["seed"]) for row in rows}
    for seed in seeds:
        for name, shape in (("flat", FLAT), ("rough", ROUGH)):
            faulty = Faulty(seed, shape, first=16, logprobs=5)
            for fault in filter(is_greedy, catalogue()):
                setting = f"{name}: {fault.name}, {fault.size}"
                if only not in setting or (setting, seed) in done:
                    continue
                trial = faulty.trial(fault, BLOCKS)
                faulty.forget()
                judged = {view: judge(VIEWS[view](trial)) for view in names}
                verdicts = {view: str(one.result.verdict) for view, one in judged.items()}
                found = {view: one.found for view, one in judged.items()}
                rows.append({"setting": setting, "seed": seed, "verdicts": verdicts, "found": found,
                             "hit": len(trial.truth.rows)})  # fmt: skip
                if log:
                    with log.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    return rows


def is_greedy(fault: Fault) -> bool:
    return not any(asked.get("temperature") for asked in (fault.rules, *fault.own)) and fault.family != "sampled"


def show_faults(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    print("| view | runs | PASS | INCONCLUSIVE | DIVERGED | rows hit | found |\n|---|---|---|---|---|---|---|")
    for name in names:
        some = [row for row in rows if name in row["verdicts"]]
        verdicts = Counter(row["verdicts"][name] for row in some)
        counts = [len(some), *(verdicts[one] for one in ("PASS", "INCONCLUSIVE", "DIVERGED"))]
        rates = [sum(row["hit"] for row in some), sum(row["found"][name] for row in some)]
        print("| " + " | ".join(map(str, [name, *counts, *rates])) + " |")


def show(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    """The table; how many runs accuse somebody."""
    print("| view | runs | PASS | INCONCLUSIVE | DIVERGED | accused |\n|---|---|---|---|---|---|")
    bad = 0
    for name in names:
        verdicts = Counter(row["verdicts"][name] for row in rows if name in row["verdicts"])
        accused = [f"{row['setting']} {row['seed']}" for row in rows if name in row["accused"]]
        bad += len(accused)
        counts = [verdicts[one] for one in ("PASS", "INCONCLUSIVE", "DIVERGED")]
        where = f"{len(accused)}: {', '.join(accused[:6])}" if accused else "0"
        print("| " + " | ".join(map(str, [name, verdicts.total(), *counts, where])) + " |")
    return bad
