"""What a database says of a run's directory, and `runs delete --files`: nothing goes but the run's own, below our runs.

And what it says of anything at all: every cell of text with control characters and markup in it, through every surface."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from asked import Asked
from judging import Ended, Place, place
from stores import COMMANDS, ENV, copied

MIB = 700
SECONDS = 60.0

Plant = Callable[[Place, Path, sqlite3.Connection], None]
"""Of a place, the directory of the run that is to be deleted, and the database."""


def says(directory: str, name: str | None = None) -> Plant:
    """The database names this directory, and calls the run so; {…} are places."""

    def plant(here: Place, run: Path, database: sqlite3.Connection) -> None:
        places = {
            "runs": run.parent,
            "run": run,
            "victim": victim(here),
            "home": here.home,
            "other": run.parent / "other",
            "id": run.name,
        }
        database.execute("UPDATE runs SET directory = ?", (directory.format(**places),))
        if name is not None:
            database.execute("UPDATE runs SET id = ?", (name.format(**places),))

    return plant


def victim(here: Place) -> Path:
    """Looks like a run, and belongs to somebody."""
    return here.root / "given" / "victim"


def linked(here: Place, run: Path, database: sqlite3.Connection) -> None:
    """The run's own directory is a link to somebody's."""
    shutil.rmtree(run)
    run.symlink_to(victim(here))


def linked_above(here: Place, run: Path, database: sqlite3.Connection) -> None:
    (run.parent / "way").symlink_to(victim(here).parent)
    says("{runs}/way/victim", "victim")(here, run, database)


def links_inside(here: Place, run: Path, database: sqlite3.Connection) -> None:
    shutil.rmtree(run / "logs")
    (run / "logs").symlink_to(victim(here))
    (run / "steps").symlink_to(victim(here) / "plan.json")


def lock_of_a_pipe(here: Place, run: Path, database: sqlite3.Connection) -> None:
    (run / "lock").unlink(missing_ok=True)
    os.mkfifo(run / "lock")


def about_says(text: str) -> Plant:
    def plant(here: Place, run: Path, database: sqlite3.Connection) -> None:
        (victim(here) / "run.json").write_text(text.replace("ID", run.name))
        says("{victim}")(here, run, database)

    return plant


DELETIONS: dict[str, Plant] = {
    "another run's": says("{other}"), "all runs": says("{runs}"), "all runs, named so": says("{runs}", "runs"), "the home": says("{home}"), "the home, named so": says("{home}", "home"), "the root": says("/"), "nothing": says(""), "here": says("."), "above": says("{runs}/.."), "above, by its own way": says("{run}/../..", "home"),
    "somebody's": says("{victim}"), "somebody's, named so": says("{victim}", "victim"), "somebody's, by our way": says("{runs}/../../given/victim", "victim"), "relative": says("../given/victim", "victim"), "another run's, by this one's way": says("{run}/../other"), "inside the run": says("{run}/logs", "logs"),
    "a link": linked, "a link above": linked_above, "links inside": links_inside, "a pipe for a lock": lock_of_a_pipe, "NUL": says("{run}\x00"), "NUL above": says("{runs}\x00/../../given/victim"), "a number": says("5"), "a long name": says("/x" * 3000), "a name of 1 MB": says("x" * (1 << 20)), "a home of others": says("~root"), "a variable": says("$HOME"),
    "a device": says("/dev/null"), "a secret": says("/etc/passwd"), "what another run.json says": about_says('{"run": "ID"}'), "what no run.json says": about_says("[" * 1000), "a run.json of a list": about_says("[]"), "a run.json without a run": about_says("{}"), "an id of a path": says("{victim}", "../../given/victim"), "an id that moves": says("{run}", "\x1b[2J\u202e"), "an id of nothing": says("{run}", ""), "half a character": says("\ufffd" * 300),
}  # fmt: skip

MARKUP = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\r\x08<img src=x onerror=alert(1)>]]><!--[x](javascript:alert(1))`|"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]")
TABLES = ("runs", "arms", "requests", "completions", "findings", "triage", "gaps")


def columns(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """Of text, in every table."""
    return [
        (table, str(name))
        for table in TABLES
        for _, name, kind, *_ in database.execute(f"PRAGMA table_info({table})").fetchall()
        if kind.upper() == "TEXT"
    ]


def shown(case: str, here: Place, path: Path) -> Iterator[Ended]:
    for ended in here.run_several(case, [(*one, "--db", str(path)) for one in COMMANDS], seconds=SECONDS, mib=MIB):
        found = CONTROLS.search(ended.out) or CONTROLS.search(ended.err)
        if found and "--json" not in ended.name and " json" not in ended.name:
            ended.problems.append(f"shows {found[0]!r}")
        if "<img src=x" in ended.out and ("html" in ended.name or "junit" in ended.name):
            ended.problems.append("markup")
        yield ended


def first_run(here: Place) -> Ended:
    return here.run(
        "left alone", "run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "24", seconds=120, env=ENV
    )


def deleted(first: Place, name: str) -> Ended:
    with place() as here:
        copied(first, here)
        (run,) = (here.home / "runs").iterdir()
        shutil.copytree(run, victim(here))
        other = shutil.copytree(run, run.parent / "other")
        (other / "run.json").write_text((other / "run.json").read_text().replace(run.name, "other-id"))
        path = here.root / "given" / "evil.db"
        (here.home / "parity.db").replace(path)
        database = sqlite3.connect(path)
        database.execute("UPDATE runs SET directory = ?", (str(run),))
        DELETIONS[name](here, run, database)
        database.commit()
        (stored,) = database.execute("SELECT id FROM runs").fetchone()
        database.close()
        kept = [victim(here) / "plan.json", run.parent / "other" / "plan.json", here.home / "runs"]
        ended = here.run(
            f"delete: {name}",
            "runs",
            "delete",
            str(stored)[:4].strip("\x1b") or "2",
            "--files",
            "--yes",
            "--db",
            str(path),
            seconds=SECONDS,
            mib=MIB,
        )
        ended.problems += [f"deleted {one.relative_to(here.root)}" for one in kept if not one.exists()]
        return ended


def campaign(asked: Asked) -> Iterator[Ended]:
    with place() as first:
        yield first_run(first)
        with sqlite3.connect(first.home / "parity.db") as database:
            texts = [f"shown: {table}.{name}" for table, name in columns(database)]
        every = [*(f"delete: {name}" for name in DELETIONS), *texts]
        for case in ("delete: somebody's, named so", "delete: a link") if asked.short else asked.piece(every):
            what, _, name = case.partition(": ")
            if what == "delete":
                yield deleted(first, name)
                continue
            with place() as here:
                copied(first, here)
                path, (table, column) = here.home / "parity.db", name.split(".")
                other = sqlite3.connect(path)
                other.execute("PRAGMA ignore_check_constraints = ON")
                try:
                    other.execute(f"UPDATE {table} SET {column} = coalesce({column}, '') || ?", (MARKUP,))
                except sqlite3.IntegrityError:
                    other.execute(f"UPDATE {table} SET {column} = rowid || ?", (MARKUP,))
                other.commit()
                other.close()
                yield from shown(case, here, path)
