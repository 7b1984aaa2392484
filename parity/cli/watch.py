"""`parity watch`: probes of servers at an interval, for monitoring."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.cli.endpoints import REPLAY, own_arms
from parity.cli.options import PlanOptions, plan_options
from parity.cli.output import command_said, emit_json, say, versions_here
from parity.cli.planning import given
from parity.cli.run import check_recordings, new_directory, planned
from parity.cli.sampling import Real
from parity.cli.shared import database_option, json_option
from parity.cli.speaking import Misused, OneOf
from parity.messages import Message, message

if TYPE_CHECKING:
    from parity.pipeline.outcome import Outcome
    from parity.watch import Watched

A_YEAR = 365 * 86_400
"""Seconds: the longest interval."""

UNSCORED = ("run.unscored", "run.more_unscored")
"""Ids of the sentences about completions that were not scored."""

OWN = {"interval", "probes", "until", "metrics_port", "metrics_address", "webhook", "keep"}


@click.command()
@plan_options
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Probe with this plan file instead.")
@click.option(
    "--interval",
    type=Real(min=0, max=A_YEAR),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="From the start of one probe to the start of the next.",
)
@click.option("--probes", type=click.IntRange(min=1), metavar="N", help="End after so many. [default: never]")
@click.option(
    "--until",
    type=OneOf(["never", "corrupt", "changed", "not-pass"]),
    default="never",
    show_default=True,
    help="End at the first probe that DIVERGED, after which a number has changed, or that is anything but PASS.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Answer Prometheus here, at /metrics; 0 takes a free port. Needs the extra 'watch'.",
)
@click.option("--metrics-address", default="127.0.0.1", show_default=True, help="Address for the metrics.")
@click.option(
    "--webhook",
    metavar="URL",
    help="POST a JSON message there when a probe is not a PASS, when what is wrong changes, and when it is over.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Probes that pass and keep their captures; older ones stay in the database. Others keep theirs always.",
)
@database_option
@json_option
@click.pass_context
def watch(
    ctx: click.Context,
    /,
    plan_file: Path | None,
    interval: float,
    probes: int | None,
    until: str,
    metrics_port: int | None,
    metrics_address: str,
    webhook: str | None,
    keep: int,
    db: Path | None,
    as_json: bool,
    options: PlanOptions,
) -> int:
    """Probe servers again and again, and tell when what they say goes wrong.

    Each probe is a run of the plan, stored like any other. Compare servers with a recording (--replay golden=FILE
    --server URL) or with each other (two --server). With --json there is a line for every probe. The exit code is
    that of the worst probe, a corrupt one before one that failed.
    """  # fmt: skip
    from parity.cli.verdict import exit_code
    from parity.comparator import DEFAULT_ALPHA
    from parity.comparator.statistics import spent
    from parity.pipeline.capturing import engines
    from parity.pipeline.directory import RunDirectory
    from parity.pipeline.execute import execute
    from parity.records import Verdict
    from parity.store import Store
    from parity.watch import Metrics, Probe, Silent, Watched, Webhook
    from parity.watch import watch as go
    from parity.watch.earlier import evidence_of
    from parity.watch.judging import servers_of, warnings

    if plan_file is None and not given("backends") and not own_arms(options.endpoints):
        raise Misused(message("cli.nothing_watch_name", "nothing to watch: name a --server, --backends or a --plan"))

    bad = frozenset(Verdict) - {Verdict.PASS}
    ends = {
        "never": frozenset[Verdict](),
        "changed": frozenset[Verdict](),
        "corrupt": frozenset({Verdict.DIVERGED}),
        "not-pass": bad,
    }
    metrics = Silent() if metrics_port is None else Metrics()
    if webhook is not None:
        Webhook(webhook, bad, say)  # a mistake in it costs nothing
    golden = next((arm for arm in own_arms(options.endpoints) if arm.backend == REPLAY), None)
    if golden is not None and options.baseline is None:
        options = replace(options, baseline=f"{golden.backend}/{golden.variant}")
    plan, hosts = planned(ctx, plan_file, options, also=OWN)
    check_recordings(plan, hosts)
    for warning in warnings(plan):
        say(warning)
    hook = Silent() if webhook is None else Webhook(webhook, bad, say, servers_of(plan))
    if isinstance(metrics, Metrics) and metrics_port is not None:
        say(
            message(
                "cli.metrics_http_metrics",
                "metrics at http://{metrics_address}:{serve}/metrics",
                metrics_address=metrics_address,
                serve=metrics.serve(metrics_port, metrics_address),
            )
        )

    passed: deque[Path] = deque()

    class Printer:
        def ended(self, probe: Probe) -> None:
            if as_json:
                emit_json(probe.to_json(), on_one_line=True)

    class Tidy:
        def ended(self, probe: Probe) -> None:
            if probe.outcome is not None and probe.verdict is Verdict.PASS:
                passed.append(probe.outcome.directory)
                while len(passed) > keep:
                    shutil.rmtree(passed.popleft(), ignore_errors=True)

    with Store.open(db) as store:
        earlier = evidence_of(store, plan)
        if earlier.probes:
            say(
                message(
                    "watch.earlier",
                    "{count} earlier probe of this plan in the database counts as well",
                    plural="{count} earlier probes of this plan in the database count as well",
                    count=earlier.probes,
                )
            )

        def probe(number: int) -> Outcome:
            directory: RunDirectory = new_directory(plan, hosts, None, db)
            heard = say if number == 1 else _said_before
            with engines(lambda event: None, heard, hosts) as runner:
                return execute(
                    plan,
                    directory,
                    store,
                    runner,
                    command=command_said(),
                    versions=versions_here(),
                    say=heard,
                    alpha=spent(DEFAULT_ALPHA, earlier.probes + number),  # a restart spends nothing anew
                )

        watched = Watched()
        with _terminated_in_order():
            try:
                go(
                    probe,
                    (metrics, hook, Printer(), Tidy()),
                    interval=interval,
                    probes=probes,
                    until=ends[until],
                    until_changed=until in ("changed", "not-pass"),
                    evidence=earlier,
                    watched=watched,
                    say=say,
                )
            finally:  # a watch without --probes is ended by Ctrl-C, or by whatever runs it as a service
                _sum_up(watched, store.path)
    return exit_code(watched.worst)


@contextmanager
def _terminated_in_order() -> Iterator[None]:
    """SIGTERM ends what is within as Ctrl-C does, and then the process, as if nothing had caught it: service managers
    tell an end that they asked for from a failure by the signal. A second one ends it at once."""
    asked = False

    def heard(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, heard)
    except ValueError:  # not in the main thread, which alone hears of signals
        yield
        return
    try:
        yield
    finally:
        if asked:
            sys.stdout.flush()
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)


def _said_before(line: Message | str) -> None:
    """Of a probe after the first: a baseline that cannot score says which completions, and would each time."""
    if isinstance(line, str) or line.id not in UNSCORED:
        say(line)


def _sum_up(watched: Watched, database: Path) -> None:
    """How many probes came to which verdict, and where to look at the first that is corrupt."""
    from parity.paths import elsewhere, named_in

    if not watched.probes:
        return
    counts = ", ".join(f"{count} {verdict}" for verdict, count in (watched.verdicts or {}).items())
    say(message("cli.probes", "{probes} probes: {counts}", probes=watched.probes, counts=counts))
    if watched.corrupt is not None:
        say(
            message(
                "watch.first_corrupt",
                "the first that is corrupt: `parity runs show {run}`; the bug report: `parity report {run}`",
                run=named_in(watched.corrupt, elsewhere(database)),
            )
        )
