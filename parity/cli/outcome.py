"""What a run came to, on the terminal or as JSON."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from parity.cli import gate
from parity.cli.output import console, emit_json
from parity.cli.verdict import exit_code

if TYPE_CHECKING:
    from parity.pipeline.outcome import Outcome
    from parity.report.policy import Policy
    from parity.store import Store


def show_outcome(outcome: Outcome, store: Store, policy: Policy | None, *, as_json: bool, several: bool) -> int:
    """Print the run as the store has it, with the table of its arms where there are several; its exit code."""
    judgement = gate.of_run(store, outcome.run_id, policy) if policy is not None else None
    if as_json:
        from parity.view import next_commands, of_store

        following = [one.to_json() for one in next_commands(of_store(store, outcome.run_id, limit=1))]
        emit_json({**outcome.to_json(), "next": following, **({"policy": judgement.to_json()} if judgement else {})})
    else:
        from parity.report import table_text
        from parity.report.terminal import print_summary
        from parity.view import LOOKED_AT, of_store

        screen, view = console(), of_store(store, outcome.run_id, limit=LOOKED_AT)
        table = partial(table_text.print_table, screen, view, notes=False) if several else None
        print_summary(screen, view, table, brief=True)
    return judgement.exit_code if judgement is not None else exit_code(outcome.verdict)
