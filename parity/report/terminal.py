"""The summary on a terminal: readable at 80 columns, in a pipe, and without colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from parity.language import render
from parity.messages import Message, message, within
from parity.records import Kind
from parity.report import advice
from parity.report.arm_lines import print_arms
from parity.report.finding_lines import finding_lines, near_tie_lines
from parity.text import visible, wrap
from parity.view import ArmView, NextCommand, RunView, next_commands

_STYLE = {"PASS": "bold green", "DIVERGED": "bold red", "INCONCLUSIVE": "bold yellow", "ERROR": "bold red"}


COLUMNS: Final = (
    message("terminal.column.completions", "completions"),
    message("terminal.column.identical", "identical"),
    message("terminal.column.near_tie", "near-tie"),
    message("terminal.column.corrupt", "corrupt"),
    message("terminal.column.acceptance", "acceptance"),
    message("terminal.column.speed", "tokens/s"),
)
ARM: Final = message("terminal.column.arm", "arm")

FIGURES: Final = frozenset(
    f"conclude.{name}"
    for name in (
        "moved",
        "residuals",
        "own_residuals",
        "seen_rows",
        "seen_no_rows",
        "seen_ways",
        "unseen_ways",
        "untried_ways",
    )
)
"""Reasons of a PASS that are for who wants to know how small a thing would have been seen."""


def print_summary(
    console: Console, view: RunView, before_steps: Callable[[], None] | None = None, *, brief: bool = False
) -> None:
    """The whole report: verdict, arms, worst findings, what could have been missed, what to do next.

    `before_steps` prints what belongs before the last of these. `brief`: a PASS without its figures and logprobs, and
    with what it means.
    """
    brief = brief and view.run.verdict == "PASS"
    _verdict(console, view, brief=brief)
    console.print()
    _arms(console, view.arms)
    said = [render(reason) for reason in (*view.run.reasons, view.run.message or "")]
    for arm in view.arms:
        for detail in _below(arm, said):
            _wrapped(console, message("terminal.of_arm", "{arm}: {detail}", arm=arm.name, detail=detail))
    if view.examples:
        console.print()
        widest = view.examples[0]
        if brief and widest.kind == Kind.NEAR_TIE and widest.position is not None:
            for line in near_tie_lines(view.total_findings, widest, view.run.baseline, view.text, console.width):
                _line(console, line)
        else:
            _examples(console, view)
    for number, paragraph in enumerate([*advice.missed(view), *_notes(view)]):
        if not number:
            console.print()
        _wrapped(console, paragraph)
    if before_steps is not None:
        console.print()
        before_steps()
    commands, steps = next_commands(view), advice.next_steps(view, brief=brief)
    if commands or steps:
        console.print()
        _line(console, render(message("terminal.next", "What to do next:")), style="bold")
        for command in commands:
            _command(console, command)
        for step in steps:
            _wrapped(console, step, indent="- ")


def _command(console: Console, command: NextCommand) -> None:
    """What it does, and the command on a line of its own, which is not broken: it is there to be copied."""
    _wrapped(console, command.what, indent="- ")
    if command.text:
        _line(console, "  " + visible(command.text))
    if command.remark is not None:
        _wrapped(console, command.remark, indent="  ")


def _examples(console: Console, view: RunView) -> None:
    examples, total = view.examples, view.total_findings
    if not examples[0].is_corrupt:
        head = message("terminal.widest", "The widest near-tie ({shown} of {total}):", shown=1, total=total)
    elif total > len(examples):
        head = message("terminal.worst", "The worst findings ({shown} of {total}):", shown=len(examples), total=total)
    else:
        head = message("terminal.all", "The worst findings ({total}):", total=total)
    _line(console, render(head), style="bold")
    if any(example.logprobs("reference") for example in examples):
        _wrapped(
            console,
            message(
                "terminal.reference",
                "(reference: {baseline}, asked about the candidate's own tokens)",
                baseline=view.run.baseline,
            ),
        )
    for number, example in enumerate(examples, 1):
        console.print()
        for line in finding_lines(number, example, view.run.baseline, view.text, console.width):
            _line(console, line)


def _notes(view: RunView) -> Iterator[Message]:
    return (message("terminal.note", "Note: {note}", note=note) for note in view.notes)


def _line(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)


def _wrapped(console: Console, said: Message | str, indent: str = "") -> None:
    for line in wrap(visible(render(said)), console.width - 1, first=indent, other=" " * len(indent)):
        _line(console, line)


def headline(view: RunView) -> str:
    """The verdict in one line."""
    if view.run.verdict is None:
        unfinished = render(message("terminal.no_verdict", "no verdict yet"))
        return f"{(view.run.status or 'unfinished').upper()}  {unfinished}"
    reason, *_ = render(view.run.reasons[0] if view.run.reasons else view.run.message or "").split("\n")
    return f"{view.run.verdict}  {visible(reason)}".rstrip()


def _verdict(console: Console, view: RunView, *, brief: bool) -> None:
    run = view.run
    said = [one for one in run.reasons if not (brief and any(part.id in FIGURES for part in within(one)))]
    reasons = [render(reason) for reason in said]
    _headline(console, headline(view))
    if reasons:
        _log(console, reasons[0])
    if brief and any(arm.count("near_tie") for arm in view.arms):
        means = message(
            "terminal.means.near_tie",
            "Texts differ where the candidate's token is nearly as likely to {baseline} as its best one: rounding, "
            "no fault.",
            baseline=run.arbiter if _arbiter_decided(view) else run.baseline,
        )
        _wrapped(console, means, indent="  ")
    # What follows the headline of a PASS says how sure it is, not why else.
    other = "  - " if run.verdict == "PASS" else render(message("terminal.also", "  also: "))
    for reason in reasons[1:]:
        _wrapped(console, reason.split("\n")[0], indent=other)
        _log(console, reason)
    if about := list(_about(view)):
        _line(console, visible(", ".join(render(part) for part in about)), style="dim")
    failure = "" if run.message is None else render(run.message)
    if failure and run.verdict in (None, "ERROR") and failure not in reasons:
        if run.verdict is None or reasons:  # else it is the headline
            _wrapped(console, failure.split("\n")[0])
        _log(console, failure)


def _arbiter_decided(view: RunView) -> bool:
    """Is it the arbiter alone that holds the differences for noise?"""
    return any(part.id == "arbiter.noise" for reason in view.run.reasons for part in within(reason))


def _headline(console: Console, said: str) -> None:
    lines = wrap(said, console.width - 1, other="  ")
    word, _, tail = lines[0].partition(" ")
    console.print(Text.assemble((word, _STYLE.get(word, "bold")), " " + tail), soft_wrap=True)
    for line in lines[1:]:
        _line(console, line)


def _about(view: RunView) -> Iterator[Message | str]:
    """Which run it is, and how long it took."""
    run = view.run
    if run.id:
        yield message("terminal.run", "run {run}", run=run.id)
    if run.model:
        yield message("terminal.model", "model {model}", model=run.model)
    if run.duration is not None:
        yield f"{run.duration:.0f} s"


def _log(console: Console, said: str) -> None:
    """What stands below the first line of an engine's failure: the end of its log, line by line."""
    for line in said.split("\n")[1:]:
        _line(console, "  " + visible(line), style="dim")


