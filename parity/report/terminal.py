"""The summary on a terminal: readable at 80 columns, in a pipe, and without colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from parity.comparator.population.power import requests_needed
from parity.language import t
from parity.records import Json
from parity.report.arm_lines import print_arms
from parity.report.summary import CONTROL, ArmLine, Example, Summary
from parity.report.tokens import TokenText
from parity.text import cell_width, clip, visible, wrap

_STYLE = {"PASS": "bold green", "DIVERGED": "bold red", "INCONCLUSIVE": "bold yellow", "ERROR": "bold red"}


def print_summary(console: Console, summary: Summary, before_steps: Callable[[], None] | None = None) -> None:
    """The whole report: verdict, arms, worst findings, what could have been missed, what to do next.

    `before_steps` prints what belongs before the last of these.
    """
    _verdict(console, summary)
    console.print()
    _arms(console, summary.arms)
    for arm in summary.arms:
        for detail in _below(arm, [*summary.reasons, summary.message or ""]):
            _wrapped(console, t(f"{visible(arm.name)}: {detail}"))
    tokens = TokenText(summary.model_path)
    if summary.examples:
        console.print()
        worst = "The worst findings" if summary.examples[0].severity == "corrupt" else "The widest near-tie"
        total = f" of {summary.findings}" if summary.findings > len(summary.examples) else ""
        _line(console, t(f"{worst} ({len(summary.examples)}{total}):"), style="bold")
        if any(_reference_of(example) for example in summary.examples):
            _wrapped(
                console,
                f"(reference: {visible(summary.baseline)}, speculation off, asked about the candidate's own tokens)",
            )
        for number, example in enumerate(summary.examples, 1):
            console.print()
            for line in example_lines(number, example, summary.baseline, tokens, console.width):
                _line(console, line)
    for number, paragraph in enumerate([*missed_lines(summary), *_notes(summary)]):
        if not number:
            console.print()
        _wrapped(console, paragraph)
    if before_steps is not None:
        console.print()
        before_steps()
    steps = next_steps(summary)
    if steps:
        console.print()
        _line(console, t("What to do next:"), style="bold")
        for step in steps:
            _wrapped(console, step, indent="- ")


def _notes(summary: Summary) -> Iterator[str]:
    return (f"Note: {visible(note)}" for note in summary.notes)


def _line(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)


def _wrapped(console: Console, text: str, indent: str = "") -> None:
    for line in wrap(t(text), console.width - 1, first=indent, other=" " * len(indent)):
        _line(console, line)


def headline(summary: Summary) -> str:
    """The verdict in one line."""
    if summary.verdict is None:
        return f"{(summary.status or 'unfinished').upper()}  {t('no verdict yet')}"
    reason, *_ = (summary.reasons[0] if summary.reasons else summary.message or "").split("\n")
    return f"{summary.verdict}  {visible(t(reason))}".rstrip()


def _verdict(console: Console, summary: Summary) -> None:
    lines = wrap(headline(summary), console.width - 1, other="  ")
    word, _, tail = lines[0].partition(" ")
    console.print(Text.assemble((word, _STYLE.get(word, "bold")), " " + tail), soft_wrap=True)
    for line in lines[1:]:
        _line(console, line)
    if summary.reasons:
        _log(console, summary.reasons[0])
    for reason in summary.reasons[1:]:
        _wrapped(console, visible(reason.split("\n")[0]), indent=t("  also: "))
        _log(console, reason)
    about = [f"run {summary.run}" if summary.run else "", f"model {summary.model}" if summary.model else ""]
    if summary.duration is not None:
        about.append(f"{summary.duration:.0f} s")
    if any(about):
        _line(console, visible(", ".join(t(part) for part in about if part)), style="dim")
    if summary.message and summary.verdict in (None, "ERROR") and summary.message not in summary.reasons:
        if summary.verdict is None or summary.reasons:  # else it is the headline
            _wrapped(console, visible(summary.message.split("\n")[0]))
        _log(console, summary.message)


def _log(console: Console, message: str) -> None:
    """What stands below the first line of an engine's failure: the end of its log, line by line."""
    for line in message.split("\n")[1:]:
        _line(console, "  " + visible(t(line)), style="dim")


