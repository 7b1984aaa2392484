"""Large captures that several processes read: the same capture, and the same error, however the file is cut."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.capture import CaptureError, lines, read_capture, read_scores, stretch
from parity.capture.crew import Crew
from parity.capture.keys import Keys
from parity.capture.sealing import sealed
from parity.capture.split import split
from parity.capture.stretch import Span, Stretch, dumped, loaded, stretch_of
from parity.comparator import compare
from parity.errors import ParityError
from parity.records import Capture, Completion, Key, TopLogprobs
from tests.unit.test_capture_beside import arm_of, said_by, written
from tests.unit.test_packed_captures import packed

GARBAGE = [
    b"\n",
    b"\n" * 3,
    b"\n" * 1500,
    b"{}\n",
    b"no record\n",
    b"[1]\n",
    b'{"record":"round","round":1}\n',
    b'{"record":"round","round":-1}\n',
    b'{"record":"completion","request":5}\n',
    b'{"record":"completion","request":"new","token_ids":[1],"prompt_token_ids":[2]}\n',
    b'{"record":"completion","request":"wide","token_ids":[1099511627776],"prompt_token_ids":[]}\n',
    b'{"record":"score","arm":"a/mtp","request":"p0","logprobs":[]}\n',
    b'{"record":"footer"}\n',
    b'{"record":"comple',
    b"\xff\xfe\n",
]


class Cut:
    """Reads what lies between some bytes, but for stretches that are lost."""

    def __init__(self, cuts: list[int], lost: set[int]) -> None:
        self._cuts, self._lost = cuts, lost
        self.lines = 0

    def stretches(self, spans: Iterator[Span]) -> Iterator[tuple[Span, Stretch | None]]:
        whole: dict[int, Span] = {}
        for span in spans:
            whole[span.number] = whole.get(span.number, span)._replace(end=span.end)
        for span in whole.values():
            bounds = [span.begin, *sorted(cut for cut in set(self._cuts) if span.begin < cut < span.end), span.end]
            for number, (one, other) in enumerate(pairwise(bounds)):
                found = None if number in self._lost else stretch_of(span.path, one, other)
                if found is not None:
                    self.lines += found.lines
                yield span, None if found is None else loaded(dumped(found))


def arm_by(rng: Random, like: list[Completion]) -> list[Completion]:
    """Few completions of few tokens; most of them as those of the other arm, if there is one."""
    found = []
    for number in range(rng.randint(1, 14)):
        one = like[number] if number < len(like) else None
        if one is None or rng.random() < 0.4:
            key = (
                Key(f"p{number // 2}", 0, number % 2) if one is None or rng.random() < 0.9 else Key("other", number, 0)
            )
            size = len(one.token_ids) if one is not None and rng.random() < 0.7 else rng.randint(0, 4)
            text = one.text if one is not None and rng.random() < 0.5 else rng.choice([None, None, "a", "b"])
            ids = [0, 1, 2, 1 << 40] if rng.random() < 0.05 else [0, 1, 2]
            listed = TopLogprobs(np.ones((size, 1), dtype=np.int64), np.full((size, 1), -0.5))
            one = Completion(
                key,
                np.array([rng.randint(0, 3) for _ in range(rng.randint(0, 3))], dtype=np.int64),
                np.array([rng.choice(ids) for _ in range(size)], dtype=np.int64),
                text,
                rng.choice(["stop", "length"]),
                None,
                listed if size and rng.random() < 0.06 else None,
            )
        found.append(one)
    if rng.random() < 0.1:
        rng.shuffle(found)
    return found


def file_by(rng: Random, made: list[Completion], arm: str) -> bytes:
    """A capture's bytes, of which some lines may be lost, twice there, out of place, unsealed or garbage."""
    with tempfile.TemporaryDirectory() as name:
        rows = written(Path(name) / "x.jsonl", arm, made).read_bytes().splitlines(keepends=True)
    if rng.random() < 0.4:
        rows = [unsealed(row) for row in rows]
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        at, change = rng.randrange(len(rows)), rng.choice(["lose", "double", "unseal", "seal", "garbage", "garbage"])
        row = rows[at]
        if change == "garbage":
            junk = rng.choice(GARBAGE)
            rows.insert(at, sealed(junk) if junk.endswith(b"}\n") and unsealed(row) != row else junk)
        else:
            changed = {"lose": [], "double": [row, row], "unseal": [unsealed(row)], "seal": [sealed(unsealed(row))]}
            rows[at : at + 1] = changed[change]
    whole = b"".join(rows)
    return whole[: rng.randint(0, len(whole))] if rng.random() < 0.1 else whole


