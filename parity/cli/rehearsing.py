"""`parity run --rehearse`: what would fail a long run, found before it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from parity.cli.output import console, emit_json, say
from parity.language import render
from parity.messages import Message, message
from parity.text import visible

if TYPE_CHECKING:
    from rich.console import Console

    from parity.pipeline.rehearse import ArmRehearsed, Rehearsal
    from parity.plan import Plan
    from parity.plan.hosts import Host
    from parity.store import Store

F = TypeVar("F", bound=Callable[..., Any])

ARM = message("rehearsal.arm", "arm")
COLUMNS = (
    message("rehearsal.start", "start s"),
    message("rehearsal.before", "free MiB"),
    message("rehearsal.after", "after"),
    message("rehearsal.tokens", "tokens"),
    message("rehearsal.scored", "score of"),
    message("rehearsal.score_seconds", "s"),
    message("rehearsal.again", "2nd start s"),
    message("rehearsal.rows", "rows"),
)


def rehearse_option(function: F) -> F:
    return click.option(
        "--rehearse/--no-rehearse",
        default=None,
        help="Only try the run out, in minutes: each arm answers one prompt, the longest sequence is scored, an engine "
        "starts twice. By itself before the first run of an accelerator on a host; --no-rehearse leaves that out.",
    )(function)


def rehearsed(
    plan: Plan, hosts: Mapping[str, Host], store: Store, *, asked: bool | None, new: bool, as_json: bool
) -> bool:
    """Rehearse where it was asked for, or where it is due; True where nothing was asked for besides.

    Raises BackendError where an arm fails.
    """
    from parity.pipeline.rehearse import failure, unknown_hosts

    unknown = unknown_hosts(plan, hosts, store) if asked is None and new else []
    if not asked and not unknown:
        return False
    if unknown:
        say(
            message(
                "cli.first_here",
                "{backends} never ran here before: a rehearsal first (--no-rehearse leaves it out)",
                backends=unknown,
            )
        )
    found, logs = _rehearse(plan, hosts)
    if as_json and asked:
        emit_json(found.to_json())
    else:
        _show(found, console() if asked else _on_stderr())
    error = failure(found, logs)
    if error is not None:
        raise error
    return bool(asked)


def _rehearse(plan: Plan, hosts: Mapping[str, Host]) -> tuple[Rehearsal, Path]:
    """What came of it, and where the engines' logs are: they stay where an arm failed."""
    from parity.paths import data_dir
    from parity.pipeline.capturing import engines
    from parity.pipeline.directory import RunDirectory, new_run_id
    from parity.pipeline.memory import free_memory
    from parity.pipeline.rehearse import rehearse, rehearsed_arms
    from parity.run import progress

    run_id, arms = new_run_id(), [arm.name for arm in rehearsed_arms(plan)]
    directory = RunDirectory.create(plan, run_id, data_dir() / "rehearsals" / run_id, {})
    failed = False
    try:
        with progress(arms, sys.stderr) as on_event, engines(on_event, say, hosts) as runner:
            found = rehearse(plan, directory, runner, hosts, say, free_memory)
        failed = bool(found.failed)
    finally:
        if not failed:
            shutil.rmtree(directory.root, ignore_errors=True)
    return found, directory.logs


def _on_stderr() -> Console:
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, soft_wrap=False)


def _show(found: Rehearsal, screen: Console) -> None:
    from rich.text import Text

    from parity.report.arm_lines import print_arms
    from parity.text import wrap

    print_arms(
        screen,
        render(ARM),
        [render(name) for name in COLUMNS],
        [(visible(row.arm), _cells(row)) for row in found.arms],
    )
    for line in _remarks(found):
        for part in wrap(visible(render(line)), screen.width - 1, first="", other="  "):
            screen.print(Text(part), soft_wrap=True)


def _cells(row: ArmRehearsed) -> list[str]:
    watched = message("rehearsal.seen", "seen") if row.rows_seen else message("rehearsal.unseen", "unseen")
    return [
        _seconds(row.start_seconds),
        _whole(row.free_before),
        _whole(row.free_after),
        f"{row.tokens:,}",
        _whole(row.scored_tokens),
        _seconds(row.score_seconds),
        _seconds(row.second_start),
        "-" if row.failed is not None else render(watched),
    ]


def _remarks(found: Rehearsal) -> list[Message]:
    remarks = [
        message(
            "rehearsal.kept",
            "{arm}: the device's memory did not come back after its engine had ended: the next one may not find enough",
            arm=row.arm,
        )
        for row in found.arms
        if row.kept_memory
    ]
    remarks += [message("rehearsal.of", "{arm}: {said}", arm=arm, said=said) for arm, said in found.failed.items()]
    for row in found.arms:
        remarks += _instruments(row)
    if not found.failed:
        remarks.append(
            message(
                "rehearsal.estimate",
                "a whole run takes at least {least} for its engine starts, and at most {most}, which it would be "
                "without batches",
                least=_duration(found.at_least),
                most=_duration(found.at_most),
            )
        )
    return remarks


def _instruments(row: ArmRehearsed) -> list[Message]:
    """What the recorder and the sketches wrote, where they were asked for."""
    said = []
    if row.row_steps is not None:
        said.append(message("rehearsal.recorded", "{count} row-steps were recorded", count=row.row_steps))
    if row.sketched is not None:
        said.append(message("rehearsal.sketched", "{count} tokens were sketched", count=row.sketched))
    said += row.unwritten
    return [message("rehearsal.of", "{arm}: {said}", arm=row.arm, said=one) for one in said]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _whole(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {left:02} s" if minutes else f"{left} s"
