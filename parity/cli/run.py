"""`parity run`: the main job, end to end."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from parity.cli.config import OPTIONS as HOST_OPTIONS
from parity.cli.config import hosts_of
from parity.cli.endpoints import REPLAY
from parity.cli.gate import policy_option
from parity.cli.hunting import say_skipped
from parity.cli.options import PlanOptions, plan_options
from parity.cli.output import command_said, say, versions_here
from parity.cli.rehearsing import rehearse_option, rehearsed
from parity.cli.shared import check_checkout, checkout_option, database_option, json_option
from parity.cli.speaking import Misused
from parity.errors import ExitCode
from parity.messages import joined, message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from parity.pipeline.directory import RunDirectory
    from parity.plan import Plan
    from parity.plan.hosts import Host
    from parity.run import Backend

NEWEST = "newest"

_FREE = frozenset({"out", "db", "as_json", "model", "arbiter", "rehearse", "checkout", *HOST_OPTIONS})
"""Options that change nothing of a plan that is written down."""

_JUDGING = frozenset({"score", "score_top", "tolerance"})
"""Options that change how its captures are judged, and not what is captured."""

_OF_A_PLAN = _JUDGING | {"baseline", "rounds", "logprobs", "record", "sketch"}
"""Options that make another plan of it, with the same arms and the same questions."""


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
@checkout_option
@rehearse_option
@policy_option
@database_option
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    plan_file: Path | None,
    out: Path | None,
    resume: str | None,
    rehearse: bool | None,
    policy_file: Path | None,
    db: Path | None,
    as_json: bool,
    options: PlanOptions,
) -> int:
    """Run the same prompts through every arm and compare them.

    An arm is a backend with a variant: --backends cpu runs cpu/base and cpu/mtp and compares them. Exit
    code 0 for PASS, 1 for DIVERGED, 2 for a mistake in the input, 3 when a backend fails, 4 for
    INCONCLUSIVE.
    """
    from parity.cli import gate
    from parity.cli.outcome import show_outcome
    from parity.pipeline.capturing import engines
    from parity.pipeline.execute import execute
    from parity.run import progress
    from parity.store import Store

    policy = gate.load(policy_file)
    directory: RunDirectory | None
    if resume:
        plan, hosts, found = _resumed(ctx, resume, out, db, options)
        directory, db = found, db or found.database()
    else:
        directory = None
        plan, hosts = planned(ctx, plan_file, options)
    check_checkout((arm.backend for arm in plan.arms), directory)
    with Store.open(db) as store:  # before anything starts: an unwritable database is found now
        if rehearsed(plan, hosts, store, asked=rehearse, new=directory is None, as_json=as_json):
            return ExitCode.PASS
        if directory is None:
            if any(arm.backend != REPLAY for arm in plan.arms):
                check_recordings(plan, hosts)
            _ask_all(plan, hosts)
            directory = new_directory(plan, hosts, out, db)
        say(message("cli.run", "run {run_id} in {root}", run_id=directory.run_id, root=str(directory.root)))
        arms = [arm.name for arm in (*plan.candidates, plan.arm(plan.baseline))]
        with progress(arms, sys.stderr) as on_event, engines(on_event, say, hosts) as runner:
            outcome = execute(
                plan,
                directory,
                store,
                runner,
                command=command_said(),
                versions=versions_here(),
                say=say,
            )
        several = len(plan.arms) > 2 or plan.rounds > 1  # an experiment: the row of each arm as well
        return show_outcome(outcome, store, policy, as_json=as_json, several=several)


def planned(
    ctx: click.Context, plan_file: Path | None, options: PlanOptions, *, also: Set[str] = frozenset()
) -> tuple[Plan, dict[str, Host]]:
    """A new plan, from a file or from the options, and where its backends are. `also` names options beside a plan.

    Engines are looked for before anything is prepared.
    """
    from parity.cli.config import chosen_hosts
    from parity.cli.planning import plan_request
    from parity.pipeline.arbitrate import with_arbiter
    from parity.pipeline.checkpoints import locate_model
    from parity.pipeline.directory import RunDirectory
    from parity.pipeline.placing import load_adapters, placed
    from parity.pipeline.planning import check_images, make_plan
    from parity.pipeline.releases import for_releases
    from parity.plan.trusting import plan_to_run

    if plan_file is not None:
        _only(ctx, "--plan", allowed={"plan_file", *_FREE, *_OF_A_PLAN, *also})
        plan = with_arbiter(_changed(plan_to_run(plan_file, say), options), options.endpoints.arbiter)
        hosts = hosts_of(plan, options.where, RunDirectory(plan_file.parent).hosts(say))
        backends = load_adapters(hosts)
        _find_engines(hosts, backends)
        plan = locate_model(plan, options.model, backends)
        check_images(plan, backends)
    else:
        request = plan_request(options)
        hosts = chosen_hosts(request.backends, options.where)
        backends = load_adapters(hosts)
        _find_engines(hosts, backends)
        plan = placed(make_plan(request, backends), hosts)
    _look_at_hosts(plan, hosts, backends)
    plan = for_releases(plan, hosts, backends)
    say_skipped(plan)
    _build_engines(hosts, backends)
    return plan, hosts


def _resumed(
    ctx: click.Context, resume: str, out: Path | None, db: Path | None, options: PlanOptions
) -> tuple[Plan, dict[str, Host], RunDirectory]:
    from parity.pipeline.arbitrate import with_arbiter
    from parity.pipeline.checkpoints import locate_model
    from parity.pipeline.directory import RunDirectory, find_unfinished
    from parity.pipeline.placing import load_adapters

    _only(ctx, "--resume", allowed={"resume", *_FREE, *_JUDGING})
    if out is not None:
        directory = RunDirectory.open(out)
    else:
        directory = find_unfinished(None if resume == NEWEST else resume, _stored_directories(db))
    before = directory.plan_to_run(say)
    plan = with_arbiter(_changed(before, options), options.endpoints.arbiter)
    hosts = hosts_of(plan, options.where, directory.hosts(say))
    if plan != before:  # asked of a run that is over: the plan says so from now on
        directory.keep_plan(plan)
    if plan.score.top != before.score.top:
        directory.scores.unlink(missing_ok=True)  # its lists are of the other length
    return locate_model(plan, options.model, load_adapters(hosts)), hosts, directory


def _changed(plan: Plan, options: PlanOptions) -> Plan:
    """The plan with what was asked beside it. Raises ParityError for what does not fit to it."""
    from parity.pipeline.samples import with_lists

    ctx = click.get_current_context()
    written = {name for name in _OF_A_PLAN if _is_written(ctx, name)}
    if not written:
        return plan
    changed = replace(
        plan,
        baseline=(options.baseline or plan.baseline) if "baseline" in written else plan.baseline,
        rounds=options.rounds if "rounds" in written else plan.rounds,
        record=options.record if "record" in written else plan.record,
        sketch=(options.sketch or "") if "sketch" in written else plan.sketch,
        score=replace(plan.score, mode=options.score if "score" in written else plan.score.mode),
        tolerance=options.tolerance if "tolerance" in written and options.tolerance is not None else plan.tolerance,
        sampling=plan.sampling.having({"logprobs": options.sampling.logprobs} if "logprobs" in written else {}),
    )
    if "score_top" in written:
        changed = with_lists(changed, options.score_top)
    changed.check()
    return changed


def _is_written(ctx: click.Context, name: str) -> bool:
    """Whether the option stands on the command line: what parity.toml says is about new plans."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _stored_directories(db: Path | None) -> list[Path]:
    """Where the database says that runs are; a run directory may be anywhere (--out)."""
    from parity.paths import default_database
    from parity.store import Store

    if not (db or default_database()).exists():
        return []
    with Store.open(db, create=False) as store:
        return [Path(run.directory) for run in store.runs() if run.directory]


