"""`parity profile`: how far what each module gave is from a reference, arms beside each other."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.output import console, emit_json, say
from parity.cli.shared import database_option, json_option


@click.command()
@click.argument("runs", nargs=-1)
@click.option(
    "--arm", "arms", multiple=True, help="Only this arm; repeatable, the first is what others are set beside."
)
@click.option(
    "--reference",
    type=click.Choice(["own", "arbiter"]),
    help="The prefill of the baseline's engine, or the arbiter's. [default: the arbiter's where it was sketched]",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw it as an SVG file: layers along x, a line an arm.",
)
@database_option
@json_option
def profile(
    runs: tuple[str, ...],
    arms: tuple[str, ...],
    reference: str | None,
    plot: Path | None,
    db: Path | None,
    as_json: bool,
) -> None:
    """Say whether an engine's modules round worse than another's, and where that begins.

    Of each sketched arm of a run (of several runs, such as two versions of an engine) the distance of every module
    from the reference's prefill of the same tokens: median, 99th percentile, routers' flips. A module is marked where
    an arm's distance grows by more than 1.5 times relative to the first arm's. docs/sketches.md says how to read it.
    """
    from rich.table import Table

    from parity.report.plots import write_plots
    from parity.report.profile import drawn
    from parity.store import Store
    from parity.view.find import Absent
    from parity.view.missing import without_sketches
    from parity.view.profile import profiled

    with Store.open(db, create=False) as store:
        try:
            found = profiled(store, runs, arms=arms, reference=reference)
        except Absent as absent:
            raise without_sketches(store, absent) from None
    if plot is not None:
        write_plots({plot.name.removesuffix(".svg"): drawn(found)}, plot.parent)
    if as_json:
        emit_json(found.to_json())
        return
    head, rows = found.table()
    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(head):
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console().print(table)
    for line in found.said():
        say(line)
