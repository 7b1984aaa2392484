"""`parity run`: the main job, end to end."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parity.cli.hunting import say_skipped
from parity.cli.options import database_option, json_option, plan_options
from parity.cli.output import console, emit_json, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parity.pipeline import RunDirectory
    from parity.plan import Plan
    from parity.run import Backend

NEWEST = "newest"


@click.command()
@plan_options
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Run this plan file instead.")
@click.option("--out", type=click.Path(path_type=Path), help="Run directory. [default: runs/ID in the data directory]")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[RUN]",
    help="Finish an interrupted run: this one, or the newest unfinished.",
)
@database_option
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    plan_file: Path | None,
    out: Path | None,
    resume: str | None,
    db: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Run the same prompts through every arm and compare them.

    An arm is a backend with a variant: --backends cpu runs cpu/base and cpu/mtp and compares them. Exit
    code 0 for PASS, 1 for DIVERGED, 2 for a mistake in the input, 3 when a backend fails, 4 for
    INCONCLUSIVE.
    """
    import parity
    from parity.cli.verdict import exit_code
    from parity.pipeline import engines, execute
    from parity.run import progress
    from parity.store import Store

    directory: RunDirectory | None
    if resume:
        plan, found = _resumed(ctx, resume, out, db)
        directory, db = found, db or _recorded_database(found)
    else:
        plan, directory = _planned(ctx, plan_file, options)
    with Store.open(db) as store:  # before anything starts: an unwritable database is found now
        if directory is None:
            directory = _new_directory(plan, out, db)
        say(f"run {directory.run_id} in {directory.root}")
        arms = [arm.name for arm in (*plan.candidates, plan.arm(plan.baseline))]
        with progress(arms, sys.stderr) as on_event, engines(on_event, say) as runner:
            outcome = execute(
                plan,
                directory,
                store,
                runner,
                command=shlex.join(["parity", *sys.argv[1:]]),
                versions={"parity": parity.__version__, "python": platform.python_version()},
                say=say,
            )
        if as_json:
            emit_json(outcome.to_json())
        else:
            from parity.report.summary import from_store
            from parity.report.terminal import print_summary

            print_summary(console(), from_store(store, outcome.run_id))
    return exit_code(outcome.verdict)


def _planned(ctx: click.Context, plan_file: Path | None, options: dict[str, Any]) -> tuple[Plan, RunDirectory | None]:
    """A new plan, from a file or from the options. Engines are looked for before anything is prepared."""
    from parity.cli.planning import plan_request
    from parity.pipeline import load_backends, locate_model, make_plan
    from parity.plan import read_plan

    if plan_file is not None:
        _only(ctx, "--plan", allowed={"plan_file", "out", "db", "as_json", "model"})
        plan = read_plan(plan_file)
        backends = load_backends(list(dict.fromkeys(arm.backend for arm in plan.arms)))
        _find_engines(backends)
        plan = locate_model(plan, options["model"], backends)
        _build_engines(backends)
        return plan, None
    request = plan_request(options)
    backends = load_backends(request.backends)
    _find_engines(backends)
    plan = make_plan(request, backends)
    say_skipped(plan)
    _build_engines(backends)
    return plan, None


def _resumed(ctx: click.Context, resume: str, out: Path | None, db: Path | None) -> tuple[Plan, RunDirectory]:
    from parity.pipeline import RunDirectory, find_unfinished, load_backends, locate_model

    _only(ctx, "--resume", allowed={"resume", "out", "db", "as_json", "model"})
    if out is not None:
        directory = RunDirectory.open(out)
    else:
        directory = find_unfinished(None if resume == NEWEST else resume, _stored_directories(db))
    plan = directory.plan()
    backends = load_backends(list(dict.fromkeys(arm.backend for arm in plan.arms)))
    return locate_model(plan, ctx.params["model"], backends), directory


def _stored_directories(db: Path | None) -> list[Path]:
    """Where the database says that runs are; a run directory may be anywhere (--out)."""
    from parity.paths import default_database
    from parity.store import Store

    if not (db or default_database()).exists():
        return []
    with Store.open(db, create=False) as store:
        return [Path(run.directory) for run in store.runs() if run.directory]


def _recorded_database(directory: RunDirectory) -> Path | None:
    """The database that the run was started with, so that resuming it stores into the same one."""
    recorded = directory.describe().get("db")
    return Path(recorded) if isinstance(recorded, str) else None


def _only(ctx: click.Context, option: str, *, allowed: set[str]) -> None:
    """The plan is fixed: an option that would change it must not be ignored silently."""
    from click.core import ParameterSource

    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in allowed:
            raise click.UsageError(
                f"{parameter.opts[0]} cannot be changed with {option}: the plan is written down already", ctx
            )


def _find_engines(backends: Mapping[str, Backend]) -> None:
    """Every backend must have an engine on this machine. Raises BackendError naming all that have none.

    One that can build its engine environment passes: that takes minutes and comes later.
    """
    from parity.errors import BackendError

    missing: list[BackendError] = []
    for backend in backends.values():
        if backend.env_spec() is not None:
            continue
        try:
            backend.interpreter(say)
        except BackendError as error:
            missing.append(error)
    if missing:
        hints = dict.fromkeys(error.hint for error in missing if error.hint)
        raise BackendError("\n".join(error.message for error in missing), hint="\n".join(hints) or None)


def _build_engines(backends: Mapping[str, Backend]) -> None:
    """Build what is missing, now that the plan is known to be good. Raises BackendError."""
    for backend in backends.values():
        backend.interpreter(say)


def _new_directory(plan: Plan, out: Path | None, db: Path | None) -> RunDirectory:
    from parity.pipeline import RunDirectory, new_run_id

    about = {"command": shlex.join(["parity", *sys.argv[1:]]), "db": str(db.absolute()) if db else None}
    return RunDirectory.create(plan, new_run_id(), out, about)
