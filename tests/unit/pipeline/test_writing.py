"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from parity.pipeline.directory import write_json, write_whole


def test_what_is_no_regular_file_stays_what_it_is(tmp_path: Path) -> None:
    """A file put in the place of /dev/null takes the device from everybody on the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_json(pipe, {"a": 1})
    reader.join(timeout=10)
    assert read == [b'{\n  "a": 1\n}\n']
    assert pipe.is_fifo()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    target = tmp_path / "kept" / "plan.json"
    target.parent.mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(target)
    for text in (b"one", b"two"):
        write_whole(link, [text])
        assert link.is_symlink()
        assert target.read_bytes() == text
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_nothing_is_left_of_what_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, [b"text"])
    assert list(tmp_path.iterdir()) == []
