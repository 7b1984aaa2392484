"""`parity bisect`: which setting, or which engine version, it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.cli.output import console, emit_json, say
from parity.cli.searching import SearchOptions, search_options
from parity.cli.shared import Names
from parity.errors import ExitCode, ParityError
from parity.language import render
from parity.messages import Message, joined, message

if TYPE_CHECKING:
    from parity.comparator import Suspect
    from parity.records import Json
    from parity.reduce.case import Case
    from parity.reduce.hypothesis import Asked
    from parity.reduce.search import Goal
    from parity.reduce.settings import Flip
    from parity.reduce.subject import Subject
    from parity.reduce.versions import FirstBad
    from parity.store import Store


@click.group()
def bisect() -> None:
    """Find the settings, or the engine version, that make a case fail."""


@bisect.command(short_help="Find the settings that flip the verdict.")
@click.argument("failing", required=False)
@click.argument("passing", required=False)
@click.option("--run", "run_id", help="Arms of this run. [default: the newest run]")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Arms of this plan file.")
@search_options
def settings(
    failing: str | None,
    passing: str | None,
    run_id: str | None,
    plan_file: Path | None,
    options: SearchOptions,
) -> int:
    """Find the smallest set of settings that flips the verdict between two arms.

    FAILING and PASSING are arms of the run or plan, such as cpu/mtp and cpu/base; without them, the first arm with
    corrupt findings and the baseline. The case asked about is the smallest batch around the finding that fails.
    Interrupted, the same command goes on. Exit code 0 when the settings were found, 4 when not.
    """
    from parity.cli.searching import laboratory, placed_subject
    from parity.reduce.flipping import flipped
    from parity.reduce.subject import find_arm
    from parity.store import Store

    with Store.open(options.db) as store:
        subject = _subject(store, run_id, plan_file, failing)
        subject, hosts = placed_subject(subject, options)
        suspect = None if plan_file is not None else _suspect(store, run_id)
        other = find_arm(subject.plan, passing or subject.plan.baseline)
        directory = options.out or subject.directory(f"settings {other.name}")
        goal = _goal(subject, options)
        say(
            message(
                "cli.bisecting_settings",
                "bisecting the settings of {arm} and {other} in {directory}",
                arm=subject.arm.name,
                other=other.name,
                directory=str(directory),
            )
        )
        with laboratory(subject, hosts, directory, fresh=options.fresh) as (oracle, _):
            done = flipped(subject, other, oracle, goal, options.seconds, say)
            flip, asked = done.flip, done.asked
            spent = {"shots": oracle.shots, "seconds": round(oracle.spent, 1), "engine_starts": oracle.starts}
    if options.as_json:
        named = None if suspect is None else {"name": str(suspect.name), "why": str(suspect.why)}
        hypotheses = {"hypotheses": [one.to_json() for one in asked]} if asked else {}
        emit_json({"schema": "parity.bisect-settings/1", **flip.to_json(), "suspect": named, **hypotheses, **spent})
    else:
        _print_flip(flip, done.case, suspect, asked, spent)
    return ExitCode.PASS if flip.settings is not None else ExitCode.INCONCLUSIVE


@bisect.command()
@click.argument("older")
@click.argument("newer")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="The case to ask with: a plan that fails.")
@click.option("--run", "run_id", help="The case of this run instead. [default: the newest run]")
@click.option("--arm", help="The arm that fails. [default: the candidate, or the first with corrupt findings]")
@click.option("--versions", "named", type=Names(), help="Versions to choose from. [default: those the backend knows]")
@click.option("--fixed-baseline", is_flag=True, help="Leave the baseline on its own version.")
@search_options
def versions(
    older: str,
    newer: str,
    plan_file: Path | None,
    run_id: str | None,
    arm: str | None,
    named: tuple[str, ...] | None,
    fixed_baseline: bool,
    options: SearchOptions,
) -> int:
    """Find the engine version, between OLDER and NEWER, that broke a case or mended it.

    Both arms move from version to version. Environments that are missing are built, which takes minutes and
    gigabytes each. Interrupted, the same command goes on. Exit code 0 when one version was named, 4 when not.
    """
    from parity.cli.searching import laboratory, placed_subject
    from parity.reduce.versions import VersionSearch, between
    from parity.run import load_backend
    from parity.store import Store

    with Store.open(options.db) as store:
        subject, hosts = placed_subject(_subject(store, run_id, plan_file, arm), options)
    listed = between(named or known_versions(subject.arm.backend), older, newer)
    for version in listed:
        load_backend(f"{subject.arm.backend.partition('@')[0]}@{version}")  # a mistake costs no start of an engine
    directory = options.out or subject.directory(f"versions {fixed_baseline}")
    goal = _goal(subject, options)
    say(
        message(
            "cli.bisecting_versions",
            "bisecting {count} versions, {listed}, in {directory}",
            count=len(listed),
            listed=" ".join(listed),
            directory=str(directory),
        )
    )
    case = subject.case  # a smaller one would have to be looked for on each version
    with laboratory(subject, hosts, directory, fresh=options.fresh) as (oracle, _):
        oracle.until(options.seconds)
        search = VersionSearch(
            oracle,
            case,
            subject.arm,
            subject.plan.arm(subject.plan.baseline),
            goal.question(case),
            fixed_baseline=fixed_baseline,
            say=say,
        )
        found = search.run(listed)
        spent = {"shots": oracle.shots, "seconds": round(oracle.spent, 1), "engine_starts": oracle.starts}
    if options.as_json:
        emit_json({**found.to_json(), **spent})
    else:
        _print_versions(found, goal, spent)
    return ExitCode.PASS if found.named else ExitCode.INCONCLUSIVE


def _subject(store: Store, run_id: str | None, plan_file: Path | None, arm: str | None) -> Subject:
    from parity.plan.trusting import plan_to_run
    from parity.reduce.subject import from_plan, from_run

    if plan_file is None:
        return from_run(store, run_id, arm)
    if run_id is not None:
        raise ParityError(
            message("cli.plan_run_both", "--plan and --run were both given"),
            hint=message("cli.give_one_them", "give one of them"),
        )
    return from_plan(plan_to_run(plan_file, say), plan_file, arm)


def _goal(subject: Subject, options: SearchOptions) -> Goal:
    """Fails often enough: the rounds of the plan show it, or as many tokens of a smaller case."""
    from parity.reduce.search import Goal

    return Goal(tokens=subject.case.tokens * subject.plan.rounds, alpha=options.alpha, beta=options.beta)


def _suspect(store: Store, run_id: str | None) -> Suspect | None:
    """What the arms of the run together point at, or one alone; controls are none."""
    from parity.view import of_store

    return of_store(store, store.run(run_id).id, limit=1).suspect_of_any


def known_versions(backend: str) -> Sequence[str]:
    from parity.run import Versioned, load_backend

    adapter = load_backend(backend.partition("@")[0])
    if not isinstance(adapter, Versioned):
        raise ParityError(
            message("cli.backend_no_list", "backend {backend!r} has no list of its engine's versions", backend=backend),
            hint=message("cli.name_them_versions", "name them with --versions A,B,C"),
        )
    return adapter.known_versions()


def _print_flip(
    flip: Flip, case: Case, suspect: Suspect | None, asked: Sequence[Asked], spent: dict[str, Json]
) -> None:
    from rich.text import Text

    from parity.text import visible

    out = console()
    lines = [
        message(
            "cli.fails_not_they",
            "{failing} fails and {passing} does not; they differ in {count} settings:",
            failing=flip.failing,
            passing=flip.passing,
            count=len(flip.differ),
        )
    ]
    lines += [joined(["  ", one.said], by="") for one in flip.differ]
    if flip.settings is None:
        lines.append(message("cli.time_spent_before_search", "the time was spent before the search was over"))
    else:
        lines.append(
            message(
                "cli.smallest_set_flips",
                "smallest set that flips the verdict: {settings}",
                settings=[one.said for one in flip.settings],
            )
        )
    lines.append(
        message(
            "cli.asked_requests",
            "asked with {count} of the requests: {requests}",
            count=len(case.requests),
            requests=", ".join(r.id for r in case.requests)[:200],
        )
    )
    lines += [one.line for one in asked]
    if suspect is not None:
        lines.append(message("cli.suspect", "suspect: {suspect}: {why}", suspect=suspect.name, why=suspect.why))
    lines.append(
        message(
            "cli.shots_engine_starts",
            "{shots} shots, {engine_starts} engine starts, {seconds:.0f} s",
            shots=spent["shots"],
            engine_starts=spent["engine_starts"],
            seconds=spent["seconds"],
        )
    )
    for line in lines:
        out.print(Text(visible(render(line))))


def _print_versions(found: FirstBad, goal: Goal, spent: dict[str, Json]) -> None:
    from rich.text import Text

    from parity.text import visible

    out = console()
    asked = {step.what: step for step in found.steps}
    lines = []
    for version in found.versions:
        step = asked.get(version)
        if step is None:
            lines.append(message("cli.not_asked", "  {version}  not asked", version=version))
        elif step.why:
            lines.append(
                message("cli.cannot_tried", "  {version}  cannot be tried: {why}", version=version, why=step.why)
            )
        else:
            lines.append(
                message(
                    "cli.shots",
                    "  {version}  {accepted}  {failures} of {shots} shots",
                    version=version,
                    accepted=message("bisect.fails", "fails") if step.accepted else message("bisect.clean", "clean"),
                    failures=step.failures,
                    shots=step.shots,
                )
            )
    lines.append(_change(found))
    answers = len([step for step in found.steps if not step.why])
    lines.append(
        message(
            "cli.shots_answers_each",
            "{shots} shots for {answers} answers, each wrong with probability {alpha:g} (said to "
            "fail) or {beta:g} (said to be clean) at most; {engine_starts} engine starts, "
            "{seconds:.0f} s",
            shots=spent["shots"],
            answers=answers,
            alpha=goal.alpha,
            beta=goal.beta,
            engine_starts=spent["engine_starts"],
            seconds=spent["seconds"],
        )
    )
    for line in lines:
        out.print(Text(visible(render(line))))


def _change(found: FirstBad) -> Message:
    """Between which versions the answer changes."""
    if found.named:
        if found.mended:
            return message(
                "bisect.first_good_version",
                "first good version: {good} (the last bad one is {bad})",
                good=found.good,
                bad=found.bad,
            )
        return message(
            "cli.first_bad_version",
            "first bad version: {bad} (the last good one is {good})",
            bad=found.bad,
            good=found.good,
        )
    why = (
        message("bisect.time_spent", "the time was spent")
        if found.out_of_time
        else message("bisect.untried", "those in between cannot be tried")
    )
    if found.mended:
        return message(
            "bisect.good_after",
            "first good version: after {bad}, one of {versions}: {why}",
            bad=found.bad,
            versions=[*found.untried, found.good],
            why=why,
        )
    return message(
        "bisect.after",
        "first bad version: after {good}, one of {versions}: {why}",
        good=found.good,
        versions=[*found.untried, found.bad],
        why=why,
    )
