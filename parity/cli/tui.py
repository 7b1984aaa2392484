"""`parity tui`: the terminal interface."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.cli.shared import database_option
from parity.errors import ParityError
from parity.files import is_file
from parity.messages import Message, message
from parity.paths import expanded

if TYPE_CHECKING:
    from parity.store import FindingRow, RunRow
    from parity.tui.outside import FollowUp


SERVED = "TEXTUAL_DRIVER"
"""Set by textual-serve for the processes that it starts."""


@click.command()
@click.argument("run", required=False)
@database_option
@click.option("--web", is_flag=True, help="Serve it to a browser on this machine (needs textual-serve).")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Port for --web.")
def tui(run: str | None, db: Path | None, web: bool, port: int) -> int:
    """Go through the findings of stored runs: look, compare, decide. RUN is opened at once."""
    if web:
        _serve(run, db, port)
        return 0
    served = SERVED in os.environ  # textual-serve talks to it through pipes
    if not served and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ParityError(
            message("cli.interface_needs_terminal", "the interface needs a terminal, and this is none"),
            hint=message("cli.prints_run_all", "`parity runs show` prints a run, `parity runs show --json` all of it"),
        )
    from parity.tui.app import ParityApp
    from parity.tui.outside import Outside

    app = ParityApp(db, run, outside=Outside(_report, _follow_ups))
    app.run()
    return app.return_code or 0


def _serve(run: str | None, db: Path | None, port: int) -> None:
    try:
        server = import_module("textual_serve.server")
    except ImportError as error:
        raise ParityError(
            message("cli.web_needs_package", "--web needs the package textual-serve, which is not installed here"),
            hint=shlex.join([sys.executable, "-m", "pip", "install", "textual-serve"]),
        ) from error
    # An absolute path: the server starts one process for each visitor, and nothing says from where.
    database = ["--db", str(expanded(db).absolute())] if db else []
    command = [sys.executable, "-m", "parity", "tui", *([run] if run else []), *database]
    server.Server(shlex.join(command), host="localhost", port=port, title="parity").serve()


def _report(database: Path, finding: FindingRow) -> str:
    from parity.report.write import write_report
    from parity.store import Store

    with Store.open(database, create=False) as store:
        return write_report(store, f"finding:{finding.id}")


def _follow_ups(database: Path, run: RunRow, finding: FindingRow | None) -> Sequence[FollowUp]:
    """What there is to do with a finding, or with a run where none is meant."""
    from parity.tui.outside import FollowUp
    from parity.view.lines import actual_status

    there = ("--db", str(database))
    found: list[FollowUp] = []
    cannot = None if finding is None else _cannot_answer(run, finding.arm, run.baseline)
    ran = run.source == "run"
    if finding is not None and finding.severity == "corrupt":
        number = str(finding.id)
        if ran:
            arms = (finding.arm, run.baseline, "--run", run.id)
            found += [
                FollowUp(
                    message("tui.do.reduce", "Reduce it"),
                    ("reduce", number, *there),
                    message("tui.do.reduce.what", "the smallest plan that still fails"),
                    cannot=cannot,
                ),
                FollowUp(
                    message("tui.do.settings", "Bisect the settings"),
                    ("bisect", "settings", *arms, *there),
                    message("tui.do.settings.what", "those that make it fail"),
                    cannot=cannot,
                ),
                FollowUp(
                    message("tui.do.versions", "Bisect the versions"),
                    ("bisect", "versions", "--run", run.id, "--arm", finding.arm, *there),
                    message("tui.do.versions.what", "the first version of the engine that fails"),
                    ask=message(
                        "tui.do.versions.ask", "A version that is good and one that is bad, such as 0.27.1 0.32.0"
                    ),
                    cannot=cannot or _no_versions(finding.arm),
                ),
            ]
        script = f"repro-{run.id}-{finding.id}.py"
        found.append(
            FollowUp(
                message("tui.do.repro", "Write a script"),
                ("repro", f"finding:{number}", "-o", script, *there),
                message("tui.do.repro.what", "it shows the fault with vLLM alone"),
                cannot=_cannot_answer(run, finding.arm),
            )
        )
    if not ran:
        return found
    status = actual_status(run)
    if status in ("interrupted", "failed"):
        what = message("tui.do.finish.what", "once what failed is mended") if status == "failed" else None
        found.append(FollowUp(message("tui.do.finish", "Finish the run"), ("run", "--resume", run.id, *there), what))
    again = () if status == "interrupted" else _again(database, run)
    if again:
        what = message("tui.do.again.what", "the same plan; triage is recognised in the new run")
        found.append(FollowUp(message("tui.do.again", "Run it again"), again, what))
    return found


def _again(database: Path, run: RunRow) -> tuple[str, ...]:
    """The plan itself, where there is one to run: the paths of the command may be those of another directory. Of
    recordings the command; () where there is none."""
    from parity.pipeline.directory import RunDirectory
    from parity.view.at_hand import REPLAY

    if run.directory and not any(arm.backend == REPLAY for arm in run.plan.arms):
        plan = RunDirectory(Path(run.directory)).plan_file
        if is_file(plan):
            return ("run", "--plan", str(plan), "--db", str(database))
    words = shlex.split(run.command)
    return tuple(_without_directory(words[1:])) if words[:2] == ["parity", "run"] else ()


def _no_versions(arm: str) -> Message | None:
    """Why the versions of this arm's engine cannot be bisected without naming them."""
    from parity.cli.bisect import known_versions

    try:
        known_versions(arm.partition("/")[0])
    except ParityError as error:
        return error.message
    return None


def _cannot_answer(run: RunRow, *names: str) -> Message | None:
    """Why nothing can be asked of these arms again: one is a recording."""
    from parity.cli.searching import answers_nothing_new

    try:
        return answers_nothing_new(*(one for name in names for one in run.plan.arms if one.name == name))
    except ParityError as error:
        return error.message


def _without_directory(words: Sequence[str]) -> list[str]:
    """The command without `--out`: that directory has the first run in it."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word.startswith("--out="):
            skip = False
        elif word == "--out":
            skip = True
        else:
            kept.append(word)
    return kept
