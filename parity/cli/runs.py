"""`parity runs`: what the store holds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parity.cli.checking import check
from parity.cli.output import console, emit, emit_json, say
from parity.cli.shared import database_option, json_option
from parity.files import is_file
from parity.language import render
from parity.messages import message

if TYPE_CHECKING:
    from parity.store import ArmRow, RunRow, Store


@click.group()
def runs() -> None:
    """List, show, check and delete stored runs."""


runs.add_command(check)


@runs.command("list")
@database_option
@json_option
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Newest this many.")
def list_runs(db: Path | None, as_json: bool, limit: int) -> None:
    """List the stored runs, the newest first."""
    from rich.table import Table
    from rich.text import Text

    from parity.store import Store
    from parity.text import visible
    from parity.view.lines import run_lines

    with Store.open(db) as store:
        rows = store.runs(limit=limit)
        total = store.count_runs()
        lines = run_lines(store, rows, store.states_of([row.id for row in rows]))
    if as_json:
        more = [{"arms": [arm.name for arm in line.arms], "new": line.new, "known": line.known} for line in lines]
        emit_json([{**run_json(line.run), **about} for line, about in zip(lines, more, strict=True)])
        return
    if not lines:
        say(message("cli.no_runs_yet", "no runs yet: start one with `parity run --backends cpu`"))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, whole in (
        (message("runs.run", "run"), True),
        (message("runs.verdict", "verdict"), True),
        (message("runs.new", "new"), True),
        (message("runs.arms", "arms"), False),
        (message("runs.model", "model"), False),
    ):
        table.add_column(render(column), overflow="fold", no_wrap=whole)
    for line in lines:
        run, arms = line.run, " ".join(arm.name for arm in line.arms)
        values = (run.id, run.verdict or line.status, f"{line.new:,}", arms, run.model)
        table.add_row(*(Text(visible(value)) for value in values))
    console().print(table)
    if total > len(rows):
        say(message("cli.older_ones_limit", "{rows} older ones: --limit {total}", rows=total - len(rows), total=total))


@runs.command()
@click.argument("run", required=False)
@database_option
@json_option
@click.option("--limit", type=click.IntRange(min=0), help="With --json, at most this many findings.")
def show(run: str | None, db: Path | None, as_json: bool, limit: int | None) -> None:
    """Show a run: verdict, arms, findings. RUN is an id or its beginning; the newest run without it."""
    from parity.store import Store

    with Store.open(db, create=False) as store:
        row = store.run(run)
        if as_json:
            emit_json(_everything(store, row, limit))
            return
        from parity.report.terminal import print_summary
        from parity.view import LOOKED_AT, of_store

        print_summary(console(), of_store(store, row.id, limit=LOOKED_AT))


@runs.command()
@click.argument("run")
@database_option
@click.option("--files", is_flag=True, help="Delete the run's directory (captures, logs) too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(run: str, db: Path | None, files: bool, yes: bool) -> None:
    """Delete a run from the store. Triage is kept: it belongs to the findings of later runs as well."""
    from parity.errors import ParityError
    from parity.paths import runs_dir
    from parity.pipeline.directory import RunDirectory
    from parity.store import Store
    from parity.text import visible

    with Store.open(db, create=False) as store:
        row = store.run(run)
        directory = RunDirectory(Path(row.directory)) if row.directory else None
        if directory is not None and directory.in_use():
            raise ParityError(
                message("cli.another_parity_working", "another parity is working on the run {row}", row=row.id),
                hint=message("cli.wait_stop", "wait for it, or stop it"),
            )
        if files and directory is not None and not (directory.is_own and directory.run_id == row.id):
            raise ParityError(
                message(
                    "cli.not_own_directory",
                    "{directory} is not the directory of run {run} below {runs}: parity deletes nothing else, whatever "
                    "a database says",
                    directory=str(directory.root),
                    run=row.id,
                    runs=str(runs_dir()),
                ),
                hint=message("cli.delete_without_files", "leave --files out, and delete the directory yourself"),
            )
        what = f"run {row.id} of {row.created}" + (f" and {row.directory}" if files and directory else "")
        try:
            sure = yes or click.confirm(visible(render(message("cli.delete", "Delete {what}?", what=what))), err=True)
        except click.Abort:  # Ctrl-C, or nobody there to answer
            say("")
            raise ParityError(
                message("cli.nothing_deleted_question", "nothing deleted: the question was not answered"),
                hint=message("cli.yes_not_ask", "--yes does not ask"),
            ) from None
        if not sure:
            say(message("cli.nothing_deleted", "nothing deleted"))
            return
        store.delete_run(row.id)
    if files and directory is not None and is_file(directory.plan_file):
        try:
            shutil.rmtree(directory.root)
        except OSError as error:
            raise ParityError(
                message(
                    "cli.could_not_deleted",
                    "{root} could not be deleted: {strerror}",
                    root=str(directory.root),
                    strerror=error.strerror,
                ),
                hint=message("cli.delete_yourself", "delete it yourself"),
            ) from error
    emit(visible(f"deleted {row.id}"))


def run_json(run: RunRow) -> dict[str, Any]:
    from parity.view.lines import actual_status

    return {
        "run": run.id,
        "name": run.name,
        "tags": list(run.tags),
        "source": run.source,
        "created": run.created,
        "finished": run.finished,
        "status": actual_status(run),
        "verdict": run.verdict,
        "reasons": [str(reason) for reason in run.reasons],
        "message": None if run.message is None else str(run.message),
        "model": run.model,
        "baseline": run.baseline,
        "command": run.command,
        "versions": dict(run.versions),
        "directory": run.directory,
        "duration": run.duration,
    }


def _arm_json(arm: ArmRow, classes: dict[str, int]) -> dict[str, Any]:
    return {
        "arm": arm.name,
        "baseline": arm.is_baseline,
        "status": arm.status,
        "message": None if arm.message is None else str(arm.message),
        "capture": arm.capture,
        "verdict": arm.verdict,
        "reasons": [str(reason) for reason in arm.reasons],
        "counts": dict(arm.counts),
        "classes": {} if arm.is_baseline else classes,
        "completions": sum(classes.values()),
        "tokens_per_second": arm.tokens_per_second,
        "acceptance_rate": arm.acceptance_rate,
        "acceptance_length": arm.acceptance_length,
        "counters": arm.counters,
        "engine": dict(arm.engine),
        "environment": dict(arm.environment),
        "stats": {**arm.stats, **({"notes": [str(note) for note in arm.notes]} if arm.stats else {})},
    }


def _everything(store: Store, run: RunRow, limit: int | None) -> dict[str, Any]:
    from parity.store.plans import column_of
    from parity.view import next_commands, of_store

    arms = store.arms(run.id)
    rows = store.page_findings(run.id, limit=-1 if limit is None else limit)
    return {
        **run_json(run),
        "next": [one.to_json() for one in next_commands(of_store(store, run.id, limit=1))],
        "counts": {count.kind: count.findings for count in store.counts_by_kind(run.id)},
        "arms": [_arm_json(arm, store.count_classes(run.id, arm.name)) for arm in arms],
        "findings": [{"id": row.id, "state": str(row.state), **row.to_json()} for row in rows],
        "plan": column_of(run.plan, run.score_files),
    }
