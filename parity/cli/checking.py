"""`parity runs check`: whether what is kept is whole."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.output import emit, emit_json, say
from parity.cli.shared import database_option, json_option
from parity.errors import ExitCode
from parity.language import render
from parity.messages import message
from parity.text import visible


@click.command()
@click.argument("run", required=False)
@database_option
@json_option
def check(run: str | None, db: Path | None, as_json: bool) -> int:
    """Look whether the database and the files of its runs are whole.

    Read are the database (its pages, tables, rows that belong together, counts of findings) and of each run, or of RUN,
    the plan, each capture with the checksums of its records, steps, scores and the result; and whether both say the
    same. What is wrong is said with the command that mends it. Nothing is changed.

    Exit code 0 when nothing is wrong, 2 otherwise.
    """
    from parity.pipeline.checking import check
    from parity.store import Store

    with Store.open(db, create=False) as store:
        where = str(store.path)
        checked = check(store, run)
    if as_json:
        emit_json(
            {
                "database": where,
                "runs": checked.runs,
                "working": list(checked.working),
                "faults": [
                    {"run": one.where or None, "what": one.what.to_json(), "mend": one.mend.to_json()}
                    for one in checked.faults
                ],
            }
        )
        return ExitCode.USAGE if checked.faults else ExitCode.PASS
    for one in checked.faults:
        emit(visible(f"{one.where or where}: {render(one.what)}"))
        emit(visible(f"  {render(one.mend)}"))
    for name in checked.working:
        say(message("check.working", "{run}: another parity is working on it, its files were not read", run=name))
    if not checked.faults:
        emit(
            visible(
                render(
                    message(
                        "check.whole",
                        "{where}: {count} run, everything is whole",
                        plural="{where}: {count} runs, everything is whole",
                        where=where,
                        count=checked.runs,
                    )
                )
            )
        )
    return ExitCode.USAGE if checked.faults else ExitCode.PASS
