"""`--policy` for the commands that give a verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from parity.cli.output import say

if TYPE_CHECKING:
    from parity.comparator import Comparison
    from parity.report.policy import Judgement, Policy
    from parity.store import Store

F = TypeVar("F", bound=Callable[..., Any])


def policy_option(function: F) -> F:
    return click.option(
        "--policy",
        "policy_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Configuration with a [policy]: budgets by kind and an allowlist decide the exit code (docs/ci.md).",
    )(function)


def load(path: Path | None) -> Policy | None:
    """Read before anything runs, so that a mistake in it costs nothing. Raises ParityError."""
    if path is None:
        return None
    from parity.report.policy import read_policy

    return read_policy(path)


def of_run(store: Store, run_id: str, policy: Policy) -> Judgement:
    from parity.report.gate import judge_run

    judgement = judge_run(store, run_id, policy)
    _say(judgement)
    return judgement


def of_comparison(comparison: Comparison, plan: str, policy: Policy, db: Path | None) -> Judgement:
    """Triage is looked up in the database where there is one; nothing is written to it."""
    from parity.paths import default_database
    from parity.report.gate import judge_comparison
    from parity.store import Store, TriageState
    from parity.store.lookup import triaged

    states: dict[str, str] = {}
    if (db or default_database()).is_file():
        wanted = frozenset(state for state in TriageState if str(state) in policy.states)
        with Store.open(db, create=False) as store:
            states = {mark: str(triage.state) for mark, triage in triaged(store, wanted).items()}
    judgement = judge_comparison(comparison, plan, policy, states)
    _say(judgement)
    return judgement


def _say(judgement: Judgement) -> None:
    for line in judgement.lines():
        say(line)