def unsealed(row: bytes) -> bytes:
    return row[: row.rindex(b',"crc32"')] + b"}\n" if b',"crc32"' in row else row


def cuts_by(rng: Random, data: bytes) -> list[int]:
    """Some bytes, of which most begin a line."""
    begins = [at + 1 for at, letter in enumerate(data) if letter == 10]
    some = rng.sample(begins, min(len(begins), rng.randint(0, 6)))
    return [*some, *(rng.randint(0, len(data) + 1) for _ in range(rng.randint(0, 3)))]


def outcome(path: Path, beside: Capture | None, readers: Any, partial: bool) -> tuple[Any, Capture | None]:
    """What came of reading: the capture, or all that is said of the error."""
    try:
        capture = read_capture(path, beside=beside, readers=readers, partial=partial)
    except CaptureError as error:
        return (str(error), error.line, str(error.hint)), None
    return (said_by(capture), list(capture.column("line")), dict(capture.counters or {}), list(capture.scores)), capture


@settings(max_examples=400)
@given(st.integers(0, 1 << 32))
def test_it_is_the_same_for_any_cut(seed: int) -> None:
    rng = Random(seed)
    partial = rng.random() < 0.3
    first = arm_by(rng, [])
    with tempfile.TemporaryDirectory() as name, packed():
        whole: list[Capture | None] = [None, None]
        cut: list[Capture | None] = [None, None]
        for side, made in enumerate((first, arm_by(rng, first))):
            path = Path(name) / f"{side}.jsonl"
            path.write_bytes(file_by(rng, made, ("a/base", "a/mtp")[side]))
            cuts, lost = cuts_by(rng, path.read_bytes()), {rng.randrange(6)} if rng.random() < 0.2 else set()
            alone, whole[side] = outcome(path, whole[0], None, partial)
            several, cut[side] = outcome(path, cut[0], Cut(cuts, lost), partial)
            assert several == alone
        if whole[0] is not None and whole[1] is not None and rng.random() < 0.2:
            assert cut[0] is not None
            assert cut[1] is not None
            assert compare(*cut).to_json() == compare(*whole).to_json()  # type: ignore[arg-type]


def test_what_is_ordinary_is_read_elsewhere(tmp_path: Path) -> None:
    """Else the property above would hold for nothing."""
    path = written(tmp_path / "base.jsonl", "a/base", arm_of(40))
    readers = Cut(list(range(0, path.stat().st_size, 700)), set())
    with packed():
        first = read_capture(path, readers=readers)
        assert readers.lines == 39  # but for the first
        second = read_capture(written(tmp_path / "mtp.jsonl", "a/mtp", arm_of(40)), beside=first, readers=readers)
    assert second.tokens is first.tokens
    assert second.keys is first.keys
    apart = second.completions.aside(first.completions)  # type: ignore[attr-defined]
    assert apart.tolist() == []


