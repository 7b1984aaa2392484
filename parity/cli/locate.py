"""`parity locate`: the first module that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from parity.cli.output import emit_json, say
from parity.cli.shared import database_option, json_option
from parity.messages import joined, verbatim

STRIPS: Final = 3
"""Heat strips of an arm that are drawn; any other by its finding's name."""


@click.command()
@click.argument("run_or_finding", required=False)
@click.option("--arm", help="Only this arm.")
@database_option
@json_option
def locate(run_or_finding: str | None, arm: str | None, db: Path | None, as_json: bool) -> None:
    """Name the first module that went wrong, with its token, step and row.

    RUN_OR_FINDING as for `parity report`. The run needs --sketch: what each module gave is set against the baseline
    engine's own prefill of the same tokens. The noise of each module is that of the run's own tokens, and where
    nothing is beyond it that is said. docs/sketches.md has the rule and its error rate.
    """
    from parity.pipeline.beneath import evidence_of
    from parity.store import Store
    from parity.view.find import Absent
    from parity.view.located import locating
    from parity.view.missing import without_sketches
    from parity.view.strip import strip_lines

    with Store.open(db, create=False) as store:
        try:
            found = locating(store, run_or_finding, arm)
        except Absent as absent:
            raise without_sketches(store, absent) from None
    if as_json:
        emit_json([one.to_json() for one in found])
        return
    for one in found:
        say(one.said()[0])
        drawn = 0
        for line, located in one.answers():
            say(joined(["  ", line], by=""))
            if located is not None and drawn < STRIPS:
                drawn += 1
                for text in strip_lines(evidence_of(located)):
                    say(verbatim("    " + text))
        if one.msprobe is not None:
            say(joined(["  ", one.msprobe], by=""))
