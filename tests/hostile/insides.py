"""Steps and sketches beside a run, from somebody else: every command that reads them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from asked import Asked
from judging import ROOT, Ended, place
from stores import MOVES, base

sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]
WORLDS = import_module("sketch_world"), import_module("step_world")


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("why",), ("why", "--json"), ("locate",), ("locate", "--json"), ("runs", "check"), ("report", "--format", "md"), ("report", "--format", "html"),
    ("table",), ("runs", "show"), ("compare", "run/fake-base.jsonl", "run/fake-mtp.jsonl", "--tolerance", "0.1"), ("run", "--resume", "--out", "run"),
)  # fmt: skip
Edit = Callable[[list[Any]], Any]
"""Of the lines of a file, a header and a block."""


def head(**fields: Any) -> Edit:
    return lambda lines: lines[0].update(fields)


def block(**fields: Any) -> Edit:
    return lambda lines: lines[1].update(fields)


def requests(**fields: Any) -> Edit:
    return lambda lines: [one.update(fields) for one in lines[1]["requests"]]


def packed(kinds: list[tuple[str, str, int]], size: int) -> dict[str, Any]:
    return {"columns": kinds, "data": base64.b64encode(zlib.compress(bytes(size), 9)).decode()}


def huge(lines: list[Any]) -> None:
    rows = 1 << 20
    names = ("request", "arrival", "computed", "scheduled", "index_row")
    columns = [("step", "<i1", 1), ("rows", "<i4", 1), *((name, "<i1", rows) for name in names)]
    lines[1].update(steps=1, rows=rows, **packed(columns, 5 + rows * len(names)))
    lines[2:] = [lines[1]] * 200


def many_modules(lines: list[Any]) -> None:
    tokens, names = 1 << 19, ("step", "row", "request", "position", "token")
    lines[0]["modules"] = [{"name": str(number), "order": number} for number in range(4096)]
    lines[1].update(tokens=tokens, **packed([(name, 1) for name in names], 4 * tokens * len(names)))  # type: ignore[misc,list-item]


MEGABYTES = 1
"""Of a file just below its bounds."""
Made = Callable[[int], tuple[dict[str, Any], tuple[int, ...]]]
"""A block by its number, and what it takes of a room."""


def just_below(lines: list[Any], room: Callable[[], Any], block_of: Made) -> None:
    """Blocks that unpack to as much as the room of a file of MEGABYTES allows: packed as well as can be, and padded (a
    key that nobody reads) to that size."""
    counted, made = room(), []
    counted.take(int(0.9 * (MEGABYTES << 20)), *(0,) * (len(block_of(0)[1])))
    with contextlib.suppress(ValueError):  # then it is full
        while True:
            one, costs = block_of(len(made))
            counted.take(0, *costs)
            made.append(one)
    taken = sum(len(json.dumps(one)) for one in made)
    made[0]["padding"] = "x" * max(0, (MEGABYTES << 20) - taken)
    lines[1:] = made


def tightly(packed: dict[str, Any]) -> dict[str, Any]:
    raw = zlib.decompress(base64.b64decode(packed["data"]))
    return {**packed, "data": base64.b64encode(zlib.compress(raw, 9)).decode()}


def steps_just_below(lines: list[Any]) -> None:
    table, room = import_module("parity.capture.step_table"), import_module("parity.capture.room").steps_room
    columns, first = table.unpack_block(lines[1]["columns"], lines[1]["data"]), lines[1]
    times = 300

    def tiled(values: Any) -> Any:
        return np.tile(values, times) if isinstance(values, np.ndarray) else type(values)(*map(tiled, values))

    def block_of(number: int) -> tuple[dict[str, Any], tuple[int, ...]]:
        steps, rows = first["steps"] * times, first["rows"] * times
        told = {**{name: tiled(one) for name, one in columns.items()}, "step": number * steps + np.arange(steps)}
        packed = tightly(table.pack_block(told))
        numbers = sum(count for _, _, count in packed["columns"])
        asked = [] if number else first["requests"]
        return {**first, **packed, "steps": steps, "rows": rows, "requests": asked}, (numbers, rows, 0)

    just_below(lines, room, block_of)


def sketches_just_below(lines: list[Any]) -> None:
    table, room = import_module("parity.capture.sketch_table"), import_module("parity.capture.room").sketches_room
    first = lines[1]
    columns = table.unpack_sketches(first["tokens"], first["columns"], first["data"])
    times = 40

    def block_of(number: int) -> tuple[dict[str, Any], tuple[int, ...]]:
        told = {name: np.concatenate([values] * times) for name, values in columns.items()}
        packed, size = tightly(table.pack_sketches(told)), sum(one.nbytes for one in told.values())
        asked = [] if number else first["requests"]
        return {**first, **packed, "tokens": first["tokens"] * times, "requests": asked}, (size,)

    just_below(lines, room, block_of)


BOTH: dict[str, Edit] = {
    "honest": lambda lines: None,
    "arm that moves": head(arm=MOVES), "another schema": head(schema="x/9"), "no header": lambda lines: lines.pop(0), "headers alone": lambda lines: lines.__setitem__(slice(1, None), [lines[0]] * 5000),
    "request that moves": requests(request=MOVES), "requests of nobody": requests(request="nobody"), "requests of one": requests(request="p0", round=0, sample=0), "numbers of 2^40": requests(number=2**40),
    "prompts of 2^62": requests(prompt_tokens=2**62), "prompts negative": requests(prompt_tokens=-1), "no requests": block(requests=[]), "data not base64": block(data="!" * 1000), "data of nothing": block(data=""),
    "data cut": lambda lines: lines[1].update(data=lines[1]["data"][:400]), "columns of text": block(columns="x"), "columns nested": block(columns=[[["x"]]]), "no columns": block(columns=[]),
    "replica of 2^62": lambda lines: [one.update(replica=2**62) for one in lines], "the block 300 times": lambda lines: lines.extend([lines[1]] * 300), "nested": lambda lines: lines.__setitem__(1, json.loads("[" * 200 + "]" * 200)),
}  # fmt: skip
STEPS: dict[str, Edit] = {
    **BOTH, "just below the bounds": steps_just_below, "a gigabyte of zeros": huge, "groups of a million": head(groups=[{}] * 1_000_000), "blocks of 2^40": head(groups=[{"kind": MOVES, "block_size": 2**40}] * 2), "limits of text": head(limits={MOVES: "x"}),
    "unseen that moves": head(unseen={"*": {"text": MOVES, "id": MOVES, "parameters": {"x": MOVES}}, MOVES: MOVES}), "unseen nested": head(unseen={"computed": json.loads("[" * 100 + "]" * 100)}), "a ring": head(kept="ring"),
    "counts of 2^62": lambda lines: lines.append({"record": "steps_summary", "steps": 2**62, "row_steps": 2**62, "broken": 2**62, "violations": {MOVES: 2**62}}), "counts negative": lambda lines: lines.append({"record": "steps_summary", "row_steps": -5, "broken": -5}),
    "invariants of nobody": lambda lines: lines.append({"record": "steps_summary", "steps": 5, "row_steps": 9, "broken": 3, "asked": {MOVES: 4}, "violations": {MOVES: 3, "x": 1}}), "stopped that moves": lambda lines: lines.append({"record": "steps_stopped", "step": 2**62, "why": MOVES}),
    "rows of 2^62": block(rows=2**62), "steps of 2^30": block(steps=2**30), "columns of 2^40": lambda lines: lines[1]["columns"].__setitem__(0, ["step", "<i1", 2**40]), "columns of floats": lambda lines: lines[1]["columns"].__setitem__(0, ["step", "<f8", 5]),
}  # fmt: skip
SKETCHES: dict[str, Edit] = {
    **BOTH, "just below the bounds": sketches_just_below, "many modules": many_modules, "no modules": head(modules=[]), "modules twice": lambda lines: lines[0]["modules"].append(lines[0]["modules"][0]), "modules that move": lambda lines: [one.update(name=MOVES + one["name"], type=MOVES, role=MOVES) for one in lines[0]["modules"]],
    "modules of markup": lambda lines: [one.update(name="<script>x</script>[red]" + one["name"], type="<b>") for one in lines[0]["modules"]], "orders of 2^62": lambda lines: [one.update(order=2**62) for one in lines[0]["modules"]], "tokens of 2^62": block(tokens=2**62), "tokens negative": block(tokens=-1),
    "a width of 2^40": lambda lines: lines[1]["columns"].__setitem__(0, [lines[1]["columns"][0][0], 2**40]), "a module of nobody": lambda lines: lines[1]["columns"].__setitem__(-1, ["norm/4000", 1]),
    "stopped that moves": lambda lines: lines.append({"record": "sketches_stopped", "step": 1, "why": MOVES}),
}  # fmt: skip
FILES: dict[str, Callable[[Path], None]] = {
    "a pipe": lambda path: os.mkfifo(path), "a device": lambda path: path.symlink_to("/dev/zero"), "a secret": lambda path: path.symlink_to("/etc/passwd"), "a folder": lambda path: path.mkdir(),
    "brackets": lambda path: path.write_bytes(b"[" * 1_000_000 + b"\n") and None, "100 MB of one line": lambda path: path.write_bytes(b"x" * (100 << 20)) and None, "zeros": lambda path: path.write_bytes(bytes(5000)) and None,
    "blank lines": lambda path: path.write_bytes(b"\n" * 1_000_000) and None, "not UTF-8": lambda path: path.write_bytes(b'{"record":"\xff"}\n') and None,
}  # fmt: skip
CASES = [f"{what}: {name}" for what, table in (("steps", STEPS), ("sketches", SKETCHES)) for name in (*table, *FILES)]
PLANTED = {"steps": "fake-mtp.steps", "sketches": "fake-mtp.sketches", "reference": "scores.sketches"}
SHORT = ("steps: unseen that moves", "sketches: many modules")


@cache
def honest() -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]:
    """Lines of steps, of sketches, and of the reference's."""
    sketches, steps = WORLDS
    world = sketches.World(completions=9, length=14)
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "x.sketches"
        ours, theirs = (
            tuple(sketches.write_sketches(path, one).read_bytes().splitlines())
            for one in (world.candidate(), world.reference())
        )
    return tuple(steps.steps_lines(steps.World(1, steps=20).recorded())), ours, theirs


