"""What a far worker says of steps and sketches: a file of each lie, for the liar to send while it completes."""

from __future__ import annotations

import base64
import json
import random
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from insides import SKETCHES, STEPS, Edit, block, head, honest, packed

INT = {"<i1": 1, "<i2": 2, "<i4": 4, "<i8": 8}


def numbers(name: str, values: Any) -> Edit:
    """A column of the block with these numbers in it, however many it should have."""

    def change(lines: list[Any]) -> None:
        import numpy as np

        one, at = lines[1], 0
        raw = zlib.decompress(base64.b64decode(one["data"]))
        pieces, columns = [], []
        for column, kind, count in one["columns"]:
            size = INT[kind.replace("|", "<")] * count
            piece = raw[at : at + size]
            at += size
            if column == name:
                made = np.resize(np.array(values, dtype="<i8"), count)
                kind, piece = "<i8", made.tobytes()
            columns.append([column, kind, count])
            pieces.append(piece)
        one.update(columns=columns, data=base64.b64encode(zlib.compress(b"".join(pieces))).decode())

    return change


def floats(name: str, value: float) -> Edit:
    """A column of sketches of this number alone."""

    def change(lines: list[Any]) -> None:
        import numpy as np

        from parity.capture.sketch_table import pack_sketches, unpack_sketches

        one = lines[1]
        found = dict(unpack_sketches(one["tokens"], one["columns"], one["data"]))
        for column in found:
            if column.partition("/")[0] == name:
                found[column] = np.full_like(found[column], value)
        one.update(pack_sketches(found))

    return change


def again(*order: int) -> Edit:
    """These lines of the file, in this order."""
    return lambda lines: lines.__setitem__(slice(None), [lines[at] for at in order])


def listed(block: Any, values: bytes, level: int = 9) -> Any:
    """The block as one row-step with a list of these numbers."""
    columns = [("step", "<i1", 1), ("rows", "<i1", 1), ("request", "<i1", 1), ("inputs.n", "<i4", 1), ("inputs", "<i1", len(values))]  # fmt: skip
    data = bytes([1, 1, 0]) + len(values).to_bytes(4, "little") + values
    return {
        **block,
        "steps": 1,
        "rows": 1,
        "columns": columns,
        "data": base64.b64encode(zlib.compress(data, level)).decode(),
    }


def dense(block: Any) -> Any:
    """What packs well."""
    return listed(block, bytes((1 << 24) - 16))


def bulky(block: Any) -> Any:
    """What does not: many honest bytes."""
    return listed(block, random.Random(0).randbytes(1 << 22).translate(bytes(range(128)) * 2), level=1)


def empty(block: Any) -> Any:
    return {**block, "steps": 0, "rows": 0, **packed([(name, "<i1", 0) for name in ("step", "rows", "request")], 0)}


def strangers(block: Any) -> Any:
    """Names a hundred thousand requests."""
    return {**block, "requests": [{"number": number, "request": "x" * 50} for number in range(100_000)]}


def broken(block: Any) -> Any:
    """A row-step in the wrong row."""
    columns = [(name, "<i1", 1) for name in ("step", "rows", "request", "index_row")]
    return {
        **block,
        "steps": 1,
        "rows": 1,
        "columns": columns,
        "data": base64.b64encode(zlib.compress(bytes([1, 1, 0, 3]))).decode(),
    }


def many_broken(lines: list[Any]) -> None:
    """All rows of a large block break what can be broken."""
    rows = 1 << 18
    columns = [("step", "<i1", 1), ("rows", "<i4", 1), *((name, "<i1", rows) for name in ("request", "index_row"))]
    data = bytes([1]) + rows.to_bytes(4, "little") + bytes(rows) + b"\x03" * rows
    lines[1].update(steps=1, rows=rows, columns=columns, data=base64.b64encode(zlib.compress(data, 9)).decode())


