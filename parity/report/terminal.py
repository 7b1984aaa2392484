"""The summary on a terminal: readable at 80 columns, in a pipe, and without colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from rich.console import Console
from rich.text import Text

from parity.language import render
from parity.messages import Message, message
from parity.records.evidence import InputEvidence, LogprobEvidence, TextEvidence
from parity.report import advice
from parity.report.arm_lines import print_arms
from parity.text import cell_width, clip, visible, wrap
from parity.view import ArmView, FindingView, NextCommand, RunView, next_commands
from parity.view.tokens import TokenText

_STYLE = {"PASS": "bold green", "DIVERGED": "bold red", "INCONCLUSIVE": "bold yellow", "ERROR": "bold red"}


COLUMNS: Final = (
    message("terminal.column.completions", "completions"),
    message("terminal.column.identical", "identical"),
    message("terminal.column.near_tie", "near-tie"),
    message("terminal.column.corrupt", "corrupt"),
    message("terminal.column.acceptance", "acceptance"),
    message("terminal.column.speed", "tokens/s"),
)
REFERENCE: Final = message("terminal.reference.name", "reference")
NO_NUMBER: Final = message("terminal.logprob.none", "not a number")
CHOSEN: Final = message("terminal.chosen", "(chosen)")
ARM: Final = message("terminal.column.arm", "arm")


def print_summary(console: Console, view: RunView, before_steps: Callable[[], None] | None = None) -> None:
    """The whole report: verdict, arms, worst findings, what could have been missed, what to do next.

    `before_steps` prints what belongs before the last of these.
    """
    _verdict(console, view)
    console.print()
    _arms(console, view.arms)
    said = [render(reason) for reason in (*view.run.reasons, view.run.message or "")]
    for arm in view.arms:
        for detail in _below(arm, said):
            _wrapped(console, message("terminal.of_arm", "{arm}: {detail}", arm=arm.name, detail=detail))
    if view.examples:
        console.print()
        _examples(console, view)
    for number, paragraph in enumerate([*advice.missed(view), *_notes(view)]):
        if not number:
            console.print()
        _wrapped(console, paragraph)
    if before_steps is not None:
        console.print()
        before_steps()
    commands, steps = next_commands(view), advice.next_steps(view)
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
                "(reference: {baseline}, speculation off, asked about the candidate's own tokens)",
                baseline=view.run.baseline,
            ),
        )
    for number, example in enumerate(examples, 1):
        console.print()
        for line in example_lines(number, example, view.run.baseline, view.text, console.width):
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


def _verdict(console: Console, view: RunView) -> None:
    run, reasons = view.run, [render(reason) for reason in view.run.reasons]
    failure = "" if run.message is None else render(run.message)
    lines = wrap(headline(view), console.width - 1, other="  ")
    word, _, tail = lines[0].partition(" ")
    console.print(Text.assemble((word, _STYLE.get(word, "bold")), " " + tail), soft_wrap=True)
    for line in lines[1:]:
        _line(console, line)
    if reasons:
        _log(console, reasons[0])
    for reason in reasons[1:]:
        _wrapped(console, reason.split("\n")[0], indent=render(message("terminal.also", "  also: ")))
        _log(console, reason)
    about: list[Message | str] = []
    if run.id:
        about.append(message("terminal.run", "run {run}", run=run.id))
    if run.model:
        about.append(message("terminal.model", "model {model}", model=run.model))
    if run.duration is not None:
        about.append(f"{run.duration:.0f} s")
    if about:
        _line(console, visible(", ".join(render(part) for part in about)), style="dim")
    if failure and run.verdict in (None, "ERROR") and failure not in reasons:
        if run.verdict is None or reasons:  # else it is the headline
            _wrapped(console, failure.split("\n")[0])
        _log(console, failure)


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
    if arm.corrupt:
        kinds = [f"{count} {kind}" for kind, count in arm.first_faults.items()]
        yield message("terminal.corrupt", "corrupt: {kinds}", kinds=kinds)
    if arm.follow_ups:
        yield follow_ups(arm)
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


def _where(number: int, example: FindingView) -> Message:
    """Its number, what it is, and where."""
    at, more = example.position, (example.length or 1) - 1
    kind, arm, request = example.kind, example.arm, str(example.key)
    if example.of_run:
        what = message("terminal.where.run", "{kind} in {arm}, the run as a whole", kind=kind, arm=arm)
    elif at is None:
        what = message("terminal.where", "{kind} in {arm}, request {request}", kind=kind, arm=arm, request=request)
    elif more < 1:
        what = message(
            "terminal.where.token",
            "{kind} in {arm}, request {request}, token {at}",
            at=at,
            kind=kind,
            arm=arm,
            request=request,
        )
    else:
        what = message(
            "terminal.where.tokens",
            "{kind} in {arm}, request {request}, token {at} and {more} more",
            at=at,
            more=more,
            kind=kind,
            arm=arm,
            request=request,
        )
    if example.id is None:
        return message("terminal.numbered", "{number}. {what}", number=number, what=what)
    return message("terminal.finding", "finding {id}: {what}", id=example.id, what=what)


def example_lines(number: int, example: FindingView, baseline: str, tokens: TokenText, width: int) -> Iterator[str]:
    """A finding: what and where, the prompt, both texts with the token marked, who thought what."""
    yield from wrap(visible(render(_where(number, example))), width - 1, other="   ")
    if why := visible(render(example.why)):
        yield from wrap(why, width - 1, first="   ", other="   ")
    labels = {
        "prompt": render(message("terminal.prompt", "prompt")),
        "baseline": visible(baseline),
        "candidate": visible(example.arm),
    }
    column = min(24, max(cell_width(label) for label in (*labels.values(), render(REFERENCE)))) + 2
    room = width - 4 - column

    def row(label: str, text: str) -> str:
        shown = clip(label, column - 1)
        return "   " + shown + " " * (column - cell_width(shown)) + text

    if example.asked is not None and example.asked.prompt is not None:
        yield row(labels["prompt"], clip(visible(example.asked.prompt), room, from_end=True))
    position = example.position
    if isinstance(example.evidence, InputEvidence | TextEvidence | LogprobEvidence):
        for label, text in _what_shows_it(example, labels, tokens, room):
            yield row(label, text)
    elif position is not None:
        if example.baseline is not None:
            yield row(labels["baseline"], tokens.marked(example.baseline.token_ids, position, room))
        if example.candidate is not None:
            yield row(labels["candidate"], tokens.marked(example.candidate.token_ids, position, room))
        if example.first_divergence is not None and example.first_divergence < position:
            yield row("", render(_parted(example.first_divergence)))
        yield from _logprobs(example, labels, tokens, row, room)
        if (distance := _distance(example)) is not None:
            yield from wrap(render(distance), width - 1, first=row("", ""), other=row("", ""))


def _what_shows_it(
    example: FindingView, labels: Mapping[str, str], tokens: TokenText, room: int
) -> Iterator[tuple[str, str]]:
    """(label, text) of a finding that tokens do not show: prompts, texts or logprobs."""
    evidence = example.evidence
    if isinstance(evidence, InputEvidence):
        at = (evidence.prompt_position or 0) - (evidence.prompts_from or 0)
        for side, ids in (("baseline", evidence.baseline_prompt), ("candidate", evidence.candidate_prompt)):
            if ids is not None:
                yield labels[side], tokens.marked(np.asarray(ids, dtype=np.int64), at, room)
    elif isinstance(evidence, TextEvidence):
        for side, text in (("baseline", evidence.expected), ("candidate", evidence.text)):
            if text is not None:
                yield labels[side], clip(visible(text), room)
    elif isinstance(evidence, LogprobEvidence):
        if example.candidate is not None and example.position is not None:
            yield labels["candidate"], tokens.marked(example.candidate.token_ids, example.position, room)
        said = render(NO_NUMBER) if evidence.logprob is None else f"{evidence.logprob:.4f}"
        yield labels["candidate"], render(message("terminal.logprob", "logprob of that token: {logprob}", logprob=said))
        if evidence.score is not None:
            score = message("terminal.logprob", "logprob of that token: {logprob}", logprob=f"{evidence.score:.4f}")
            yield render(REFERENCE), render(score)


def _parted(first: int) -> Message:
    return message("terminal.parted", "(the texts had parted at token {first} already)", first=first)


def _distance(example: FindingView) -> Message | None:
    """Why the token counts as rounding, or does not; None where it is the best one, or the gap does not decide."""
    gap, tolerance, widest = example.gap, example.tolerance, example.largest_gap
    if gap is None or tolerance is None or gap <= 0:
        return None
    below, allowed = f"{gap:.2f}", f"{tolerance:.3g}"
    if widest is not None and widest > gap and widest > tolerance:
        return message(
            "terminal.gap.wider",
            "{gap} nats below the best, {widest} further on; up to {tolerance} passes as rounding",
            widest=f"{widest:.2f}",
            gap=below,
            tolerance=allowed,
        )
    if example.is_lower_bound:
        return message(
            "terminal.gap.bound",
            "at least {gap} nats below the best; up to {tolerance} passes as rounding",
            gap=below,
            tolerance=allowed,
        )
    return message(
        "terminal.gap", "{gap} nats below the best; up to {tolerance} passes as rounding", gap=below, tolerance=allowed
    )


def _logprobs(
    example: FindingView, labels: Mapping[str, str], tokens: TokenText, row: Callable[[str, str], str], room: int
) -> Iterator[str]:
    """One line per source of logprobs: its best tokens in nats, then the tokens chosen if not among them."""
    for source, label in (
        ("reference", render(REFERENCE)),
        ("baseline", labels["baseline"]),
        ("candidate", labels["candidate"]),
    ):
        pairs = example.logprobs(source)
        if pairs:
            yield row(label, _ranked(pairs, example.token, tokens, room))


def _ranked(pairs: Sequence[tuple[int, float]], chosen: int | None, tokens: TokenText, room: int) -> str:
    """The best tokens in nats, best first, as many as fit; the best and the chosen one are always there."""
    shown: list[tuple[bool, str]] = []
    for index, (token, value) in enumerate(pairs):
        is_chosen = token == chosen
        if index < 3 or is_chosen:
            text = f"{tokens.token(token)} {value:.2f}{' ' + render(CHOSEN) if is_chosen else ''}"
            shown.append((index == 0 or is_chosen, text))
    while True:
        line = "logprobs: " + ", ".join(text for _, text in shown)
        optional = [index for index, (must, _) in enumerate(shown) if not must]
        if cell_width(line) <= room or not optional:
            return clip(line, room)
        del shown[optional[-1]]