def campaign(asked: Asked) -> Iterator[Ended]:
    """Each file beside the candidate, read by every command."""
    with place() as here:
        yield base(here)
        run = here.work / "run"
        for case in SHORT if asked.short else asked.piece(CASES):
            prepare(run, case)
            some = COMMANDS[:1] + COMMANDS[-2:-1] if asked.short else COMMANDS
            yield from here.run_several(case, some, seconds=60.0, mib=900)
            for name in PLANTED.values():
                remove(run / name)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def prepare(run: Path, case: str) -> None:
    """The run as somebody else has it: named by its own requests, one file lies."""
    what, _, name = case.partition(": ")
    ids = [request["id"] for request in json.loads((run / "plan.json").read_text())["requests"]]
    texts = dict(zip(("steps", "sketches", "reference"), honest(), strict=True))
    for which, target in PLANTED.items():
        lines = [json.loads(line) for line in texts[which]]
        for number, one in enumerate(lines[1].get("requests", [])):
            if one.get("request") is not None:
                one["request"] = ids[number % len(ids)]
        if which == what:
            if name in FILES:
                FILES[name](run / target)
                continue
            (STEPS if what == "steps" else SKETCHES)[name](lines)
        (run / target).write_text("".join(json.dumps(line) + "\n" for line in lines))
