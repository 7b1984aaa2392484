"""The summary on a terminal: readable at 80 columns, in a pipe, and without colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from parity.comparator.population.power import requests_needed
from parity.language import render, t
from parity.report.arm_lines import print_arms
from parity.text import cell_width, clip, visible, wrap
from parity.view import ArmView, FindingView, RunView
from parity.view.tokens import TokenText

_STYLE = {"PASS": "bold green", "DIVERGED": "bold red", "INCONCLUSIVE": "bold yellow", "ERROR": "bold red"}


def print_summary(console: Console, view: RunView, before_steps: Callable[[], None] | None = None) -> None:
    """The whole report: verdict, arms, worst findings, what could have been missed, what to do next.

    `before_steps` prints what belongs before the last of these.
    """
    _verdict(console, view)
    console.print()
    _arms(console, view.arms)
    for arm in view.arms:
        for detail in _below(arm, [*view.run.reasons, view.run.message or ""]):
            _wrapped(console, t(f"{visible(arm.name)}: {detail}"))
    examples = view.examples
    if examples:
        console.print()
        worst = "The worst findings" if examples[0].is_corrupt else "The widest near-tie"
        total = f" of {view.total_findings}" if view.total_findings > len(examples) else ""
        _line(console, t(f"{worst} ({len(examples)}{total}):"), style="bold")
        if any(example.logprobs("reference") for example in examples):
            _wrapped(
                console,
                f"(reference: {visible(view.run.baseline)}, speculation off, asked about the candidate's own tokens)",
            )
        for number, example in enumerate(examples, 1):
            console.print()
            for line in example_lines(number, example, view.run.baseline, view.text, console.width):
                _line(console, line)
    for number, paragraph in enumerate([*missed_lines(view), *_notes(view)]):
        if not number:
            console.print()
        _wrapped(console, paragraph)
    if before_steps is not None:
        console.print()
        before_steps()
    steps = next_steps(view)
    if steps:
        console.print()
        _line(console, t("What to do next:"), style="bold")
        for step in steps:
            _wrapped(console, step, indent="- ")


def _notes(view: RunView) -> Iterator[str]:
    return (f"Note: {visible(note)}" for note in view.notes)


def _line(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)


def _wrapped(console: Console, text: str, indent: str = "") -> None:
    for line in wrap(t(text), console.width - 1, first=indent, other=" " * len(indent)):
        _line(console, line)


def headline(view: RunView) -> str:
    """The verdict in one line."""
    if view.run.verdict is None:
        return f"{(view.run.status or 'unfinished').upper()}  {t('no verdict yet')}"
    reason, *_ = (view.run.reasons[0] if view.run.reasons else view.run.message or "").split("\n")
    return f"{view.run.verdict}  {visible(t(reason))}".rstrip()


def _verdict(console: Console, view: RunView) -> None:
    lines = wrap(headline(view), console.width - 1, other="  ")
    word, _, tail = lines[0].partition(" ")
    console.print(Text.assemble((word, _STYLE.get(word, "bold")), " " + tail), soft_wrap=True)
    for line in lines[1:]:
        _line(console, line)
    if view.run.reasons:
        _log(console, view.run.reasons[0])
    for reason in view.run.reasons[1:]:
        _wrapped(console, visible(reason.split("\n")[0]), indent=t("  also: "))
        _log(console, reason)
    about = [f"run {view.run.id}" if view.run.id else "", f"model {view.run.model}" if view.run.model else ""]
    if view.run.duration is not None:
        about.append(f"{view.run.duration:.0f} s")
    if any(about):
        _line(console, visible(", ".join(t(part) for part in about if part)), style="dim")
    if view.run.message and view.run.verdict in (None, "ERROR") and view.run.message not in view.run.reasons:
        if view.run.verdict is None or view.run.reasons:  # else it is the headline
            _wrapped(console, visible(view.run.message.split("\n")[0]))
        _log(console, view.run.message)


def _log(console: Console, message: str) -> None:
    """What stands below the first line of an engine's failure: the end of its log, line by line."""
    for line in message.split("\n")[1:]:
        _line(console, "  " + visible(t(line)), style="dim")


def _arms(console: Console, arms: Sequence[ArmView]) -> None:
    names = ("completions", "identical", "near-tie", "corrupt", "acceptance", "tokens/s")
    print_arms(console, t("arm"), [t(name) for name in names], [(visible(arm.name), _cells(arm)) for arm in arms])


def _cells(arm: ArmView) -> list[str]:
    judged = arm.compared
    return [
        str(arm.completions),
        str(arm.count("identical")) if judged else t("baseline") if arm.is_baseline else "-",
        str(arm.count("near_tie")) if judged else "",
        str(arm.count("corrupt")) if judged else "",
        _acceptance(arm),
        f"{arm.tokens_per_second:,.0f}" if arm.tokens_per_second else "-",
    ]


def _below(arm: ArmView, said: Sequence[str]) -> Iterator[str]:
    if arm.is_control:
        yield "a positive control: its fault was planted on purpose, what is found there is no news"
    elif arm.planted:
        yield f"a fault was planted in its engine on purpose ({visible(arm.planted)})"
    if arm.corrupt:
        yield "corrupt: " + ", ".join(f"{count} {kind}" for kind, count in arm.corrupt.items())
    others = {name: arm.count(name) for name in ("sampled", "unjudged", "missing") if arm.count(name)}
    if others and not arm.is_baseline:
        yield ", ".join(f"{count} {name}" for name, count in others.items())
    if arm.message and not any(line.startswith(arm.message.split("\n")[0]) for line in said):
        yield visible(arm.message.split("\n")[0].removeprefix(f"{arm.name}: "))


