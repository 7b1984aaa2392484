"""What `parity reduce` and `parity bisect` share: where the subject comes from, the laboratory, a run at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from parity.cli.config import HostOptions, host_options
from parity.cli.gathering import gathered
from parity.cli.output import command_said, say, versions_here
from parity.cli.sampling import Real
from parity.cli.shared import check_checkout, checkout_option, database_option, json_option
from parity.messages import Message, message

if TYPE_CHECKING:
    from parity.plan import Arm, Plan
    from parity.plan.hosts import Host
    from parity.records import Verdict
    from parity.reduce.engines import Engines
    from parity.reduce.oracle import Oracle
    from parity.reduce.subject import Subject
    from parity.store import Store

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Values of the options of every search."""

    where: HostOptions
    model: Path | None
    alpha: float
    beta: float
    minutes: float | None
    out: Path | None
    fresh: bool
    db: Path | None
    as_json: bool

    @property
    def seconds(self) -> float | None:
        """How long the search may take; None: as long as it takes."""
        return None if self.minutes is None else self.minutes * 60


def search_options(function: F) -> F:
    """Options of every search: how sure, how long, where it is written down; the function gets them as `options`."""
    function = gathered(function, "options", SearchOptions)
    for option in (
        json_option,
        database_option,
        click.option("--fresh", is_flag=True, help="Start over instead of going on with what an earlier attempt left."),
        click.option(
            "--out",
            type=click.Path(path_type=Path),
            help="Where shots, logs and results are kept. [default: reductions/DIGEST in the data directory]",
        ),
        click.option(
            "--minutes",
            type=Real(min=0.1),
            help="Stop searching after this long, earlier attempts included. [default: no limit]",
        ),
        click.option(
            "--beta",
            type=Real(0, 0.5, min_open=True, max_open=True),
            default=0.05,
            show_default=True,
            help="Chance to take what fails often enough for clean, per decision.",
        ),
        click.option(
            "--alpha",
            type=Real(0, 0.5, min_open=True, max_open=True),
            default=0.05,
            show_default=True,
            help="Chance to take what fails too rarely for failing, per decision.",
        ),
        checkout_option,
        click.option("--model", type=click.Path(path_type=Path), help="Checkpoint directory on this machine."),
        host_options,
    ):
        function = option(function)
    return function


def placed_subject(subject: Subject, options: SearchOptions) -> tuple[Subject, dict[str, Host]]:
    """The subject with its checkpoint found on this machine, and where its backends are.

    Raises ParityError where nothing can be asked again.
    """
    from parity.cli.config import hosts_of
    from parity.errors import ParityError
    from parity.pipeline.checkpoints import locate_model
    from parity.pipeline.placing import load_adapters

    check_checkout([subject.arm.backend], subject.run)
    if (why := answers_nothing_new(subject.arm, subject.plan.arm(subject.plan.baseline))) is not None:
        raise ParityError(
            why,
            hint=message(
                "cli.run_prompts_engine",
                "run its prompts on an engine (`parity run --backends …`), and narrow that run down",
            ),
        )
    known: dict[str, Host] = {}
    if subject.run is not None:  # the database says where it is, and anybody may have written there
        subject.run.plan_to_run(say)
        known = subject.run.hosts(say)
    hosts = hosts_of(subject.plan, options.where, known)
    plan = locate_model(subject.plan, options.model, load_adapters(hosts))
    return replace(subject, plan=plan), hosts


def answers_nothing_new(*arms: Arm) -> Message | None:
    """Which of these arms, that fails or that is the baseline, is a recording; None where all can be asked again.

    Raises ParityError for a backend that is not there."""
    from parity.run import OwnSettings, load_backend

    for arm in arms:
        name, adapter = arm.name, load_backend(arm.backend)
        if isinstance(adapter, OwnSettings) and not adapter.answers_anew:
            return message("cli.recording_answers_nothing", "{arm} is a recording, and answers nothing new", arm=name)
    return None


@contextmanager
def laboratory(
    subject: Subject,
    hosts: Mapping[str, Host],
    directory: Path,
    *,
    fresh: bool,
    kinds: frozenset[str] | None = None,
) -> Iterator[tuple[Oracle, Engines]]:
    """An oracle over live engines, with the notebook of this directory."""
    from parity.pipeline.analyse import detokenizer
    from parity.plan.hosts import host_of
    from parity.reduce.engines import Engines
    from parity.reduce.notebook import Notebook
    from parity.reduce.oracle import Oracle
    from parity.run import Interrupted
    from parity.run.live import live_arm

    def opener(plan: Plan, arm_name: str, log_path: Path, /) -> Any:
        return live_arm(plan, arm_name, log_path, host=host_of(hosts, arm_name, plan.arm(arm_name).backend), say=say)

    shots = directory / "shots.jsonl"
    if fresh:
        shots.unlink(missing_ok=True)
    with (
        Notebook(shots) as notebook,
        Engines(
            subject.plan,
            directory / "logs",
            opener,
            tolerance=subject.tolerance,
            detokenize=detokenizer(Path(subject.plan.model.path)),
            say=say,
            started=notebook.started,
        ) as engines,
    ):
        if notebook.shots:
            say(
                message(
                    "cli.going_shots_earlier",
                    "going on with {shots} shots of earlier attempts in {directory}",
                    shots=notebook.shots,
                    directory=str(directory),
                )
            )
        try:
            yield Oracle(engines, notebook, kinds=kinds), engines
        except Interrupted:
            raise Interrupted(
                message(
                    "cli.interrupted_after_shots",
                    "interrupted after {shots} shots, kept in {directory}",
                    shots=notebook.shots,
                    directory=str(directory),
                ),
                hint=message("cli.same_command_goes", "the same command goes on from there"),
            ) from None


def rerunner(store: Store, hosts: Mapping[str, Host], db: Path | None) -> Callable[[Plan], tuple[str, Verdict]]:
    """Runs a plan as `parity run --plan` would: a stored run, fresh engines."""

    def rerun(plan: Plan) -> tuple[str, Verdict]:
        from parity.pipeline.capturing import engines
        from parity.pipeline.directory import RunDirectory, new_run_id
        from parity.pipeline.execute import execute
        from parity.run import progress

        command = command_said()
        about = {
            "command": command,
            "db": str(db.absolute()) if db else None,
            "hosts": {name: host.to_json() for name, host in hosts.items()},
        }
        directory = RunDirectory.create(plan, new_run_id(), None, about)
        with progress([arm.name for arm in plan.arms], sys.stderr) as watch, engines(watch, say, hosts) as runner:
            outcome = execute(
                plan,
                directory,
                store,
                runner,
                command=command,
                versions=versions_here(),
                say=say,
            )
        return outcome.run_id, outcome.verdict

    return rerun
