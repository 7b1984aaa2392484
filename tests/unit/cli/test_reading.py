"""A bar while large captures are read: on a terminal, and nowhere else."""

from __future__ import annotations

import io
from pathlib import Path
from threading import Event

import pytest

from parity.capture import read_capture, write_capture
from parity.cli import reading
from parity.cli.reading import watched
from parity.comparator.types import alone
from parity.messages import message
from parity.records import Capture, Header


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that moves its cursor, whatever the tests run on."""
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "[base].jsonl"
    write_capture(path, Capture(Header("a/base", "a", "base", "m"), {}, {}))
    return path


def shown_of(path: Path, stream: io.StringIO) -> str:
    with watched([path, path.parent / "missing"], stream) as watch:
        read_capture(path, seen=watch.file(path))
        assert list(watch.comparing(alone)(range(3), abs, message("test.about", "signs"))) == [0, 1, 2]
    return stream.getvalue()


def test_a_large_file_is_seen_being_read(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGE_BYTES", 1)
    said = shown_of(capture, Terminal())
    last = said[said.rindex("comparing") :]
    assert "left:" not in last


class Waiting(Terminal):
    """A terminal on which something is waited for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text, self.shown = text, Event()

    def write(self, text: str) -> int:
        if self._text in text:
            self.shown.set()
        return super().write(text)


def test_how_far_each_way_through_a_run_is(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGE_BYTES", 1)
    stream = Waiting("comparing: signs")
    with watched([capture], stream) as watch:
        answers = watch.comparing(alone)(range(400), abs, message("test.about", "signs"))
        assert next(answers) == 0
        assert stream.shown.wait(60)
        assert list(answers) == list(range(1, 400))
    assert "left:" in stream.getvalue()[stream.getvalue().index("comparing: signs") :]


def test_how_far_it_is(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGE_BYTES", 1)
    stream = Terminal()
    with watched([capture, capture], stream) as watch:
        watch.file(capture)
        seen = watch.file(capture)
        assert seen is not None
        seen(10)
    assert "reading [base].jsonl" in stream.getvalue()
    assert "left:" in stream.getvalue()


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_small_files_and_pipes_show_nothing(
    stream: io.StringIO, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not stream.isatty():
        monkeypatch.setattr(reading, "LARGE_BYTES", 1)
    assert shown_of(capture, stream) == ""


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_what_is_seen_is_of_the_file(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from parity.capture import lines

    monkeypatch.setattr(lines, "SEEN_EVERY", 1)
    path = tmp_path / name
    write_capture(path, Capture(Header("a/base", "a", "base", "m"), {}, {}))
    seen: list[int] = []
    read_capture(path, seen=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size


def test_a_directory_of_shards_is_as_large_as_its_files(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parity.capture import lines
    from parity.capture.split import split

    monkeypatch.setattr(lines, "SEEN_EVERY", 1)
    split(capture, tmp_path / "shards", 1)
    seen: list[int] = []
    read_capture(tmp_path / "shards", seen=seen.append)
    assert seen[-1] == sum(each.stat().st_size for each in (tmp_path / "shards").glob("*.jsonl"))
    assert reading._size(tmp_path / "shards") >= seen[-1]
