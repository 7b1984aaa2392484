"""What is fuzzed: each door takes bytes, and may say no in words (`ParityError` and its like) and in no other way."""

from __future__ import annotations

import atexit
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from rich.style import Style

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from step_world import World, steps_lines

from parity.capture import (
    ScoreFile,
    capture_records,
    check_capture,
    dump_line,
    read_capture,
    write_capture,
)
from parity.capture.problems import Malformed
from parity.capture.sealing import sealed
from parity.capture.steps import read_steps
from parity.comparator import CompareOptions, compare
from parity.errors import ParityError
from parity.pipeline.analyse import arm_result, for_store, plan_of_captures
from parity.plan import Plan
from parity.records import Capture, Completion, Header, Key, ScoreKey, Scores, SpecTrace, TopLogprobs
from parity.report.formats import names
from parity.report.write import documents
from parity.run import adapters
from parity.run.messages import ProtocolError, decode, held_record
from parity.store import FindingFilter, FindingSort, NewRun, RunStatus, Store
from parity.store.integrity import problems
from parity.text import visible
from parity.tui.drawing import Drawing
from parity.tui.screens import logprobs_panel, panels
from parity.tui.widgets.paneltext import Palette
from parity.tui.widgets.sides import flow
from parity.view import of_store
from parity.view.completion import CompletionView
from tests.hostile.fuzz import inner
from tests.hostile.fuzz.interface import Interface


class NoInput(Exception):
    """Nothing that this door would even look at."""


ALLOWED = (ParityError, ProtocolError, Malformed, NoInput)
LARGEST = 1 << 16
"""Bytes of an input: faults of size are the bombs' business."""

MEMORY = Path("/dev/shm")
SCRATCH = Path(tempfile.mkdtemp(prefix="parity-fuzz-", dir=MEMORY if MEMORY.is_dir() else None))
adapters._installed = cache(adapters._installed)  # what is installed stays so, and is looked up for each arm
PALETTE = Palette(*[Style()] * len(Palette._fields))


# ------------------------------------------------------------------ what is mutated


def pair() -> tuple[Capture, Capture, Scores]:
    """A small baseline and a candidate with faults: a near-tie, a repetition, an early end, another request's tokens."""
    rng = np.random.default_rng(7)
    streams = [rng.integers(3, 900, 24) for _ in range(4)]
    prompts = [rng.integers(3, 900, 6) for _ in range(4)]
    others = [one.copy() for one in streams]
    others[0][9] += 1
    others[1] = np.concatenate([streams[1][:12], streams[1][8:12], streams[1][8:12], streams[1][12:16]])
    others[2] = others[2][:11]
    others[3][6:18] = streams[0][6:18]
    names_of = ("a/base", "a/mtp")
    arms = []
    for name, rows in zip(names_of, (streams, others), strict=True):
        kept = {}
        for number, ids in enumerate(rows):
            key = Key(f"p{number}", 0, 0)
            top = TopLogprobs.from_json([[[int(one), -0.25], [int(one) + 1, -0.3]] for one in ids])
            trace = SpecTrace(np.array([1, 2, 0, 1]), np.array([2, 2, 2, 2])) if name == "a/mtp" else None
            kept[key] = Completion(key, prompts[number], ids, "some text", "length", None, top, trace)
        engine = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}} if name == "a/mtp" else {}
        counters = {"drafts": 9, "draft_tokens": 18, "accepted_tokens": 9, "steps": 20, "rows_moved": 2, "tokens": 90}
        header = Header(name, "a", name[2:], "m", 1000, (2,), engine, {"temperature": 0.0, "max_tokens": 24, "n": 1})
        arms.append(Capture(header, kept, {}, counters))
    scores = {
        ScoreKey("a/mtp", *one.key): TopLogprobs.from_json([[[int(t), -9.0], [7, -0.5]] for t in one.token_ids])
        for one in arms[1]
    }
    return arms[0], arms[1], scores


@cache
def baseline() -> Capture:
    return pair()[0]


def unsealed(capture: Capture) -> bytes:
    return b"".join(dump_line(record) for record in capture_records(capture))


def seeds() -> dict[str, list[bytes]]:
    """Beginnings for each door: what parity itself writes, and a plan."""
    first, second, scores = pair()
    scored = Capture(second.header, second.completions, scores, second.counters)
    whole = unsealed(scored)
    lines = whole.splitlines(keepends=True)
    plan = json.dumps({**plan_of_captures(first, [second]).to_json(), "rounds": 2}).encode()
    steps = b"".join(steps_lines(World(1).recorded()))
    events = [b'{"event":"progress","running":3}\n', b'{"event":"error","type":"X","message":"y"}\n',
              b'{"event":"unscored","key":{"arm":"a","request":"p","round":0,"sample":0},"reason":"x"}\n']  # fmt: skip
    return {
        "reader": [whole, unsealed(first), b"".join(map(sealed, lines))],
        "steps": [steps[:LARGEST]],
        "recorded": inner.step_seeds(),
        "sketched": inner.sketch_seeds(SCRATCH),
        "worker": [*lines, *events],
        "plan": [plan],
        **{door: [whole] for door in CAPTURES[1:]},
    }


