"""`parity reduce`: the smallest plan that still fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.cli.output import console, emit_json, say
from parity.cli.sampling import Real
from parity.cli.searching import SearchOptions, search_options
from parity.cli.speaking import Misused
from parity.errors import ExitCode, ParityError, writing
from parity.language import render
from parity.messages import Message, message
from parity.plan.types import SKETCHED

if TYPE_CHECKING:
    from parity.reduce.result import Reduction
    from parity.reduce.subject import Subject
    from parity.store import Store
    from parity.view.located import ArmLocated
    from parity.view.recorded import Broke


@click.command()
@click.argument("finding", type=int, required=False)
@click.option("--run", "run_id", help="A finding of this run: the first corrupt one. [default: the newest run]")
@click.option("--arm", help="Of this arm.")
@click.option("--request", help="Of this request.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Reduce this plan file, known to fail.")
@click.option("--same-kind", is_flag=True, help="Only the finding's own kind counts. [default: any corrupt finding]")
@click.option(
    "--probability",
    type=Real(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="With which the reduced plan is to fail.",
)
@click.option(
    "--tokens",
    "share",
    type=Real(0, 1, min_open=True),
    default=0.25,
    show_default=True,
    help="Share of the tokens, all rounds together, that the reduced plan may take.",
)
@click.option("--settings/--no-settings", default=True, show_default=True, help="Also drop settings not needed.")
@click.option("--rerun/--no-rerun", default=True, show_default=True, help="Show it again with fresh engines.")
@click.option(
    "--record", is_flag=True, help="Record the steps of the engines that show it again, and say what broke in them."
)
@click.option(
    "--sketch",
    is_flag=True,
    help="Sketch the activations of the engines that show it again, and name the first module that is wrong.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the reduced plan here as well.")
@search_options
def reduce(
    finding: int | None,
    run_id: str | None,
    arm: str | None,
    request: str | None,
    plan_file: Path | None,
    same_kind: bool,
    probability: float,
    share: float,
    settings: bool,
    rerun: bool,
    record: bool,
    sketch: bool,
    output: Path | None,
    options: SearchOptions,
) -> int:
    """Shrink a failing case: requests, prompts, outputs, sampling, settings.

    FINDING is the number of a finding, as `parity runs show` prints it. Without one, the first corrupt finding of the
    run. The result is a plan that fails with a stated probability: `parity run --plan reduced.json` shows it.
    Interrupted, the same command goes on. Exit code 0 when the reduced plan failed again, 4 when none was found.
    """
    from parity.cli.searching import laboratory, placed_subject, rerunner
    from parity.reduce.reducing import Wanted
    from parity.reduce.reducing import reduce as reduce_subject
    from parity.reduce.search import Goal
    from parity.store import Store
    from parity.view.recorded import what_broke

    if (record or sketch) and not rerun:
        raise Misused(
            message(
                "cli.record_rerun", "--record and --sketch are of the engines that show it again: leave out --no-rerun"
            )
        )
    with Store.open(options.db) as store:
        subject, hosts = placed_subject(_subject(store, finding, run_id, arm, request, plan_file), options)
        subject = _looked_into(subject, record=record, sketch=sketch)
        directory = options.out or subject.directory("reduce")
        before = subject.case.tokens * subject.plan.rounds
        wanted = Wanted(
            Goal(probability, max(1, round(before * share)), options.alpha, options.beta),
            settings=settings,
            seconds=options.seconds,
        )
        kinds = frozenset({subject.kind}) if same_kind and subject.kind else None
        say(
            message(
                "cli.reducing",
                "reducing {subject} ({arm}) in {directory}",
                subject=subject.name,
                arm=subject.arm.name,
                directory=str(directory),
            )
        )
        with laboratory(subject, hosts, directory, fresh=options.fresh, kinds=kinds) as (oracle, engines):
            result = reduce_subject(
                subject,
                wanted,
                oracle,
                engines,
                directory,
                rerun=rerunner(store, hosts, options.db) if rerun else None,
                say=say,
            )
        again = result.reproduced or (result.attempts[-1] if result.attempts else None)
        broke = what_broke(store, again) if record and again else None
        found = _located(store, again) if sketch and again else []
    if output is not None:
        _copy(result, output)
    _show(result, broke, found, as_json=options.as_json)
    shown = result.reproduced is not None or (not rerun and result.plan is not None)
    return ExitCode.PASS if shown else ExitCode.INCONCLUSIVE


def _looked_into(subject: Subject, *, record: bool, sketch: bool) -> Subject:
    """The subject with its steps recorded and its activations sketched, as asked."""
    plan = subject.plan
    looked = replace(plan, record=plan.record or record, sketch=SKETCHED[-1] if sketch else plan.sketch)
    return replace(subject, plan=looked)


def _located(store: Store, run: str) -> list[ArmLocated]:
    """What the run's sketches say; an engine that cannot be sketched takes nothing back of what was reduced."""
    from parity.view.located import locating

    try:
        return locating(store, run)
    except ParityError as error:
        say(error.message)
        return []


def _show(result: Reduction, broke: Broke | None, found: Sequence[ArmLocated], *, as_json: bool) -> None:
    from parity.view.recorded import said

    if as_json:
        recorded = {"recorded": broke.to_json()} if broke else {}
        emit_json({**result.to_json(), **recorded, **({"sketched": [one.to_json() for one in found]} if found else {})})
        return
    _print(result)
    for line in said(broke) if broke else ():
        say(line)
    for one in found:
        for line in [*one.said(), *([] if one.msprobe is None else [one.msprobe])]:
            say(line)