@given(st.lists(st.text("ab", max_size=2), max_size=6), st.lists(st.text("ab", max_size=2), max_size=6), st.data())
def test_how_many_keys_are_alike(mine: list[str], theirs: list[str], data: st.DataObject) -> None:
    keys = []
    for names in (mine, theirs):
        keys.append(Keys())
        for number, name in enumerate(names):
            keys[-1].append(Key(name, number % 2, 0))
    at = data.draw(st.integers(0, len(mine)))
    expected = 0
    while at + expected < len(mine) and expected < len(theirs) and keys[0][at + expected] == keys[1][expected]:
        expected += 1
    assert keys[0].alike(at, keys[1]) == expected
    assert list(keys[1].part(0, expected)) == list(keys[1])[:expected]


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Two captures of many stretches."""
    monkeypatch.setattr(stretch, "BYTES", 20_000)
    made = arm_of(2000)
    one = written(tmp_path / "base.jsonl", "a/base", made)
    made[1500] = replace(made[1500], token_ids=np.array([1, 2, 3]))
    with packed():
        yield one, written(tmp_path / "mtp.jsonl", "a/mtp", made)


def test_processes_read_the_same(large: tuple[Path, Path]) -> None:
    alone = [said_by(read_capture(path)) for path in large]
    with Crew(2) as readers:
        seen: list[int] = []
        first = read_capture(large[0], readers=readers, seen=seen.append)
        second = read_capture(large[1], beside=first, readers=readers)
        pids = [child.pid for child in readers.children]
    assert [said_by(first), said_by(second)] == alone
    assert seen == sorted(seen)
    assert len(seen) > 10
    assert second.tokens.rows.tolist() == [1500]  # type: ignore[attr-defined]
    assert len(pids) == 2
    assert not any(exists(pid) for pid in pids)


def exists(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("kills", [1, 2, 9])
def test_what_a_killed_process_had_is_read_all_the_same(
    large: tuple[Path, Path], kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = said_by(read_capture(large[0]))
    with Crew(2) as readers:
        killed = 0

        def kill(_: int) -> None:
            nonlocal killed
            for child in readers.children:
                if killed < kills and child.interrupt():
                    killed += 1

        monkeypatch.setattr(lines, "SEEN_EVERY", 1)
        found = said_by(read_capture(large[0], readers=readers, seen=kill))
    assert killed >= min(kills, 2)
    assert found == alone


def test_one_that_cannot_be_started_is_not_needed(large: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = said_by(read_capture(large[0]))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Crew(2) as readers:
        assert said_by(read_capture(large[0], readers=readers)) == alone


PARENT = """
import select
import sys
from pathlib import Path
from parity.capture.crew import Crew
from parity.capture.sealing import sealed
from parity.capture.stretch import Span
with Crew(2) as readers:
    path = Path(sys.argv[1])
    next(readers.stretches(iter([Span(0, path, 0, path.stat().st_size)])))
    print(*[child.pid for child in readers.children], flush=True)
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass  # a read that begins just as the signal comes would not see it
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nothing waits for a process that is not its own here")
@pytest.mark.parametrize("sign", ["SIGKILL", "SIGINT"])
def test_none_outlives_its_parent(large: tuple[Path, Path], sign: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(large[0])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    children = [os.pidfd_open(pid) for pid in pids]
    parent.send_signal(getattr(signal, sign))
    parent.wait(60)
    for child in children:
        assert select.select([child], [], [], 60)[0], "it still runs"
        os.close(child)


# ------------------------------------------------------------------ scores


def score_line(rng: Random, number: int) -> bytes:
    length, width = rng.randint(1, 4), rng.choice([1, 2, 2])
    ids = [rng.choice([1, 2, 3, 1 << 40] if rng.random() < 0.1 else [1, 2, 3]) for _ in range(width)]
    values = [[[one, rng.choice([-0.5, -0.25, -1.123456789, None, 0.0])] for one in ids] for _ in range(length)]
    record = {"record": "score", "arm": rng.choice(["a/base", "a/mtp"]), "request": f"p{number // 2}"}
    record |= {"round": 0, "sample": number % 2, "logprobs": values}
    if rng.random() < 0.2:
        record["logsumexp"] = [12.5] * length
    return sealed(orjson.dumps(record) + b"\n")


def scores_by(rng: Random) -> bytes:
    """A scores file, of which some lines may be lost, twice there, out of place, unsealed or garbage."""
    rows = [score_line(rng, number) for number in range(rng.randint(1, 16))]
    if rng.random() < 0.3:
        rows.append(sealed(orjson.dumps({"record": "footer", "completions": 0, "scores": len(rows)}) + b"\n"))
    if rng.random() < 0.4:
        rows = [unsealed(row) for row in rows]
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        at, change = rng.randrange(len(rows)), rng.choice(["lose", "double", "unseal", "garbage", "garbage"])
        row = rows[at]
        if change == "garbage":
            rows.insert(at, rng.choice(GARBAGE))
        else:
            rows[at : at + 1] = {"lose": [], "double": [row, row], "unseal": [unsealed(row)]}[change]
        if not rows:
            break
    return b"".join(rows)


def scores_said(path: Path, readers: Any) -> Any:
    try:
        found = read_scores(path, readers=readers)
    except CaptureError as error:
        return str(error), error.line, str(error.hint)
    in_order = [(key, said_of(top)) for key, top in zip(found, found.values(), strict=True)]
    by_key = [(key, said_of(found[key])) for key in found]
    assert by_key == in_order
    return in_order


def said_of(top: TopLogprobs) -> tuple[Any, ...]:
    sums = None if top.logsumexp is None else top.logsumexp.tolist()
    return top.ids.tolist(), [[str(one) for one in row] for row in top.values.tolist()], sums


@settings(max_examples=300)
@given(st.integers(0, 1 << 32))
def test_scores_are_the_same_for_any_cut(seed: int) -> None:
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as name, packed():
        path = Path(name) / "scores.jsonl"
        path.write_bytes(scores_by(rng))
        cuts, lost = cuts_by(rng, path.read_bytes()), {rng.randrange(6)} if rng.random() < 0.2 else set()
        assert scores_said(path, Cut(cuts, lost)) == scores_said(path, None)


def test_processes_read_the_same_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretch, "BYTES", 2_000)
    rng = Random(5)
    path = tmp_path / "scores.jsonl"
    path.write_bytes(b"".join({line[:70]: line for line in (score_line(rng, one) for one in range(600))}.values()))
    readers = Cut(list(range(0, path.stat().st_size, 700)), set())
    with packed():
        alone = scores_said(path, None)
        assert scores_said(path, readers) == alone
        assert readers.lines == 599  # but for the first
        with Crew(2) as crew:
            assert scores_said(path, crew) == alone
            assert len(crew.children) == 2
    assert len(alone) == 600


