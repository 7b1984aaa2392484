"""What is fuzzed: each door takes bytes, and may say no in words (`ParityError` and its like) and in no other way."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from rich.style import Style

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from step_world import World, steps_lines

from parity.capture import (
    CaptureError,
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
from parity.run.messages import ProtocolError, decode, held_record
from parity.store import NewRun, RunStatus, Store
from parity.text import visible
from parity.tui.drawing import Drawing
from parity.tui.screens import panels
from parity.tui.widgets.paneltext import Palette
from parity.tui.widgets.sides import flow
from parity.view import of_captures, of_store
from parity.view.completion import CompletionView

ALLOWED = (ParityError, ProtocolError, Malformed)
LARGEST = 1 << 16
"""Bytes of an input: faults of size are the bombs' business."""

SCRATCH = Path(tempfile.mkdtemp(prefix="parity-fuzz-"))
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
    plan = json.dumps(plan_of_captures(first, [second]).to_json()).encode()
    steps = b"".join(steps_lines(World(1).recorded()))
    events = [b'{"event":"progress","running":3}\n', b'{"event":"error","type":"X","message":"y"}\n',
              b'{"event":"unscored","key":{"arm":"a","request":"p","round":0,"sample":0},"reason":"x"}\n']  # fmt: skip
    return {
        "reader": [whole, unsealed(first), b"".join(map(sealed, lines))],
        "steps": [steps[:LARGEST]],
        "worker": [*lines, *events],
        "plan": [plan],
        "comparator": [whole],
        "reports": [whole],
        "screens": [whole],
    }


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
        return
    Plan.from_json(value, "plan").to_json()


def comparator(data: bytes) -> None:
    candidate = read_capture(written(data))
    compared = compare(baseline(), candidate, None, CompareOptions())
    for_store(compared)
    for kind in ("md", "json"):
        from parity.report.format import Wanted
        from parity.report.formats import format_named
        from parity.report.texts import Texts

        view = of_captures([baseline(), candidate], {candidate.header.arm: compared})
        format_named(kind).write(view, Wanted(Texts()))


def stored(data: bytes) -> tuple[Store, str]:
    """The candidate compared and stored beside the baseline."""
    path = written(data)
    candidate = read_capture(path)
    compared = compare(baseline(), candidate, None, CompareOptions())
    made = plan_of_captures(baseline(), [candidate])
    database = SCRATCH / "fuzz.db"
    for old in SCRATCH.glob("fuzz.db*"):
        old.unlink()
    store = Store.open(database)
    try:
        store.create_run(NewRun("r", made, "parity compare", source="compare"))
        for one, where in ((baseline(), SCRATCH / "none"), (candidate, path)):
            store.save_arm("r", one.header.arm, one, str(where), arm_result(one))
        store.save_comparison("r", candidate.header.arm, for_store(compared))
        store.finish_run("r", RunStatus.FINISHED, verdict=str(compared.verdict), reasons=compared.reasons)
    except BaseException:
        store.close()
        raise
    return store, candidate.header.arm


def reports(data: bytes) -> None:
    """Every format of what was stored: nothing in it moves a cursor."""
    store, _ = stored(data)
    with store:
        for name in names():
            for one in documents(store, "r", name):
                assert visible(one.text, keep="\n\t") == one.text, name


def screens(data: bytes) -> None:
    """What the interface draws of each completion, as text."""
    store, arm = stored(data)
    with store:
        run, found = store.run("r"), {one.key: one for one in store.page_findings("r", limit=20)}
        keys = [*found, *(Key(one.request, one.round, one.sample) for one in store.completions("r", arm, limit=3))]
        for key in dict.fromkeys(keys):
            finding = found.get(key)
            view = CompletionView.read(store, run, arm, key, finding).aligned()
            drawing = Drawing.of(view)
            content = drawing.content()
            view.row_of_finding()
            shown = ["".join(piece.text for piece in (*drawing.left, *drawing.right))]
            flow(content, 60)
            shown += [panels.step(view, 1), panels.prompt(drawing, PALETTE).plain, panels.evidence(finding).plain]
            shown += [panels.logprobs(drawing, 1, 1, 40, PALETTE).plain]
            if panels.has_origin(finding):
                shown += [panels.origin(drawing, PALETTE).plain]
            for text in shown:
                assert visible(text, keep="\n") == text
        of_store(store, "r", limit=5)


DOORS: dict[str, Callable[[bytes], None]] = {
    "reader": reader, "steps": steps, "worker": worker, "plan": plan, "comparator": comparator, "reports": reports,
    "screens": screens,
}  # fmt: skip


def tried(door: str, data: bytes) -> bool:
    """Whether it was let in; anything but yes and a no in words is raised."""
    try:
        DOORS[door](data[:LARGEST])
    except ALLOWED:
        return False
    return True


__all__ = ["DOORS", "CaptureError", "seeds", "tried"]