def beginnings(door: str) -> list[bytes]:
    return cell_seeds() if door == "cells" else seeds()[door]


# ------------------------------------------------------------------ the doors


def written(data: bytes, name: str = "in.jsonl") -> Path:
    path = SCRATCH / name
    path.write_bytes(data)
    return path


def reader(data: bytes) -> None:
    """Read it; what was read is written, and read again as the same."""
    path = written(data)
    check_capture(path)
    capture = read_capture(path)
    again = SCRATCH / "again.jsonl"
    write_capture(again, capture)
    second = read_capture(again)
    assert second.completions.keys() == capture.completions.keys()
    assert all(np.array_equal(one.token_ids, second.completions[one.key].token_ids) for one in capture)
    scores = ScoreFile(again)
    assert len(scores.of({capture.header.arm, *(key.arm for key in capture.scores)})) == len(capture.scores)


def steps(data: bytes) -> None:
    for start in read_steps(written(data, "in.steps")):
        len(start)


def recorded(data: bytes) -> None:
    inner.recorded(written(data, "recorded.steps"))


def sketched(data: bytes) -> None:
    inner.beneath(written(data, "in.sketches"), SCRATCH / "reference.sketches")


def worker(data: bytes) -> None:
    for line in data.splitlines(keepends=True)[:20]:
        for read in (decode, held_record):
            try:
                read(line)
            except ProtocolError:
                continue