def test_a_capture_that_holds_scores_is_read_with_them(tmp_path: Path) -> None:
    """Stretches of scores are of no use to it."""
    rng = Random(6)
    rows = written(tmp_path / "x.jsonl", "a/base", arm_of(30)).read_bytes().splitlines(keepends=True)[:-1]
    rows += [score_line(rng, one) for one in range(30)]
    rows.append(sealed(orjson.dumps({"record": "footer", "completions": 30, "scores": 30}) + b"\n"))
    path = tmp_path / "both.jsonl"
    path.write_bytes(b"".join(rows))
    with packed():
        alone = read_capture(path)
        found = read_capture(path, readers=Cut(list(range(0, path.stat().st_size, 300)), set()))
    assert said_by(found) == said_by(alone)
    assert {key: said_of(top) for key, top in found.scores.items()} == {
        key: said_of(top) for key, top in alone.scores.items()
    }
    assert len(found.scores) == 30


@settings(max_examples=150)
@given(st.integers(0, 1 << 32))
def test_shards_of_scores_are_as_one_file(seed: int) -> None:
    """Headers and footers, where a shard has them, are its own; what is there twice is named by its file."""
    rng = Random(seed)
    rows = list({line[:70]: line for line in (score_line(rng, one) for one in range(rng.randint(2, 20)))}.values())
    bounds = sorted(rng.sample(range(1, len(rows)), min(len(rows) - 1, rng.randint(1, 3))))
    parts = [rows[begin:end] for begin, end in pairwise([0, *bounds, len(rows)])]
    twice = rng.random() < 0.3
    if twice:
        parts[-1] = [*parts[-1], parts[0][0]]
    with tempfile.TemporaryDirectory() as name, packed() if rng.random() < 0.7 else nullcontext():
        whole, folder = Path(name) / "scores.jsonl", Path(name) / "scores"
        whole.write_bytes(b"".join(rows))
        folder.mkdir()
        for number, part in enumerate(parts):
            lines_there = [b'{"record":"header","schema":"parity.capture/1"}\n'] if rng.random() < 0.5 else []
            lines_there += part
            if rng.random() < 0.5:
                lines_there.append(orjson.dumps({"record": "footer", "completions": 0, "scores": len(part)}) + b"\n")
            (folder / f"{number}.jsonl").write_bytes(b"".join(map(unsealed, lines_there)))
        readers = Cut(cuts_by(rng, whole.read_bytes()), set()) if rng.random() < 0.5 else None
        found = scores_said(folder, readers)
        if twice:
            assert "0.jsonl" in found[0]
            assert f"{len(parts) - 1}.jsonl" in found[0]
            assert "given twice" in found[0]
        else:
            assert found == scores_said(whole, None)


def test_the_scores_file_of_a_run_can_be_split(tmp_path: Path) -> None:
    rng = Random(7)
    rows = [sealed(orjson.dumps({"record": "header", "schema": "parity.capture/1", "arm": "a/base"}) + b"\n")]
    rows += {line[:70]: line for line in (score_line(rng, one) for one in range(400))}.values()
    footer = {"record": "footer", "completions": 0, "scores": len(rows) - 1}
    path = tmp_path / "scores.jsonl"
    path.write_bytes(b"".join([*rows, sealed(orjson.dumps(footer) + b"\n")]))
    assert len(split(path, tmp_path / "scores", 4_000)) > 5
    with packed():
        assert scores_said(tmp_path / "scores", None) == scores_said(path, None)
    (tmp_path / "scores" / "00002.jsonl").unlink()
    with pytest.raises(ParityError, match=r"lacks 00002\.jsonl"):
        read_scores(tmp_path / "scores")
