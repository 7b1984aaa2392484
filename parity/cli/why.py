"""`parity why`: the conditions that faults go with."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.output import emit_json, say
from parity.cli.shared import database_option, json_option
from parity.messages import joined, verbatim


@click.command()
@click.argument("finding_or_run", required=False)
@click.option("--arm", help="Only this arm.")
@database_option
@json_option
def why(finding_or_run: str | None, arm: str | None, db: Path | None, as_json: bool) -> None:
    """Say under which conditions the faults of a recorded run happen.

    FINDING_OR_RUN as for `parity report`; of a finding, all of its kind are asked about. The run needs --record.
    Some fifty conditions of a row-step, and every two of them, are set against its faults: rows that move, prompts
    beside them, drafts rejected, block boundaries, reused slots. p-values are of Fisher's exact test, corrected for
    all conditions. What to try next comes with it: the run without the condition, and with more of it.
    """
    from parity.store import Store
    from parity.view import of_store
    from parity.view.experiments import proposed
    from parity.view.find import Absent
    from parity.view.missing import without_steps
    from parity.view.why import why as explain
    from parity.view.why_said import said

    with Store.open(db, create=False) as store:
        try:
            found = explain(store, finding_or_run, arm)
        except Absent as absent:
            raise without_steps(store, absent) from None
        view = of_store(store, finding_or_run, limit=1)
        experiments = proposed(view, found)
    if as_json:
        emit_json(
            [
                {**one.to_json(), "experiments": [each.to_json() for each in some]}
                for one, some in zip(found, experiments, strict=True)
            ]
        )
        return
    for one, some in zip(found, experiments, strict=True):
        first, *rest = said(one)
        say(first)
        for line in rest:
            say(joined(["  ", line], by=""))
        for each in some:
            say(joined(["  ", each.what], by=""))
            say(verbatim("    " + each.shown))
