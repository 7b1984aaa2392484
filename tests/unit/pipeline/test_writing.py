"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from parity.pipeline.directory import RunDirectory, write_json, write_whole


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


def test_ctrl_c_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "plan.json", pieces())
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_had_half_written_is_gone_when_the_run_goes_on(tmp_path: Path) -> None:
    """Found by kills at random moments: SIGKILL between writing result.json and putting it in its place."""
    script = (
        "import os, signal, sys; from pathlib import Path; from parity.pipeline.directory import write_whole\n"
        "pieces = (os.kill(os.getpid(), signal.SIGKILL) if i else b'half' for i in range(2))\n"
        "write_whole(Path(sys.argv[1]), pieces)"
    )
    directory = RunDirectory(tmp_path)
    killed = subprocess.run([sys.executable, "-c", script, str(directory.result)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    own = tmp_path / ".result.json.mine"
    own.write_text("")
    with directory.locked():
        assert sorted(path.name for path in tmp_path.iterdir()) == [own.name, "lock"]