def _arms(console: Console, arms: Sequence[ArmView]) -> None:
    rows = [(visible(arm.name), _cells(arm)) for arm in arms]
    print_arms(console, render(ARM), [render(name) for name in COLUMNS], rows)


def _cells(arm: ArmView) -> list[str]:
    baseline = render(message("terminal.baseline", "baseline"))
    return [
        str(arm.completions),
        str(arm.count("identical")) if arm.compared else baseline if arm.is_baseline else "-",
        str(arm.count("near_tie")) if arm.compared else "",
        str(arm.faulty) if arm.compared else "",
        _acceptance(arm),
        f"{arm.tokens_per_second:,.0f}" if arm.tokens_per_second else "-",
    ]


def _below(arm: ArmView, said: Sequence[str]) -> Iterator[Message | str]:
    if arm.is_control:
        yield message(
            "terminal.control",
            "a positive control: its fault was planted on purpose, and what is found there is expected",
        )
    elif arm.planted:
        yield message("terminal.planted", "a fault was planted in its engine on purpose ({fault})", fault=arm.planted)
    if arm.emulated:
        yield message("terminal.emulated", "on an emulated NPU")
    if arm.first_faults:
        kinds = [f"{count} {kind}" for kind, count in arm.first_faults.items()]
        yield message("terminal.corrupt", "corrupt: {kinds}", kinds=kinds)
    if arm.follow_ups:
        yield follow_ups(arm)
    if arm.of_run:
        yield of_run(arm)
    others = [one for cls, one in _others(arm).items() if arm.count(cls)]
    if others and not arm.is_baseline:
        yield message("terminal.others", "{others}", others=others)
    failure, *_ = ("" if arm.message is None else render(arm.message)).split("\n")
    if failure and not any(line.startswith(failure) for line in said):
        yield failure.removeprefix(f"{arm.name}: ")


def follow_ups(arm: ArmView) -> Message:
    """What was found in completions after their first faults."""
    kinds = [f"{count} {kind}" for kind, count in arm.follow_ups.items()]
    return message("terminal.follow_ups", "after these in the same completions: {kinds}", kinds=kinds)


def of_run(arm: ArmView) -> Message:
    """What was found of the run as a whole, and counts among no completions."""
    return message("terminal.of_run", "the run as a whole: {kinds}", kinds=list(arm.of_run))


def _others(arm: ArmView) -> dict[str, Message]:
    return {
        "sampled": message("terminal.sampled", "{count} sampled", count=arm.count("sampled")),
        "unjudged": message("terminal.unjudged", "{count} unjudged", count=arm.count("unjudged")),
        "missing": message("terminal.missing", "{count} missing", count=arm.count("missing")),
    }


def _acceptance(arm: ArmView) -> str:
    if arm.acceptance_rate is None:
        return "-"
    length = f" ({arm.acceptance_length:.2f})" if arm.acceptance_length is not None else ""
    return f"{arm.acceptance_rate:.0%}{length}"
