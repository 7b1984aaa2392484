"""`parity plot`: the plots of a run as files."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.output import emit, emit_json, say
from parity.cli.shared import database_option, json_option
from parity.messages import message


@click.command()
@click.argument("run", required=False)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    help="Directory to write into. [default: this one]",
)
@database_option
@json_option
def plot(run: str | None, output: Path, db: Path | None, as_json: bool) -> None:
    """Draw a run: gaps, where completions part, lengths, acceptance by draft position.

    Writes gaps.svg, divergences.svg, lengths.svg, acceptance.svg and, of sketched arms, modules.svg, as far as the
    run's captures and scores are still there. RUN is an id or its beginning; the newest run without it.
    """
    from parity.errors import ParityError
    from parity.report.plots import plots, write_plots
    from parity.report.profile import drawn
    from parity.store import Store
    from parity.view import of_store
    from parity.view.missing import unfinished

    with Store.open(db, create=False) as store:
        view = of_store(store, run, limit=1)
        evidence, profile = view.evidence, view.profile
        failed = unfinished(store, view.run.id)
    for problem in evidence.missing:
        say(message("cli.left_out", "left out: {problem}", problem=problem))
    found = plots(evidence, tolerance=view.tolerance)
    if profile is not None:
        found["modules"] = drawn(profile)
    if not found:
        raise failed or ParityError(
            message(
                "cli.run_nothing_draw", "run {run} has nothing to draw: its captures are not there", run=view.run.id
            ),
            hint=message("cli.put_runs_directory", "put the run's directory back where it was"),
        )
    written = write_plots(found, output)
    if as_json:
        emit_json({"run": view.run.id, "plots": [str(path) for path in written]})
        return
    for path in written:
        emit(str(path))
