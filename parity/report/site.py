"""The runs of a database as a folder of pages: an index by plan, newest first, and a page for each run.

A page that is there is kept: only what is new is written, so the command may run after each run of a CI.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup
from msgspec import Struct

from parity._version import __version__
from parity.errors import ParityError, writing
from parity.files import is_file, read_whole
from parity.messages import message
from parity.pipeline.directory import write_whole
from parity.report.formats.html import data, environment, html_report
from parity.report.texts import Texts
from parity.store import RunRow, Store
from parity.view import of_store
from parity.view.lines import RunLine, run_line

INDEX: Final = "index.html"
GENERATOR: Final = b'<meta name="generator" content="parity '
MOST_INDEX: Final = 64 << 20
_NAME: Final = re.compile(r"(?!index$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""An id that may name a file: a database may be somebody else's."""


class History(Struct, frozen=True):
    """The runs of one plan, newest first."""

    plan: str
    model: str
    lines: Sequence[RunLine]

    @property
    def judged(self) -> int:
        return sum(one.run.verdict is not None for one in self.lines)

    def of(self, verdict: str) -> int:
        return sum(one.run.verdict == verdict for one in self.lines)


def write_site(store: Store, directory: Path, *, limit: int, language: str = "en") -> int:
    """Write what is missing; how many pages of runs that was. `limit`: findings of a page. Raises ParityError where the
    folder cannot be written."""
    texts = Texts(language)
    runs = [run for run in store.runs() if _NAME.fullmatch(run.id)]
    with writing(directory, message("report.name_folder", "name a folder that can be written")):
        directory.mkdir(parents=True, exist_ok=True)
        new = [run for run in runs if run.verdict is not None and not _page(directory, run).exists()]
        for run in new:
            text = html_report(of_store(store, run.id, limit=limit), texts)
            _put(_page(directory, run), text)
        _refuse_others(directory / INDEX)
        _put(directory / INDEX, _index(store, directory, runs, texts))
    return len(new)


def _put(page: Path, text: str) -> None:
    """Raises OSError, where a link or a pipe has its place too: it would say where is written."""
    if page.is_symlink() or (page.exists() and not page.is_file()):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(page))
    write_whole(page, [text.encode()])


def _refuse_others(index: Path) -> None:
    """Raises ParityError for an index that is no page of parity's: somebody else's site is not written over."""
    if os.path.lexists(index) and not (is_file(index) and GENERATOR in read_whole(index, MOST_INDEX)):
        raise ParityError(
            message("report.site_of_others", "{path} is there, and parity did not write it", path=str(index)),
            hint=message("report.name_empty_folder", "name a folder of its own for the pages, or move that file away"),
        )


def _page(directory: Path, run: RunRow) -> Path:
    return directory / f"{run.id}.html"


def _index(store: Store, directory: Path, runs: Sequence[RunRow], texts: Texts) -> str:
    plans: dict[str, list[RunLine]] = {}
    for run in runs:
        plans.setdefault(run.plan_hash, []).append(run_line(store, run))
    histories = [History(plan, lines[0].run.model, lines) for plan, lines in plans.items()]
    there = {run.id for run in runs if _page(directory, run).exists()}
    template = environment().get_template("site.html")
    style = Markup(data("report.css"))
    return template.render(t=texts, histories=histories, there=there, style=style, version=__version__) + "\n"