def plan(data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise NoInput from None
    Plan.from_json(value, "plan").to_json()


def comparator(data: bytes) -> None:
    candidate = read_capture(written(data))
    with owed():
        for_store(compare(baseline(), candidate, None, CompareOptions()))


@cache
def database(name: str) -> Store:
    """One for all inputs of a door."""
    return Store.open(SCRATCH / f"{name}.db")


def stored(data: bytes, name: str = "fuzz") -> tuple[Store, str, Capture]:
    """The candidate compared and stored beside the baseline; what was stored before is gone."""
    path = written(data)
    candidate = read_capture(path)
    kept = database(name)
    with owed():
        keep(kept, candidate, path)
    return kept, candidate.header.arm, candidate


@contextmanager
def owed() -> Iterator[None]:
    """A capture that was read is compared, stored and shown: a no is a fault by now."""
    try:
        yield
    except ALLOWED as error:
        raise AssertionError(f"refused: {error}") from error


def keep(store: Store, candidate: Capture, path: Path) -> None:
    compared = compare(baseline(), candidate, None, CompareOptions())
    made = plan_of_captures(baseline(), [candidate])
    if store.count_runs():
        store.delete_run("r")
    store.create_run(NewRun("r", made, "parity compare", source="compare"))
    for one, where in ((baseline(), SCRATCH / "none"), (candidate, path)):
        store.save_arm("r", one.header.arm, one, str(where), arm_result(one))
    store.save_comparison("r", candidate.header.arm, for_store(compared))
    store.finish_run("r", RunStatus.FINISHED, verdict=str(compared.verdict), reasons=compared.reasons)


ORDERS = list(FindingSort)


def store(data: bytes) -> None:
    """What was stored comes out as it was; nothing in the database contradicts itself."""
    kept, arm, candidate = stored(data)
    with owed():
        read_back(kept, arm, candidate, crc32(data))


def read_back(kept: Store, arm: str, candidate: Capture, draw: int) -> None:
    rows = kept.completions("r", arm)
    assert {Key(one.request, one.round, one.sample) for one in rows} == set(candidate.completions)
    for row in rows:
        one = candidate.completions[Key(row.request, row.round, row.sample)]
        assert np.array_equal(row.token_ids, one.token_ids)
    order, wanted = ORDERS[draw % len(ORDERS)], FindingFilter(arms=(arm,)) if draw & 64 else None
    found = kept.page_findings("r", wanted, sort=order, descending=bool(draw & 32), limit=5)
    assert len(found) == min(5, kept.count_findings("r", wanted))
    kept.counts_by_kind("r", wanted)
    if not draw % 16:
        assert list(problems(kept)) == []


def reports(data: bytes) -> None:
    """Two formats of what was stored, any of them: nothing in it moves a cursor."""
    kept, _, _ = stored(data)
    with owed():
        written_reports(kept, data)


def written_reports(kept: Store, data: bytes) -> None:
    every, draw = names(), crc32(data)
    for name in {every[draw % len(every)], every[draw // 97 % len(every)]}:
        for one in documents(kept, "r", name):
            assert visible(one.text, keep="\n\t") == one.text, name


def cells(data: bytes) -> None:
    """A database of somebody else: cells of it are what the input says, `[[table, column, value], …]`."""
    try:
        changes = json.loads(data)
    except (ValueError, RecursionError):
        raise NoInput from None
    if not isinstance(changes, list):
        raise NoInput
    kept = whole_store()
    conn = kept._db.conn
    conn.execute("SAVEPOINT fuzz")
    try:
        if not sum(change_cells(conn, change) for change in changes[:4]):
            raise NoInput
        run = kept.run("r")
        kept.arms("r"), kept.requests("r"), kept.counts_by_kind("r")
        for row in kept.page_findings("r", limit=5):
            kept.completion("r", row.arm, row.key)
            kept.token_gaps("r", row.arm, row.key)
        for arm in run.plan.arms:
            kept.completions("r", arm.name, limit=5)
        list(problems(kept))
        written_reports(kept, data)
    finally:
        conn.execute("ROLLBACK TO fuzz")
        conn.execute("RELEASE fuzz")


@cache
def whole_store() -> Store:
    """The run of the first seed, stored."""
    kept = stored(seeds()["store"][0], "cells")[0]
    kept._db.conn.execute("PRAGMA ignore_check_constraints = ON")
    kept._db.conn.execute("PRAGMA foreign_keys = OFF")
    return kept


def change_cells(conn: Any, change: object) -> bool:
    """Whether it names a table and a column, whose cells are that then; what SQLite cannot hold is its JSON."""
    if not isinstance(change, list) or len(change) != 3:
        return False
    table, column, value = change
    columns = columns_of(conn).get(str(table), [])
    if column not in columns:
        return False
    if isinstance(value, list | dict | bool) or (isinstance(value, int) and abs(value) >= 1 << 63):
        value = json.dumps(value)
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    with suppress(sqlite3.IntegrityError):
        conn.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))
    return True


@cache
def columns_of(conn: Any) -> dict[str, list[str]]:
    tables = ("runs", "arms", "requests", "completions", "findings", "gaps", "triage")
    return {one: [str(row[1]) for row in conn.execute(f"PRAGMA table_info({one})")] for one in tables}


def cell_seeds() -> list[bytes]:
    """Every column, with what stands there, once."""
    kept = whole_store()
    found = []
    for table, columns in columns_of(kept._db.conn).items():
        row = kept._db.conn.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
        for column, value in zip(columns, row or [None] * len(columns), strict=True):
            shown = value.decode("latin-1") if isinstance(value, bytes) else value
            found.append(json.dumps([[table, column, shown]]).encode())
    return found


def screens(data: bytes) -> None:
    """What the interface draws of each completion, as text."""
    kept, arm, _ = stored(data)
    with owed():
        draw_all(kept, arm)


def draw_all(kept: Store, arm: str) -> None:
    run, found = kept.run("r"), {one.key: one for one in kept.page_findings("r", limit=20)}
    keys = [*found, *(Key(one.request, one.round, one.sample) for one in kept.completions("r", arm, limit=3))]
    for key in dict.fromkeys(keys):
        finding = found.get(key)
        view = CompletionView.read(kept, run, arm, key, finding).aligned()
        drawing = Drawing.of(view)
        content = drawing.content()
        view.row_of_finding()
        shown = ["".join(piece.text for piece in (*drawing.left, *drawing.right))]
        flow(content, 60)
        shown += [logprobs_panel.step(view, 1), panels.prompt(drawing, PALETTE).plain, panels.evidence(finding).plain]
        shown += [logprobs_panel.logprobs(drawing, 1, 1, 40, PALETTE).plain]
        if panels.has_origin(finding):
            shown += [panels.origin(drawing, PALETTE).plain]
        for text in shown:
            assert visible(text, keep="\n") == text
    of_store(kept, "r", limit=5)


def app(data: bytes) -> None:
    """The interface itself, which stays open: the list of findings, one of them, its panels."""
    kept, _, _ = stored(data)
    with owed():
        shown = interface(kept.path)
        try:
            shown.show(crc32(data))
        except BaseException:
            interface.cache_clear()  # another one for the next input
            raise
        if shown.walks >= WALKS:
            interface.cache_clear()
            shown.close()


@cache
def interface(path: Path) -> Interface:
    opened = Interface(path)
    atexit.register(opened.close)
    return opened


WALKS = 100
"""Of one interface: Textual keeps something of every screen."""


DOORS: dict[str, Callable[[bytes], None]] = {
    "reader": reader, "steps": steps, "recorded": recorded, "sketched": sketched, "worker": worker, "plan": plan, "comparator": comparator, "store": store,
    "cells": cells, "reports": reports, "screens": screens, "app": app,
}  # fmt: skip
CAPTURES = ("reader", "comparator", "store", "reports", "screens", "app")
"""Doors whose inputs are captures."""
GENTLE = {"recorded": inner.gently_recorded, "sketched": inner.gently_sketched}
"""Mutations of other inputs that leave them what they are."""


def tried(door: str, data: bytes) -> bool:
    """Whether it was let in; anything but yes and a no in words is raised."""
    try:
        DOORS[door](data[:LARGEST])
    except ALLOWED:
        return False
    return True


__all__ = ["CAPTURES", "DOORS", "beginnings", "tried"]