def _arms(console: Console, arms: Sequence[ArmLine]) -> None:
    names = ("completions", "identical", "near-tie", "corrupt", "acceptance", "tokens/s")
    print_arms(console, t("arm"), [t(name) for name in names], [(visible(arm.name), _cells(arm)) for arm in arms])


def _cells(arm: ArmLine) -> list[str]:
    judged = bool(arm.classes) and not arm.is_baseline
    return [
        str(arm.completions),
        str(arm.classes.get("identical", 0)) if judged else t("baseline") if arm.is_baseline else "-",
        str(arm.classes.get("near_tie", 0)) if judged else "",
        str(arm.classes.get("corrupt", 0)) if judged else "",
        _acceptance(arm),
        f"{arm.tokens_per_second:,.0f}" if arm.tokens_per_second else "-",
    ]


def _below(arm: ArmLine, said: Sequence[str]) -> Iterator[str]:
    if CONTROL in arm.name:
        yield "a positive control: its fault was planted on purpose, what is found there is no news"
    elif arm.planted:
        yield f"a fault was planted in its engine on purpose ({visible(arm.planted)})"
    if arm.corrupt:
        yield "corrupt: " + ", ".join(f"{count} {kind}" for kind, count in arm.corrupt.items())
    others = {name: arm.classes[name] for name in ("sampled", "unjudged", "missing") if arm.classes.get(name)}
    if others and not arm.is_baseline:
        yield ", ".join(f"{count} {name}" for name, count in others.items())
    if arm.message and not any(line.startswith(arm.message.split("\n")[0]) for line in said):
        yield visible(arm.message.split("\n")[0].removeprefix(f"{arm.name}: "))


def _acceptance(arm: ArmLine) -> str:
    if arm.acceptance_rate is None:
        return "-"
    length = f" ({arm.acceptance_length:.2f})" if arm.acceptance_length is not None else ""
    return f"{arm.acceptance_rate:.0%}{length}"


def example_lines(number: int, example: Example, baseline: str, tokens: TokenText, width: int) -> Iterator[str]:
    """A finding: what and where, the prompt, both texts with the token marked, who thought what."""
    where = f"{example.kind} in {example.arm}, request {example.key}"
    if example.position is not None:
        where += f", token {example.position}"
    if example.length is not None and example.length > 1:
        where += f" and {example.length - 1} more"
    named = f"{number}. " if example.finding is None else t(f"finding {example.finding}: ")
    yield from wrap(t(visible(where)), width - 1, first=named, other="   ")
    if why := example.evidence.get("why"):
        yield from wrap(t(visible(str(why))), width - 1, first="   ", other="   ")
    labels = {"prompt": t("prompt"), "baseline": visible(baseline), "candidate": visible(example.arm)}
    column = min(24, max(cell_width(label) for label in (*labels.values(), t("reference")))) + 2
    room = width - 4 - column

    def row(label: str, text: str) -> str:
        shown = clip(label, column - 1)
        return "   " + shown + " " * (column - cell_width(shown)) + text

    if example.prompt is not None:
        yield row(labels["prompt"], clip(visible(example.prompt), room, from_end=True))
    position = example.position
    if position is not None:
        if example.baseline_tokens is not None:
            yield row(labels["baseline"], tokens.marked(example.baseline_tokens, position, room))
        if example.candidate_tokens is not None:
            yield row(labels["candidate"], tokens.marked(example.candidate_tokens, position, room))
        if example.first_divergence is not None and example.first_divergence < position:
            yield row("", t(f"(the texts had parted at token {example.first_divergence} already)"))
        yield from _opinions(example, labels, tokens, row, room)
        if (distance := _distance(example)) is not None:
            yield from wrap(t(distance), width - 1, first=row("", ""), other=row("", ""))


def _reference_of(example: Example) -> bool:
    opinions = example.evidence.get("logprobs")
    return isinstance(opinions, Mapping) and bool(opinions.get("reference"))


