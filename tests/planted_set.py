"""The planted set: real completions, one fault each, true scores (tests/data/planted.json.gz), and its judge.

The rows are what vLLM 0.32.0 made on CPU with the embedded checkpoint: greedy `base` and `mtp` with two
draft tokens (world A), the same with a repetition penalty of 1.2 (world B). tests/planting.py damaged them;
where a fault's name ends in "+regenerated" the engine itself went on from the damaged prefix. Every damaged
row was scored by the engine with speculation off, so that what is justified is a fact and not a guess.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Capture, Completion, Finding, Header, Key, ScoreKey, Severity, TopLogprobs, Verdict

DATA = Path(__file__).parent / "data" / "planted.json.gz"
ARMS = ("cpu/base", "cpu/mtp")
SHAPE_KEPT = ("duplication", "omission", "repetition", "garbled", "unjustified", "row_leak")
"""Kinds that can be planted so that no trace is left: a whole period taken out of a loop, for example."""


@dataclass(frozen=True, slots=True)
class Case:
    """One damaged capture with its truth."""

    world: str
    fault: str
    where: str
    after_near_tie: bool
    in_loop: bool
    kinds: tuple[str, ...]
    position: int
    positions: frozenset[int]
    key: Key
    candidate: Capture
    scores: dict[ScoreKey, TopLogprobs]
    traceless: bool
    """No token of the row is unjustified and its end is not out of order: nothing for anyone to see."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the comparison said of a case."""

    case: Case
    found: bool
    left_open: bool
    """The row stands among those in doubt, and the run is INCONCLUSIVE."""
    accused: int
    kind: bool
    first_kind: bool
    position: bool
    said: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is looked at of a comparison; all of it would be kept at ten times the memory."""

    verdict: Verdict
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, result: Comparison) -> Outcome:
        return cls(result.verdict, tuple(result.findings))


@cache
def data() -> dict[str, Any]:
    with gzip.open(DATA) as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def _header(arm: str, sampling: dict[str, Any]) -> Header:
    speculative = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
    return Header(
        arm=arm,
        backend="cpu",
        variant=arm.split("/")[1],
        model="tiny-qwen3-next-mtp",
        vocab_size=2048,
        eos_token_ids=(0,),
        engine=speculative if arm.endswith("mtp") else {},
        sampling=sampling,
    )


def _completion(row: dict[str, Any], tokens: list[int], finish: str | None) -> Completion:
    return Completion(
        key=Key(row["request"], 0, 0),
        prompt_token_ids=np.array(row["prompt"], dtype=np.int64),
        token_ids=np.array(tokens, dtype=np.int64),
        text=None,
        finish_reason=finish,
        stop_reason=None,
    )


def _scores(tokens: list[int], packed: dict[str, list[Any]], top: int) -> TopLogprobs:
    """Unpacks milli-nats: the best `top` tokens of every position and, last, the one chosen."""
    count = len(tokens)
    best = np.array(packed["best"], dtype=np.float64).reshape(count, top, 2)
    chosen = np.array([np.nan if value is None else value for value in packed["chosen"]], dtype=np.float64)
    ids = np.concatenate([best[:, :, 0], np.array(tokens, dtype=np.float64)[:, None]], axis=1)
    values = np.concatenate([best[:, :, 1], chosen[:, None]], axis=1) / 1000
    return TopLogprobs(ids.astype(np.int64), values)


def _joined(head: TopLogprobs, start: int, tail: TopLogprobs) -> TopLogprobs:
    return TopLogprobs(np.concatenate([head.ids[:start], tail.ids]), np.concatenate([head.values[:start], tail.values]))


def _worst_gap(scores: TopLogprobs, prompt: list[int], tokens: list[int], *, penalised: bool) -> float:
    """Largest distance (nats) of a chosen token from the best one that it had to beat.

    Scores are raw. Under a repetition penalty a token seen before may lose against its own score, so only
    tokens not yet seen count as rivals.
    """
    seen = set(prompt)
    worst = 0.0
    for position, token in enumerate(tokens):
        rivals = [
            value
            for rival, value in zip(scores.ids[position, :-1], scores.values[position, :-1], strict=True)
            if not penalised or int(rival) not in seen
        ]
        chosen = float(scores.values[position, -1])
        worst = max([worst, *(float(rival) - chosen for rival in rivals if not np.isnan(rival - chosen))])
        seen.add(token)
    return worst


@cache
def clean(world: str) -> tuple[Capture, Capture, dict[ScoreKey, TopLogprobs]]:
    """The undamaged pair of a world and the scores of the candidate."""
    part = data()["worlds"][world]
    rows = part["rows"]
    base = [_completion(row, row["base"], row["base_finish"]) for row in rows]
    other = [_completion(row, row["candidate"] or row["base"], row["finish"]) for row in rows]
    scores = {
        ScoreKey(ARMS[1], *c.key): _scores(c.token_ids.tolist(), row["scores"], part["top"])
        for c, row in zip(other, rows, strict=True)
    }
    counters = {"num_drafts": 3000, "num_draft_tokens": 6000, "num_accepted_tokens": 5200}
    return (
        Capture(_header(ARMS[0], part["sampling"]), {c.key: c for c in base}, {}, {}),
        Capture(_header(ARMS[1], part["sampling"]), {c.key: c for c in other}, {}, counters),
        scores,
    )


@cache
def cases(world: str) -> tuple[Case, ...]:
    return tuple(_cases(world))


def _cases(world: str) -> Iterator[Case]:
    _, candidate, scores = clean(world)
    part = data()["worlds"][world]
    for plant in part["plants"]:
        row, start = part["rows"][plant["row"]], plant["start"]
        whole = row["candidate"] or row["base"]
        tokens = [*whole[:start], *plant["tokens"]]
        key = Key(row["request"], 0, 0)
        score_key = ScoreKey(ARMS[1], *key)
        tail = _scores(plant["tokens"], plant["scores"], part["top"])
        new = _joined(scores[score_key], start, tail)
        penalised = part["sampling"]["repetition_penalty"] != 1.0
        worst = _worst_gap(new, [*row["prompt"]], tokens, penalised=penalised)
        shape = plant["kinds"][0] in SHAPE_KEPT
        yield Case(
            world=world,
            fault=plant["fault"],
            where=plant["where"],
            after_near_tie=plant["after_near_tie"],
            in_loop=plant["in_loop"],
            kinds=tuple(plant["kinds"]),
            position=plant["position"],
            positions=frozenset(plant["positions"]),
            key=key,
            candidate=replace(
                candidate,
                completions={
                    **candidate.completions,
                    key: _completion(row, tokens, plant["finish"]),
                },
            ),
            scores={**scores, score_key: new},
            traceless=bool(shape and worst <= 0.25),
        )


@cache
def compared(world: str) -> tuple[Outcome, ...]:
    """What the comparison says of each case, in their order. Several modules ask, and it takes a minute."""
    baseline = clean(world)[0]
    return tuple(Outcome.of(compare(baseline, one.candidate, one.scores, CompareOptions())) for one in cases(world))


def _some_rows(arm: Capture, key: Key, count: int) -> Capture:
    """So many completions of an arm, in the order of the capture, with this one among them."""
    keys = list(arm.completions)
    start = keys.index(key) // count * count
    return replace(arm, completions={one: arm.completions[one] for one in keys[start : start + count]})


def ask(
    case: Case, *, with_scores: bool = True, options: CompareOptions | None = None, rows: int | None = None
) -> Answer:
    """Runs the comparison on one damaged capture; `rows`: on so many of its rows, and those alone that differ are
    scored."""
    baseline, candidate, scores = clean(case.world)[0], case.candidate, case.scores if with_scores else {}
    if rows is not None:
        baseline, candidate = (_some_rows(arm, case.key, rows) for arm in (baseline, candidate))
        apart = {
            key
            for key, one in candidate.completions.items()
            if not np.array_equal(one.token_ids, baseline.completions[key].token_ids)
        }
        scores = {key: top for key, top in scores.items() if Key(*key[1:]) in apart}
    return answer(case, Outcome.of(compare(baseline, candidate, scores, options or CompareOptions())))


def answer(case: Case, result: Outcome) -> Answer:
    """Whether that is what a comparison should say of the case."""
    corrupt = [f for f in result.findings if f.severity is Severity.CORRUPT]
    mine = [f for f in corrupt if f.key == case.key]
    right = [f for f in mine if f.kind in case.kinds]
    earliest = min(mine, key=lambda f: -1 if f.position is None else f.position, default=None)
    return Answer(
        case=case,
        found=bool(mine),
        left_open=result.verdict is Verdict.INCONCLUSIVE and any(f.key == case.key for f in result.findings),
        accused=len({f.key for f in corrupt if f.request} - {case.key}),
        kind=bool(right),
        first_kind=earliest is not None and earliest.kind in case.kinds,
        position=any(f.position in case.positions for f in right),
        said="; ".join(f"{f.kind}@{f.position}+{f.length}" for f in mine) or "nothing",
    )