def _acceptance(arm: ArmView) -> str:
    if arm.acceptance_rate is None:
        return "-"
    length = f" ({arm.acceptance_length:.2f})" if arm.acceptance_length is not None else ""
    return f"{arm.acceptance_rate:.0%}{length}"


def example_lines(number: int, example: FindingView, baseline: str, tokens: TokenText, width: int) -> Iterator[str]:
    """A finding: what and where, the prompt, both texts with the token marked, who thought what."""
    where = f"{example.kind} in {example.arm}, request {example.key}"
    if example.position is not None:
        where += f", token {example.position}"
    if example.length is not None and example.length > 1:
        where += f" and {example.length - 1} more"
    named = f"{number}. " if example.id is None else t(f"finding {example.id}: ")
    yield from wrap(t(visible(where)), width - 1, first=named, other="   ")
    if why := render(example.why):
        yield from wrap(visible(why), width - 1, first="   ", other="   ")
    labels = {"prompt": t("prompt"), "baseline": visible(baseline), "candidate": visible(example.arm)}
    column = min(24, max(cell_width(label) for label in (*labels.values(), t("reference")))) + 2
    room = width - 4 - column

    def row(label: str, text: str) -> str:
        shown = clip(label, column - 1)
        return "   " + shown + " " * (column - cell_width(shown)) + text

    if example.asked is not None and example.asked.prompt is not None:
        yield row(labels["prompt"], clip(visible(example.asked.prompt), room, from_end=True))
    position = example.position
    if position is not None:
        if example.baseline is not None:
            yield row(labels["baseline"], tokens.marked(example.baseline.token_ids, position, room))
        if example.candidate is not None:
            yield row(labels["candidate"], tokens.marked(example.candidate.token_ids, position, room))
        if example.first_divergence is not None and example.first_divergence < position:
            yield row("", t(f"(the texts had parted at token {example.first_divergence} already)"))
        yield from _opinions(example, labels, tokens, row, room)
        if (distance := _distance(example)) is not None:
            yield from wrap(t(distance), width - 1, first=row("", ""), other=row("", ""))


def _distance(example: FindingView) -> str | None:
    """Why the token is held for rounding, or is not; None where it is the best one, or the gap does not decide."""
    gap, tolerance, widest = example.gap, example.tolerance, example.largest_gap
    if gap is None or tolerance is None or gap <= 0:
        return None
    if widest is not None and widest > gap and widest > tolerance:
        return f"{gap:.2f} nats below the best, {widest:.2f} further on; up to {tolerance:.3g} passes as rounding"
    if example.is_lower_bound:
        return f"at least {gap:.2f} nats below the best; up to {tolerance:.3g} passes as rounding"
    return f"{gap:.2f} nats below the best; up to {tolerance:.3g} passes as rounding"


def _opinions(
    example: FindingView, labels: Mapping[str, str], tokens: TokenText, row: Callable[[str, str], str], room: int
) -> Iterator[str]:
    """One line per source of logprobs: its best tokens in nats, then the tokens chosen if not among them."""
    for source, label in (
        ("reference", t("reference")),
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
            text = f"{tokens.token(token)} {value:.2f}{' ' + t('(chosen)') if is_chosen else ''}"
            shown.append((index == 0 or is_chosen, text))
    while True:
        line = "logprobs: " + ", ".join(text for _, text in shown)
        optional = [index for index, (must, _) in enumerate(shown) if not must]
        if cell_width(line) <= room or not optional:
            return clip(line, room)
        del shown[optional[-1]]


def missed_lines(view: RunView) -> Iterator[str]:
    """The bound on what the run could not see."""
    for arm, bound in view.missed.items():
        if 0 < bound < 1:
            yield (
                f"{visible(arm)}: a fault that hits fewer than {bound:.2g} of all completions "
                f"(1 in {1 / bound:,.0f}) could have been missed, at 95 % confidence. To see one in "
                f"{10 / bound:,.0f} takes {requests_needed(bound / 10):,} completions (`parity power`)."
            )
        elif bound >= 1:
            yield f"{visible(arm)}: too few completions were judged to exclude any rate of faults."


def next_steps(view: RunView) -> list[str]:
    """What a person would do now, as commands where there are some."""
    steps: list[str] = []
    show = f"`parity runs show {view.run.id} --json`" if view.run.id else "`--json`"
    if view.run.status in ("running", "interrupted", "failed") and view.run.id:
        return [f"finish it: `parity run --resume {view.run.id}`"]
    if view.run.verdict == "PASS":
        steps.append(f"to exclude rarer faults, run more: `parity run … --rounds {10 * view.run.rounds}`")
        if view.total_findings:
            steps.append(f"all near-ties with their logprobs: {show}")
    elif view.run.verdict == "DIVERGED":
        if view.run.id:
            steps.append(f"go through the findings: `parity tui {view.run.id}`")
        steps.append(f"all findings with their evidence: {show}")
        if all(arm.name.startswith("replay/") for arm in view.arms):
            steps.append("recordings answer nothing new; with an engine on this machine: `parity run --backends cpu`")
        else:
            steps.append(f"see whether it comes back, and how often: `parity run … --rounds {5 * view.run.rounds}`")
            if view.run.id:
                steps.append(f"the smallest plan that still fails: `parity reduce --run {view.run.id}`")
            steps.append("narrow it down by hand: fewer draft tokens (`-k 1`), one row (`--max-num-seqs 1`)")
        if view.run.id:
            steps.append(f"the bug report: `parity report {view.run.id}`")
    elif view.run.verdict == "INCONCLUSIVE":
        steps.append("the verdict line says what kept the run from a conclusion; remove that and run again")
    if view.run.directory:
        steps.append(f"captures, scores and engine logs: {visible(view.run.directory)}")
    return steps
