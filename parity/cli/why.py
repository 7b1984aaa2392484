"""`parity why`: the conditions that faults go with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.cli.options import database_option, json_option
from parity.cli.output import emit_json, say
from parity.messages import Message, joined, message, verbatim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parity.explain.association import Association
    from parity.view.why import Why

SHOWN = 5


@click.command()
@click.argument("finding_or_run", required=False)
@click.option("--arm", help="Only this arm.")
@database_option
@json_option
def why(finding_or_run: str | None, arm: str | None, db: Path | None, as_json: bool) -> None:
    """Say under which conditions the faults of a recorded run happen.

    FINDING_OR_RUN as for `parity report`; of a finding, all of its kind are asked about. The run needs --record.
    Some fifty conditions of a row-step are set against its faults: rows that move, prompts beside them, drafts
    rejected, block boundaries, reused slots. p-values are of Fisher's exact test, corrected for all conditions.
    """
    from parity.store import Store
    from parity.view.why import why as explain

    with Store.open(db, create=False) as store:
        found = explain(store, finding_or_run, arm)
    if as_json:
        emit_json([one.to_json() for one in found])
        return
    for one in found:
        first, *rest = _lines(one)
        say(first)
        for line in rest:
            say(joined(["  ", line], by=""))


def _lines(one: Why) -> Iterator[Message]:
    found = one.associated
    yield message(
        "why.faults",
        "{arm}: {faults} faults among {row_steps} row-steps; {asked} conditions were asked",
        arm=one.arm,
        faults=found.faults,
        row_steps=found.row_steps,
        asked=found.asked,
    )
    for each in found.ranked[:SHOWN]:
        yield _line(each, found.faults, found.row_steps)
    if found.pair is not None:
        yield message("why.together", "both together say more:")
        yield _line(found.pair, found.faults, found.row_steps)
    if not found.sure and found.needed is not None:
        yield message(
            "why.needed",
            "that is too little to know: it takes {needed} faults, all with the first of these",
            needed=found.needed,
        )
    elif not found.sure:
        yield message("why.none", "none of these conditions explains the faults")
    if one.unplaced:
        yield message("why.unplaced", "of {number} completions no recorded step made the token", number=one.unplaced)


def _line(one: Association, faults: int, row_steps: int) -> Message:
    said = [_said(name) for name in one.names]
    others: Message | str = ""
    if one.same:
        others = message(
            "why.same", "; these data cannot tell it from: {others}", others=[_said(n[0]) for n in one.same]
        )
    return message(
        "why.condition",
        "{with_fault} of {faults}: {condition}; so are {share:.1%} of all row-steps (p = {p:.1g}, corrected "
        "{adjusted:.1g}){others}",
        with_fault=one.with_fault,
        faults=faults,
        condition=said if len(said) > 1 else said[0],
        share=one.row_steps / max(1, row_steps),
        p=one.p,
        adjusted=one.adjusted,
        others=others,
    )


def _said(name: str) -> Message:
    from parity.explain.predicates import PREDICATES

    return next((one.said for one in PREDICATES if one.name == name), verbatim(name))
