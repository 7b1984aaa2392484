"""Mutations of steps and sketches that leave them readable, and what is asked of them after: invariants, conditions, modules."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from sketch_world import World as SketchWorld
from sketch_world import write_sketches
from step_world import World as StepWorld
from step_world import steps_lines

from parity.capture.sketch_table import pack_sketches, split_sketch_name, unpack_sketches
from parity.capture.sketches import read_sketches
from parity.capture.step_table import Ragged, pack_block, unpack_block
from parity.capture.steps import StepsBlock, StepsHeader, read_steps
from parity.explain.aligned import align
from parity.explain.located import locate
from parity.explain.ring import Limits, ringed
from parity.pipeline.beneath import unjudged, why_located
from parity.pipeline.inside import look_inside
from parity.records import Capture
from parity.text import visible
from parity.view.lanes import lanes_of
from parity.view.timeline import timeline_of
from parity.view.why import explained
from parity.view.why_said import said

NUMBERS = (-1, 0, 1, 2, 3, 7, 16, 63, 1000, 2**16, 2**24 - 1, 2**31, 2**40, -5, -(2**31))
FLOATS = (0.0, -1.0, 1.0, 1e-30, 6e4, float("nan"), float("inf"), float("-inf"), -5.0)
WORDS = ("", "attention", "state", "none", "\x1b[2J\u202e", "[red]x[/red]", "cpu/mtp", "*", "p0", "x" * 300)


@cache
def world() -> StepWorld:
    return StepWorld(1, steps=12)


@cache
def recorded_capture() -> Capture:
    return world().capture("cpu/mtp", world().recorded())


@cache
def sketched() -> SketchWorld:
    return SketchWorld(completions=9, length=16)


def step_seeds() -> list[bytes]:
    return [b"".join(steps_lines(StepWorld(seed, steps=12).recorded())) for seed in (1, 2)]


def sketch_seeds(folder: Path) -> list[bytes]:
    return [write_sketches(folder / "seed.sketches", sketched().candidate()).read_bytes()]


# ------------------------------------------------------------------ what is asked


def recorded(path: Path) -> None:
    """Every question to a steps file: invariants, a ring, conditions, the drawing. Raises CaptureError where it is none."""
    starts, prompts = read_steps(path), world().prompts
    look_inside(recorded_capture(), starts)
    places = {key: [0, 3, 500] for key in prompts}
    for line in said(explained("cpu/mtp", starts, prompts, places)):
        str(line)
    for steps in starts:
        for key in [one.key for one in steps.requests.values()][:3]:
            drawn = None if key is None else timeline_of(steps, key)
            if drawn is not None:
                lanes_of(drawn, 3, 80)
    whole = [one for one in path.read_bytes().split(b"\n")[:-1] if b'"steps_header"' in one or b'"steps"' in one]
    lines = [msgspec.json.decode(one, type=StepsHeader | StepsBlock) for one in whole[:4]] if starts else []
    if lines and isinstance(lines[0], StepsHeader):
        blocks = [one for one in lines if isinstance(one, StepsBlock)]
        list(ringed(lines[0], blocks, prompts, Limits(20, 40, 8, 40)))


def beneath(path: Path, reference: Path) -> None:
    """The first wrong module, by a sketches file against an honest one."""
    if not reference.exists():
        write_sketches(reference, sketched().reference())
    found = locate(align(sketched().capture(), read_sketches(path), read_sketches(reference)))
    for one in found.located:
        assert visible(str(one.step)) == str(one.step)
        str(why_located(one))
    unjudged(found)


# ------------------------------------------------------------------ mutations


def gently_recorded(rng: random.Random, data: bytes) -> bytes:
    """Another number, list, request or header; the block is packed again."""
    lines = [json.loads(line) for line in data.splitlines()]
    block = rng.choice([one for one in lines if one["record"] == "steps"])
    how = rng.randrange(10)
    if how == 0:
        header = lines[0]
        name = rng.choice(("groups", "speculative_tokens", "mamba_cache_mode", "limits", "unseen", "kept", "arm"))
        header[name] = {
            "groups": [{"kind": rng.choice(WORDS), "block_size": rng.choice((0, 1, 3, 2**30))}] * rng.randrange(4),
            "speculative_tokens": rng.choice((0, 1, 9, 2**30)), "mamba_cache_mode": rng.choice(WORDS),
            "limits": {"max_num_seqs": rng.choice((0, 1, 2**30))}, "unseen": {rng.choice(("*", "computed", "written/0")): rng.choice(WORDS)},
            "kept": rng.choice(("all", "ring", "x")), "arm": rng.choice(WORDS),
        }[name]  # fmt: skip
        return written(lines)
    if how == 1:
        one = rng.choice(block["requests"])
        name = rng.choice(("prompt_tokens", "max_tokens", "round", "stops", "plain", "request"))
        one[name] = {"stops": [rng.choice(NUMBERS)], "plain": bool(rng.randrange(2)),
                     "request": rng.choice((*WORDS, None))}.get(name, abs(rng.choice(NUMBERS)) % 2**31)  # fmt: skip
        return written(lines)
    columns = unpack_block(block["columns"], block["data"])
    name = rng.choice(list(columns))
    if how == 2:
        del columns[name]
    else:
        columns[name] = altered(rng, columns[name])
    if how == 3:  # a step or more is cut off
        block["steps"] = max(1, block["steps"] - rng.randrange(1, 4))
    if "rows" in columns and len(columns["rows"]):
        block["rows"] = int(np.clip(columns["rows"], 0, 2**24).sum()) % 2**31
    block.update(pack_block(columns))
    return written(lines)


def altered(rng: random.Random, column: Any) -> Any:
    """Some entries of a column as other numbers, or other lists."""
    if not isinstance(column, Ragged):
        found = column.copy()
        for _ in range(rng.choice((1, 1, 3, len(found)))):
            if len(found):
                at = rng.randrange(len(found))
                found[at] = rng.choice((rng.choice(NUMBERS), int(found[rng.randrange(len(found))])))
        return found
    lists = [column.row(at) for at in range(len(column.counts))]
    for _ in range(rng.choice((1, 1, 3, len(lists)))):
        if lists:
            at = rng.randrange(len(lists))
            other = lists[rng.randrange(len(lists))]
            drawn = [rng.choice(NUMBERS) for _ in range(rng.randrange(5))]
            lists[at] = rng.choice((other, drawn, [*lists[at], rng.choice(NUMBERS)], lists[at][1:]))
    counts = np.array([len(one) for one in lists], dtype=np.int64)
    return Ragged(counts, np.array([value for one in lists for value in one], dtype=np.int64))


def gently_sketched(rng: random.Random, data: bytes) -> bytes:
    lines = [json.loads(line) for line in data.splitlines()]
    block = rng.choice([one for one in lines if one["record"] == "sketches"])
    how = rng.randrange(8)
    if how == 0:
        modules = lines[0]["modules"]
        one = rng.choice(modules)
        name = rng.choice(("name", "role", "type", "order"))
        one[name] = (
            rng.choice((-1, 0, 99, 2**40)) if name == "order" else rng.choice((*WORDS, "router", "output", "logits"))
        )
        return written(lines)
    if how == 1:
        one = rng.choice(block["requests"])
        one[rng.choice(("prompt_tokens", "round"))] = abs(rng.choice(NUMBERS)) % 2**31
        one["request"] = rng.choice((*WORDS, None, one.get("request")))
        return written(lines)
    columns = unpack_sketches(block["tokens"], block["columns"], block["data"])
    name = rng.choice(list(columns))
    if how == 2 and len(columns) > 6:
        del columns[name]
    else:
        column, _ = split_sketch_name(name)
        values = columns[name].copy().reshape(-1)
        many = rng.choice((1, 5, len(values)))
        chosen = np.array([rng.randrange(len(values)) for _ in range(many)]) if len(values) else np.zeros(0, dtype=int)
        drawn = [rng.choice(FLOATS if "f" in column.kind else NUMBERS) for _ in range(len(chosen))]
        with np.errstate(over="ignore", invalid="ignore"):
            values[chosen] = np.array(drawn).astype(values.dtype)
        columns[name] = values.reshape(columns[name].shape)
    block.update(pack_sketches(columns))
    return written(lines)


def written(lines: list[Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
