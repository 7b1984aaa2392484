"""What the terminal interface takes for 5,000 runs, and for marking very many findings: key by key, and stopped midway.

    python benchmarks/tui_scale.py --keep big.db --only make   # the findings to mark: 1,000,000
    python benchmarks/tui_many.py --big big.db                  # leaves big.db changed

Milliseconds from the key to the drawn screen, and the CPU time of all threads. Marking: after how long its progress is
said first, the cursor keys pressed meanwhile (with the CPU time of the thread that draws), how long it goes on once it
is stopped. `Pilot.press` waits up to two seconds for the whole process to rest: these keys go to the driver itself.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import tui_scale

RUNS = 5000
MARKED_FOR = 10.0
"""Seconds of marking before it is stopped."""


def make_runs(path: Path) -> None:
    """One run of 400 findings, near-ties most of them, as 5,000."""
    tui_scale.make(path, 400)
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM completions")  # of which the list of runs reads none
        tables: dict[str, str] = {}
        for table in ("runs", "arms", "findings", "requests"):
            columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            tables[table] = ", ".join(columns)
        for number in range(2, RUNS + 1):
            for table, named in tables.items():
                changed = named.replace("directory", "NULL")
                if table == "runs":
                    changed = changed.replace("number", str(number), 1).replace(" id,", f" 'run{number:05}',", 1)
                elif table == "arms":
                    changed = changed.replace("id,", f"id + {10 * number},", 1).replace("run,", f"{number},", 1)
                elif table == "findings":
                    changed = changed.replace("id,", "NULL,", 1).replace("run,", f"{number},", 1)
                    changed = changed.replace("arm,", f"arm + {10 * number},", 1)
                else:
                    changed = changed.replace("run,", f"{number},", 1)
                where = " AND ordinal < 4" if table == "requests" else ""
                source = "number" if table == "runs" else "run"
                raw.execute(f"INSERT INTO {table} SELECT {changed} FROM {table} WHERE {source} = 1{where}")
    raw.close()


async def runs(path: Path) -> None:
    from parity.tui.app import ParityApp

    app = ParityApp(path)
    started, spent = time.perf_counter(), time.process_time()
    async with app.run_test(size=(120, 40)) as pilot:
        await _until(lambda: getattr(app.screen, "table", None) is not None and app.screen.table.total == RUNS)  # type: ignore[attr-defined]
        await pilot.pause()
        _say("the list of runs", started, spent)
        for name, keys in (
            ("a page", ["pagedown"]),
            ("a row", ["j"]),
            ("sorted by verdict", ["s"]),
            ("sorted by new", ["s"]),
            ("sorted by found", ["s"]),
            ("text, a letter", ["slash", "9"]),
            ("the inbox", ["enter", "i"]),
        ):
            started, spent = time.perf_counter(), time.process_time()
            await pilot.press(*keys)
            await app.workers.wait_for_complete()
            await pilot.pause()
            _say(name, started, spent)


async def marking(path: Path) -> None:
    from parity.tui.app import ParityApp

    app = ParityApp(path)
    said: list[tuple[float, str]] = []
    notify = app.notify

    def listening(message: str, **more: Any) -> None:
        said.append((time.perf_counter(), message))
        notify(message, **more)

    app.notify = listening  # type: ignore[method-assign]
    async with app.run_test(size=(120, 40)) as pilot:
        await _until(lambda: getattr(app.screen, "table", None) is not None and app.screen.table.total)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await _until(lambda: getattr(app.screen, "facets", None) is not None)
        await pilot.press("z", "Z", "A")
        await _until(lambda: len(app.screen.table.selected) > 900_000)  # type: ignore[attr-defined]
        started, spent = time.perf_counter(), time.process_time()
        first, keys = await _key(app, "b", lambda: any(one.group == "write" for one in app.workers)), []
        while time.perf_counter() - started < MARKED_FOR:
            at = app.screen.table.cursor  # type: ignore[attr-defined]
            keys.append(await _key(app, "j", lambda at=at: app.screen.table.cursor > at))  # type: ignore[attr-defined]
            await asyncio.sleep(0.2)
        asked = time.perf_counter()
        await _key(app, "ctrl+x", lambda: True)
        await _until(lambda: any(words.startswith("stopped") for _, words in said))
        progress = [at for at, words in said if "so far" in words]
        stopped = next(one for one in said if one[1].startswith("stopped"))
        print(f"progress is said first after {progress[0] - started:.1f} s, {len(progress)} times in all")
        print(f"{stopped[1]}; {time.process_time() - spent:.1f} s of CPU")
        ended = 1000 * (stopped[0] - asked)
        print(f"the key that begins it {1000 * first[0]:.0f} ms, {1000 * first[1]:.0f} of CPU")
        for name, of in (("slowest", max), ("median", median)):
            walls, cpus = (of(one[i] for one in keys) for i in (0, 1))
            print(f"the {name} of {len(keys)} keys meanwhile {1000 * walls:.0f} ms, {1000 * cpus:.0f} of CPU")
        print(f"ended {ended:.0f} ms after ctrl+x")


async def _key(app: Any, key: str, done: Callable[[], bool]) -> tuple[float, float]:
    """Seconds from a key to the screen drawn after it, and of the CPU in this thread."""
    from textual.events import Key

    event, drawn = Key(key, key if len(key) == 1 else None), asyncio.Event()
    event.set_sender(app)
    started, spent = time.perf_counter(), time.thread_time()
    app._driver.send_message(event)
    await asyncio.sleep(0)
    while not done():
        await asyncio.sleep(0.001)
    app.screen.call_after_refresh(drawn.set)
    await drawn.wait()
    return time.perf_counter() - started, time.thread_time() - spent


def _say(name: str, started: float, spent: float) -> None:
    wall, cpu = 1000 * (time.perf_counter() - started), 1000 * (time.process_time() - spent)
    print(f"{wall:8.0f} ms {cpu:8.0f} ms of CPU  {name}")


async def _until(ready: Any) -> None:
    until = time.perf_counter() + 300
    while not ready():
        if time.perf_counter() > until:
            raise SystemExit("nothing happened for 300 s")
        await asyncio.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--big", type=Path, help="database of tui_scale.py, to mark its findings")
    parser.add_argument("--runs", type=Path, help="database of 5,000 runs to make once and use again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        path = options.runs or Path(temporary) / "runs.db"
        if not path.exists():
            make_runs(path)
        asyncio.run(runs(path))
    if options.big is not None:
        asyncio.run(marking(options.big))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
