"""How many bytes the terminal interface sends for a key, beside Textual's own DataTable: what ssh carries.

    python benchmarks/tui_bytes.py                # makes a store of 20,000 findings, then measures through a pty
    python benchmarks/tui_bytes.py --keep some.db # any database, made once

Both are asked in the same run and the same size of terminal. A key's bytes are all that comes until nothing has come
for half a second. Cursor keys stay within the screen; scrolling is a key of its own. Limits: a cursor key 1.5 KB,
opening a finding 20 KB, at 120x40.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import zlib
from pathlib import Path
from statistics import median

QUIET = 0.5
"""Seconds without a byte after which a key is done."""
PATIENCE = 60.0
LIMITS = {"cursor": 1500, "open": 20_000}

TABLE = """
from textual.app import App
from textual.widgets import DataTable
class Plain(App):
    def compose(self):
        yield DataTable(cursor_type="row")
    def on_mount(self):
        table = self.query_one(DataTable)
        table.add_columns("severity", "kind", "request", "arm", "token", "len", "then", "gap", "state")
        for i in range(500):
            table.add_row("corrupt", "row_leak", f"p{i}", "cpu/mtp1", str(i % 128), "3", "", f"{i / 100:.2f}", "new")
Plain().run()
"""


class Terminal:
    """A program in a pseudo-terminal of this size."""

    def __init__(self, command: list[str], columns: int, rows: int) -> None:
        self.process, self.fd = pty.fork()
        if not self.process:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            os.execv(command[0], command)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, quiet: float = QUIET, least: int = 0) -> bytes:
        """All that comes until it is quiet, waiting for `least` bytes first."""
        found, until = b"", time.monotonic() + PATIENCE
        while time.monotonic() < until:
            ready, _, _ = select.select([self.fd], [], [], quiet)
            if ready:
                found += os.read(self.fd, 1 << 16)
            elif len(found) >= least:
                break
        return found

    def press(self, keys: bytes, least: int = 0) -> bytes:
        os.write(self.fd, keys)
        return self.read(least=least)

    def end(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.fd)


def cursor(terminal: Terminal, key: bytes = b"j", times: int = 5) -> tuple[int, int]:
    """Median bytes of a key, and of the same compressed as by `ssh -C`."""
    sent = [terminal.press(key) for _ in range(times)]
    return int(median(map(len, sent))), int(median(len(zlib.compress(one)) for one in sent))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="database to make once and use again")
    parser.add_argument("--size", default="120x40")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as temporary:
        path = options.keep or Path(temporary) / "some.db"
        if not path.exists():
            scale = Path(__file__).with_name("tui_scale.py")
            make = ["--keep", str(path), "--findings", "20000", "--only", "make"]
            subprocess.run([sys.executable, str(scale), *make], check=True)
        found: dict[str, tuple[int, int]] = {}
        plain = Terminal([sys.executable, "-c", TABLE], columns, rows)
        plain.read(1.5, 5000)
        found["cursor: Textual's DataTable, down"] = cursor(plain, b"\x1b[B")
        plain.end()
        tui = Terminal([sys.executable, "-m", "parity", "tui", "--db", str(path)], columns, rows)
        tui.read(2.0, 5000)
        found["a run opened"] = (len(sent := tui.press(b"\r", 1000)), len(zlib.compress(sent)))
        tui.read(2.0)
        found["findings, down, with the look beside them"] = cursor(tui)
        tui.press(b"P")
        found["cursor: findings, down"] = cursor(tui)
        found["open: a finding"] = (len(sent := tui.press(b"\r", 1000)), len(zlib.compress(sent)))
        tui.read(2.0)
        found["cursor: tokens, down"] = cursor(tui)
        found["cursor: tokens, to the side"] = cursor(tui, b"l")
        found["next finding"] = (len(sent := tui.press(b"n", 1000)), len(zlib.compress(sent)))
        tui.end()
    over = 0
    print(f"bytes at {options.size}   sent  compressed")
    for name, (count, small) in found.items():
        limit = LIMITS.get(name.partition(":")[0])
        missed = limit is not None and "DataTable" not in name and count > limit
        over += missed
        print(f"{count:20,} {small:11,}  {name}{f'  OVER {limit:,}' if missed else ''}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