ORDERS: dict[str, Edit] = {
    "block before header": again(1, 0), "header twice": again(0, 0, 1), "header between blocks": again(0, 1, 0, 1), "block twice": again(0, 1, 1), "the header last": again(0, 1, 0),
    "stopped at once": lambda lines: lines.insert(0, {"record": lines[0]["record"].replace("header", "stopped"), "step": 0, "why": "x"}),
    "stopped, then more": lambda lines: lines.insert(1, {"record": lines[0]["record"].replace("header", "stopped"), "step": 2**70, "why": "x" * 100_000}),
    "columns of a million": block(columns=[["x", "<i1", 0]] * 1_000_000), "a column of a long name": block(columns=[["x" * 1_000_000, "<i1", 0]]), "objects": lambda lines: lines[1]["columns"].__setitem__(0, [lines[1]["columns"][0][0], "|O", 5]),
    "a dtype of 2^70": lambda lines: lines[1]["columns"].__setitem__(0, [lines[1]["columns"][0][0], "<i1", 2**70]), "negative entries": lambda lines: lines[1]["columns"].__setitem__(0, [lines[1]["columns"][0][0], "<i1", -5]),
    "data of NUL": block(data="\x00" * 100), "data of 60 MB": block(data="A" * (60 << 20)), "data not a text": block(data=5), "a stranger's replica": lambda lines: [one.update(replica=77) for one in lines],
}  # fmt: skip
LIES: dict[str, dict[str, Edit]] = {
    "steps": {
        **STEPS, **ORDERS, "rows negative": numbers("rows", [-1, 3]), "rows of 2^40": numbers("rows", [2**40]), "steps that go back": numbers("step", [5, -4]), "steps of 2^62": numbers("step", [2**62]), "requests negative": numbers("request", [-1]), "requests of 2^40": numbers("request", [2**40]),
        "one number everywhere": numbers("computed", [2**23]), "lengths that do not add up": numbers("sampled.n", [9]), "lengths negative": numbers("sampled.n", [-7]), "tokens of 2^31": numbers("sampled", [2**31]), "one step again and again": numbers("step", [0]), "one request in every row": numbers("request", [0]),
        "many broken rows": many_broken, "unseen of 4 MB": head(unseen={str(number): "x" * 40 for number in range(50_000)}), "limits without end": head(limits={str(number): number for number in range(200_000)}),
    },
    "sketches": {
        **SKETCHES, **ORDERS, "NaN norms": floats("norm", float("nan")), "infinite norms": floats("norm", float("inf")), "norms below nothing": floats("norm", -7.0), "NaN sketches": floats("sketch", float("nan")), "infinite sketches": floats("sketch", float("-inf")), "gaps of NaN": floats("gap", float("nan")),
        "experts below 0": floats("experts", -5), "tokens below 0": floats("token", -5), "positions of 2^31": floats("position", 2**31 - 1), "steps below 0": floats("step", -(2**31)), "requests of nobody at all": floats("request", 12345), "names of 1 MB": lambda lines: [one.update(name=one["name"] + "x" * (1 << 20)) for one in lines[0]["modules"]], "orders of 2^70": lambda lines: [one.update(order=2**70) for one in lines[0]["modules"]],
    },
}  # fmt: skip
LIES["ring"] = LIES["steps"]
ANYWHERE: dict[str, Callable[[list[Any]], list[tuple[int, Any]]]] = {
    "blocks without end": lambda lines: [(1, lines[0]), (-1, lines[1])],
    "headers without end": lambda lines: [(-1, lines[0])],
    "empty blocks without end": lambda lines: [(1, lines[0]), (-1, empty(lines[1]))],
    "dense blocks": lambda lines: [(1, lines[0]), (200, dense(lines[1]))],
    "bulky blocks": lambda lines: [(1, lines[0]), (60, bulky(lines[1]))],
    "blocks of strangers": lambda lines: [(1, lines[0]), (20, strangers(lines[1]))],
    "blocks of one broken row": lambda lines: [(1, lines[0]), (20_000, broken(lines[1]))],
}
BOTH_KINDS = ("blocks without end", "headers without end")
AFTER = ("after the end", "unasked")
CASES = [
    *(
        f"{what}: {name}"
        for what, table in LIES.items()
        for name in (*table, *ANYWHERE, AFTER[0])
        if what != "sketches" or name not in ANYWHERE or name in BOTH_KINDS
    ),
    *(f"{what}: {AFTER[1]}" for what in ("unrecorded", "unsketched")),
]
SHORT = ("ring: bulky blocks", "sketches: NaN norms")
SETTINGS = {"steps": 'record = "all"', "ring": 'record = "ring"', "sketches": 'sketch = "parts"'}
SCALED = {"unrecorded": "steps", "unsketched": "sketches", "ring": "steps"}


def write(case: str, path: Path) -> None:
    """What is sent of a case: how often (-1: without end), and a line; requests are named by their place, as @0."""
    what, _, name = case.partition(": ")
    kind = SCALED.get(what, what)
    made = [json.loads(line) for line in honest()[0 if kind == "steps" else 1]]
    for number, one in enumerate(made[1].get("requests", [])):
        if one.get("request") is not None:
            one["request"] = f"@{number % 4}"
    if name in LIES.get(what, {}):
        LIES[what][name](made)
    sent = ANYWHERE.get(name, lambda lines: [(1, line) for line in lines])(made)
    with path.open("wb") as file:
        for times, line in sent:
            file.write(b"%d %s\n" % (times, json.dumps(line).encode()))