def _subject(
    store: Store, finding: int | None, run_id: str | None, arm: str | None, request: str | None, plan_file: Path | None
) -> Subject:
    from parity.plan.trusting import plan_to_run
    from parity.reduce.subject import from_finding, from_plan, from_run

    if plan_file is not None:
        if finding is not None or run_id is not None or request is not None:
            raise ParityError(
                message("cli.plan_finding_both", "--plan and a finding were both given"),
                hint=message("cli.give_one_them", "give one of them"),
            )
        return from_plan(plan_to_run(plan_file, say), plan_file, arm)
    if finding is None:
        return from_run(store, run_id, arm, request)
    if run_id is not None or arm is not None or request is not None:
        raise ParityError(
            message("cli.finding_one_run", "a finding is of one run, arm and request"),
            hint=message("cli.drop_run_arm", "drop --run, --arm and --request"),
        )
    row = store.finding(finding)
    if row is None:
        raise ParityError(
            message(
                "cli.there_no_finding",
                "there is no finding {finding} in {store}",
                finding=finding,
                store=str(store.path),
            ),
            hint=message("cli.lists_them", "`parity runs show` lists them"),
        )
    return from_finding(store, row)


def _copy(result: Reduction, output: Path) -> None:
    from parity.pipeline.directory import write_plan

    if result.plan is None:
        return
    with writing(output):
        write_plan(output, result.plan)


def _nothing_found(result: Reduction) -> Message:
    """Why there is no smaller plan."""
    if result.confirmation is not None:
        return message(
            "reduce.not_again",
            "what failed while searching did not fail again in {shots} new shots",
            shots=result.confirmation.shots,
        )
    if result.found.out_of_time:
        return message("reduce.out_of_time", "the time was spent before anything had failed often enough")
    if not any(step.failures for step in result.found.steps):
        return message(
            "reduce.never_failed", "none of {shots} shots failed, those of the whole plan included", shots=result.shots
        )
    return message("reduce.nothing_smaller", "nothing smaller fails often enough")


def _print(result: Reduction) -> None:
    from rich.table import Table
    from rich.text import Text

    from parity.text import visible

    out = console()
    confirmation = result.confirmation
    if result.after is None or confirmation is None:
        why = _nothing_found(result)
        line = message("reduce.no_result", "{finding}: {why}", finding=result.finding, why=why)
        out.print(Text(visible(render(line))))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", justify="left")
    table.add_column(render(message("reduce.before", "before")), justify="right")
    table.add_column(render(message("reduce.after", "after")), justify="right")
    for name, what in (
        ("requests", message("reduce.requests", "requests")),
        ("prompt_tokens", message("reduce.prompt_tokens", "prompt tokens")),
        ("max_tokens", "max_tokens"),
        ("rounds", message("reduce.rounds", "rounds")),
        ("tokens", message("reduce.tokens", "tokens, all rounds")),
    ):
        table.add_row(render(what), f"{getattr(result.before, name):,}", f"{getattr(result.after, name):,}")
    out.print(table)
    low, high = confirmation.interval
    lines = [
        message(
            "cli.round_fails_probability",
            "a round fails with probability {rate:.2g} ({low:.2g} to {high:.2g} at 95 %; "
            "{failures} of {shots} shots taken after the search)",
            rate=confirmation.rate,
            low=low,
            high=high,
            failures=confirmation.failures,
            shots=confirmation.shots,
        ),
        message(
            "cli.plan_fails_probability",
            "the plan fails with probability {probability:.3g} (at least {at_least:.2g})",
            probability=confirmation.probability,
            at_least=confirmation.at_least,
        )
        if not confirmation.alike
        else message(
            "cli.every_one_them", "every one of them failed, with the same output: it seems to be deterministic"
        ),
        message("cli.kinds", "kinds: {kinds}", kinds=result.found.kinds),
    ]
    if not confirmation.shots:
        lines[:2] = [message("reduce.not_confirmed", "not confirmed: the time was spent")]
    if result.settings is not None and result.settings["settings"] is not None:
        names = [one["name"] for one in result.settings["settings"]]
        lines.append(
            message(
                "cli.settings_needs",
                "settings it needs: {names}",
                names=names or message("reduce.no_settings", "none of those in which the arms differ"),
            )
        )
    lines += [one.line for one in result.hypotheses]
    if result.found.order_matters is not None:
        lines.append(
            message("reduce.order_matters", "the order of the requests matters")
            if result.found.order_matters
            else message("reduce.order_does_not_matter", "the order of the requests does not matter")
        )
    spent = message(
        "reduce.spent",
        "{shots} shots, {tokens} tokens, {starts} engine starts, {seconds:.0f} s",
        shots=result.shots,
        tokens=result.tokens,
        starts=result.engine_starts,
        seconds=result.seconds,
    )
    unfinished = message("reduce.unfinished", "{spent}; the time was spent before the search was over", spent=spent)
    lines.append(unfinished if result.found.out_of_time else spent)
    if result.reproduced:
        lines.append(
            message(
                "cli.reproduced_fresh_engines",
                "reproduced with fresh engines: run {reproduced}",
                reproduced=result.reproduced,
            )
        )
    elif result.attempts:
        lines.append(
            message(
                "cli.not_reproduced_fresh", "NOT reproduced with fresh engines: {attempts}", attempts=result.attempts
            )
        )
    lines.append(message("cli.parity_run_plan", "parity run --plan {plan_file}", plan_file=str(result.plan_file)))
    for line in lines:
        out.print(Text(visible(render(line))))