def _distance(example: Example) -> str | None:
    """Why the token is held for rounding, or is not; None where it is the best one, or the gap does not decide."""
    gap, tolerance = example.evidence.get("gap"), example.evidence.get("tolerance")
    if not isinstance(gap, int | float) or not isinstance(tolerance, int | float) or gap <= 0:
        return None
    widest = example.evidence.get("largest_gap")
    if isinstance(widest, int | float) and widest > gap and widest > tolerance:
        return f"{gap:.2f} nats below the best, {widest:.2f} further on; up to {tolerance:.3g} passes as rounding"
    if example.evidence.get("gap_is_lower_bound"):
        return f"at least {gap:.2f} nats below the best; up to {tolerance:.3g} passes as rounding"
    return f"{gap:.2f} nats below the best; up to {tolerance:.3g} passes as rounding"


def _opinions(example: Example, labels: Mapping[str, str], tokens: TokenText, row: Any, room: int) -> Iterator[str]:
    """One line per source of logprobs: its best tokens in nats, then the tokens chosen if not among them."""
    opinions = example.evidence.get("logprobs")
    if not isinstance(opinions, Mapping):
        return
    names = {"reference": t("reference"), "baseline": labels["baseline"], "candidate": labels["candidate"]}
    for source, label in names.items():
        pairs = opinions.get(source)
        if pairs:
            yield row(label, _ranked(pairs, example, tokens, room))


def _ranked(pairs: Sequence[Sequence[Json]], example: Example, tokens: TokenText, room: int) -> str:
    """The best tokens in nats, best first, as many as fit; the best and the chosen one are always there."""
    chosen = None
    if example.candidate_tokens is not None and example.position is not None:
        at = example.position
        chosen = int(example.candidate_tokens[at]) if at < len(example.candidate_tokens) else None
    shown: list[tuple[bool, str]] = []
    for index, (token, value) in enumerate(pairs):
        is_chosen = int(token) == chosen
        if index < 3 or is_chosen:
            text = f"{tokens.token(int(token))} {float(value):.2f}{' ' + t('(chosen)') if is_chosen else ''}"
            shown.append((index == 0 or is_chosen, text))
    while True:
        line = "logprobs: " + ", ".join(text for _, text in shown)
        optional = [index for index, (must, _) in enumerate(shown) if not must]
        if cell_width(line) <= room or not optional:
            return clip(line, room)
        del shown[optional[-1]]


def missed_lines(summary: Summary) -> Iterator[str]:
    """The bound on what the run could not see."""
    for arm, bound in summary.missed.items():
        if 0 < bound < 1:
            yield (
                f"{visible(arm)}: a fault that hits fewer than {bound:.2g} of all completions "
                f"(1 in {1 / bound:,.0f}) could have been missed, at 95 % confidence. To see one in "
                f"{10 / bound:,.0f} takes {requests_needed(bound / 10):,} completions (`parity power`)."
            )
        elif bound >= 1:
            yield f"{visible(arm)}: too few completions were judged to exclude any rate of faults."


def next_steps(summary: Summary) -> list[str]:
    """What a person would do now, as commands where there are some."""
    steps: list[str] = []
    show = f"`parity runs show {summary.run} --json`" if summary.run else "`--json`"
    if summary.status in ("running", "interrupted", "failed") and summary.run:
        return [f"finish it: `parity run --resume {summary.run}`"]
    if summary.verdict == "PASS":
        steps.append(f"to exclude rarer faults, run more: `parity run … --rounds {10 * summary.rounds}`")
        if summary.findings:
            steps.append(f"all near-ties with their logprobs: {show}")
    elif summary.verdict == "DIVERGED":
        if summary.run:
            steps.append(f"go through the findings: `parity tui {summary.run}`")
        steps.append(f"all findings with their evidence: {show}")
        if all(arm.name.startswith("replay/") for arm in summary.arms):
            steps.append("recordings answer nothing new; with an engine on this machine: `parity run --backends cpu`")
        else:
            steps.append(f"see whether it comes back, and how often: `parity run … --rounds {5 * summary.rounds}`")
            if summary.run:
                steps.append(f"the smallest plan that still fails: `parity reduce --run {summary.run}`")
            steps.append("narrow it down by hand: fewer draft tokens (`-k 1`), one row (`--max-num-seqs 1`)")
        if summary.run:
            steps.append(f"the bug report: `parity report {summary.run}`")
    elif summary.verdict == "INCONCLUSIVE":
        steps.append("the verdict line says what kept the run from a conclusion; remove that and run again")
    if summary.directory:
        steps.append(f"captures, scores and engine logs: {visible(summary.directory)}")
    return steps
