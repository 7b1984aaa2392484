"""`report --site DIR` where somebody has been before, and the runs of somebody else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from asked import Asked
from judging import Ended, Place, place
from stores import MOVES, base, column, copied

Before = Callable[[Place, Path, str], None]
"""Takes the place, the folder of the site and the id of a run."""


def _link(name: str, target: str) -> Before:
    return lambda here, site, run: (site / (name or f"{run}.html")).symlink_to(target)


def _is_pipe(name: str) -> Before:
    return lambda here, site, run: os.mkfifo(site / (name or f"{run}.html"))


def _is_folder(name: str) -> Before:
    return lambda here, site, run: (site / (name or f"{run}.html")).mkdir()


def _someone_elses(here: Place, site: Path, run: str) -> None:
    (site / "index.html").write_text("my own site")


def _cell(name: str, value: object) -> Before:
    def change(here: Place, site: Path, run: str) -> None:
        database = sqlite3.connect(here.home / "parity.db")
        column("runs", name, value)(database)
        database.commit()
        database.close()

    return change


CASES: dict[str, Before] = {
    "index is a link": _link("index.html", "../canary"), "index leads nowhere": _link("index.html", "../no/such"), "a page is a link": _link("", "../canary"),
    "a page links to /etc/passwd": _link("", "/etc/passwd"), "index is a pipe": _is_pipe("index.html"), "a page is a pipe": _is_pipe(""), "index is a folder": _is_folder("index.html"),
    "a page is a folder": _is_folder(""), "a site of somebody else": _someone_elses, "an id outside": _cell("id", "../canary"), "an id of index": _cell("id", "index"),
    "an id of an absolute path": _cell("id", "/tmp/canary"), "a long id": _cell("id", "a" * 300), "an id that moves": _cell("id", MOVES), "an id of markup": _cell("id", "x\" onclick=\"y"),
    "a model of markup": _cell("model", "<script>alert(1)</script>" + MOVES), "a plan hash of markup": _cell("plan_hash", "<img src=x onerror=y>"), "a date of markup": _cell("created", "<b>"), "a directory elsewhere": _cell("directory", "/dev"),
}  # fmt: skip
SHORT = ("index leads nowhere", "a site of somebody else")


def campaign(asked: Asked) -> Iterator[Ended]:
    """The site written, and written again; nothing outside it, nobody's page lost, no markup of theirs."""
    with place() as first:
        yield base(first)
        for name in SHORT if asked.short else asked.piece(list(CASES)):
            with place() as here:
                copied(first, here)
                site = here.work / "site"
                site.mkdir()
                (here.work / "canary").write_text("alive")
                with sqlite3.connect(here.home / "parity.db") as database:
                    (run,) = database.execute("SELECT id FROM runs").fetchone()
                database.close()
                CASES[name](here, site, run)
                for again in ("", ", again"):
                    ended = here.run(f"site: {name}{again}", "report", "--site", "site")
                    ended.problems += wrong(here, site, name)
                    yield ended


def wrong(here: Place, site: Path, name: str) -> Iterator[str]:
    if (here.work / "canary").read_text() != "alive" or {one.name for one in here.work.iterdir()} > {
        "canary",
        "site",
        "run",
    }:
        yield "wrote outside"
    if name == "a site of somebody else" and (site / "index.html").read_text() != "my own site":
        yield "overwrote"
    for page in site.glob("*.html"):
        text = page.read_text() if page.is_file() and not page.is_symlink() else ""
        yield from (
            f"{page.name}: {word}"
            for word in ("<script>alert", "<img src=x", 'onclick="y', "\x1b", "\u202e")
            if word in text
        )
