"""The screenshots of the terminal interface in the documentation, from a stored run.

    python tools/make_screenshots.py RUN [--db PATH] [--out docs/images]

Opens the interface without a terminal on a copy of the database, presses the keys that a person would, and saves what
is on the screen as SVG. The pictures in docs/ are of

    parity run --backends cpu --prompts prompts.jsonl --max-tokens 48 --logprobs 5 --positive-control
      chunk_twice:rate=0.3 --positive-control row_leak:rate=0.3 --positive-control loop:rate=0.3

with every fourth prompt of the suite `mixed`. No home directory is in them: the copy lies in one of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SETTLED = 0.3
"""Seconds after which nothing moves any more."""

PICTURES: Sequence[tuple[str, tuple[int, int], Sequence[str]]] = (
    ("tui-runs", (100, 24), ()),
    ("tui-findings", (100, 26), ("enter", "/:row_leak", "c", "z")),
    ("tui-finding", (100, 32), ("enter", "/:row_leak", "enter")),
    ("tui-logprobs", (100, 32), ("enter", "/:duplication", "enter", "1")),
    ("tui-wide", (140, 32), ("enter", "/:repetition", "enter")),
    ("tui-light", (100, 28), ("ctrl+t", "enter", "/:duplication", "enter", "m")),
)
"""Name, columns and rows, what to press: a key, or `/:KIND` to put the cursor on the first finding of a kind."""


def copied(database: Path, home: Path) -> Path:
    target = home / ".local" / "share" / "parity" / "parity.db"
    target.parent.mkdir(parents=True)
    with sqlite3.connect(database) as source, sqlite3.connect(target) as copy:
        source.backup(copy)
    return target


async def picture(database: Path, run: str, size: tuple[int, int], keys: Sequence[str]) -> str:
    from parity.tui.app import ParityApp
    from parity.tui.screens.findings import FindingsScreen
    from parity.tui.screens.runs import RunsScreen

    app = ParityApp(database)
    async with app.run_test(size=size) as pilot:

        async def settled() -> None:
            await app.workers.wait_for_complete()
            await pilot.pause(SETTLED)

        await settled()
        screen = app.screen
        assert isinstance(screen, RunsScreen)
        numbers = [row.run.id for row in (screen.table.row(i) for i in range(screen.table.total)) if row is not None]
        screen.table.go(next(i for i, name in enumerate(numbers) if name.startswith(run)))
        for key in keys:
            group, _, kind = key.partition(":")
            if kind:
                table = app.screen
                assert isinstance(table, FindingsScreen)
                rows = [table.table.row(i) for i in range(table.table.total)]
                table.table.go(next(i for i, row in enumerate(rows) if row is not None and row.kind == kind))
            else:
                await pilot.press(group)
            await settled()
        while app._notifications:
            app._unnotify(next(iter(app._notifications)))
            await pilot.pause()
        await settled()
        return app.export_screenshot(title="parity tui")


def without_fonts(svg: str) -> str:
    """No fonts from elsewhere: any monospace will do, every text has its length."""
    svg = re.sub(r"@font-face \{.*?\n    \}", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--db", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--only", help="only the picture of this name")
    options = parser.parse_args()
    from parity.paths import default_database

    database = options.db or default_database()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, size, keys in PICTURES:
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as home:
            os.environ.update(HOME=home, TZ="UTC", TEXTUAL_COLOR_SYSTEM="truecolor")
            svg = asyncio.run(picture(copied(database, Path(home)), options.run, size, keys))
        (options.out / f"{name}.svg").write_text(without_fonts(svg), encoding="utf-8")
        print(options.out / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