def _only(ctx: click.Context, option: str, *, allowed: set[str]) -> None:
    """The plan is fixed: an option that would change it must not be ignored silently."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if _is_written(ctx, name) and name not in allowed:
            raise Misused(
                message(
                    "cli.cannot_changed_plan",
                    "{opts} cannot be changed with {option}: the plan is written down already",
                    opts=parameter.opts[0],
                    option=option,
                ),
                ctx,
            )


def _find_engines(hosts: Mapping[str, Host], backends: Mapping[str, Backend]) -> None:
    """Every backend of this machine must have an engine here. Raises BackendError naming all that have none.

    One that can build its engine environment passes: that takes minutes and comes later.
    """
    _all_of_them(
        lambda name: backends[name].interpreter(say),
        [name for name in hosts if _adapter_finds(hosts[name]) and backends[name].env_spec() is None],
    )


def _look_at_hosts(plan: Plan, hosts: Mapping[str, Host], backends: Mapping[str, Backend]) -> None:
    """Ask the others whether an engine could start there. Raises BackendError naming all where it could not."""
    from parity.pipeline.placing import look_at

    _all_of_them(
        lambda name: look_at(hosts[name], backends[name], plan),
        [name for name in hosts if not _adapter_finds(hosts[name])],
    )


def _ask_all(plan: Plan, hosts: Mapping[str, Host]) -> None:
    """All servers answer before the first one generates. Raises BackendError naming all that do not."""
    from parity.pipeline.placing import load_adapters
    from parity.plan.hosts import host_of
    from parity.run import Answering

    backends = load_adapters(hosts)
    asked: dict[str, Callable[[], None]] = {}
    for arm in plan.arms:
        backend: object = backends.get(arm.backend)
        if isinstance(backend, Answering) and not host_of(hosts, arm.name, arm.backend).far:
            asked[arm.name] = partial(backend.ask, arm.engine)
    _all_of_them(lambda name: asked[name](), list(asked))


def check_recordings(plan: Plan, hosts: Mapping[str, Host]) -> None:
    """All recordings have the answers to what the plan asks, before anything else is asked it. Raises ParityError."""
    from parity.pipeline.placing import load_adapters
    from parity.plan.hosts import host_of
    from parity.records.sampling import wire
    from parity.run import Recorded

    backends = load_adapters(hosts)
    for arm in plan.arms:
        backend: object = backends.get(arm.name.partition("/")[0])
        if isinstance(backend, Recorded) and not host_of(hosts, arm.name, arm.backend).far:
            backend.check_answers(arm.engine, {**plan.to_json(), "parameters": wire()})


def _build_engines(hosts: Mapping[str, Host], backends: Mapping[str, Backend]) -> None:
    """Build what is missing, now that the plan is known to be good. Raises BackendError."""
    for name, backend in backends.items():
        if _adapter_finds(hosts[name]):
            backend.interpreter(say)


def _adapter_finds(host: Host) -> bool:
    """Whether the interpreter is the adapter's business: not where the user names one, or another host."""
    return not host.far and host.python is None


def _all_of_them(look: Callable[[str], object], names: Sequence[str]) -> None:
    """Look at each, and complain about all at once."""
    from parity.errors import BackendError

    missing: list[BackendError] = []
    for name in names:
        try:
            look(name)
        except BackendError as error:
            missing.append(error)
    if missing:
        hints = {str(error.hint): error.hint for error in missing if error.hint}
        raise BackendError(
            joined([error.message for error in missing]), hint=joined(list(hints.values())) if hints else None
        )


def new_directory(plan: Plan, hosts: Mapping[str, Host], out: Path | None, db: Path | None) -> RunDirectory:
    from parity.pipeline.directory import RunDirectory, new_run_id
    from parity.run.checkout import checkout, runs_it

    given = checkout() if any(runs_it(arm.backend) for arm in plan.arms) else None
    about = {
        "command": command_said(),
        "db": str(db.absolute()) if db else None,
        "hosts": {name: host.to_json() for name, host in hosts.items()},
        **({"checkout": str(given)} if given else {}),
    }
    return RunDirectory.create(plan, new_run_id(), out, about)
