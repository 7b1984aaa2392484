"""`parity table`: an experiment, an arm a row."""

from __future__ import annotations

import os
from pathlib import Path

import click

from parity import language
from parity.cli.output import console, emit, emit_json
from parity.cli.shared import database_option
from parity.cli.speaking import OneOf
from parity.messages import message


@click.command()
@click.argument("what", nargs=-1, metavar="[RUN | CAPTURE…]")
@click.option(
    "--format",
    "form",
    type=OneOf(["terminal", "md", "json"]),
    default="terminal",
    show_default=True,
    help="What to write.",
)
@database_option
def table(what: tuple[str, ...], form: str, db: Path | None) -> None:
    """Show an experiment as a table: lengths, stop counts, speed, corruption.

    Of a stored RUN (an id or its beginning; the newest run without it), or of capture files, of which it says
    everything but what is corrupt: `parity compare` does that.
    """
    from parity.capture import read_capture
    from parity.errors import ParityError
    from parity.report.table_text import markdown, print_table, to_json
    from parity.store import Store
    from parity.view import of_captures, of_store

    files = [Path(name) for name in what if os.path.isfile(name)]
    if files and len(files) < len(what):
        other = next(name for name in what if not os.path.isfile(name))
        raise ParityError(
            message("cli.not_file", "{other} is not a file", other=other),
            hint=message("cli.name_capture_files", "name capture files, or one run"),
        )
    if len(what) > 1 and not files:
        raise ParityError(
            message("cli.several_runs_named", "several runs were named"),
            hint=message("cli.name_one_run", "name one run, or capture files"),
        )
    if files:
        view = of_captures([read_capture(path) for path in files])
    else:
        with Store.open(db, create=False) as store:
            view = of_store(store, what[0] if what else None, limit=1)
    if form == "json":
        emit_json(to_json(view))
    elif form == "md":
        emit(markdown(view, language.current()).rstrip("\n"), document=True)
    else:
        print_table(console(), view)
