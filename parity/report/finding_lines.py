"""One finding as lines of a terminal: what and where, the prompt, both texts with the token marked, the logprobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from parity.language import render
from parity.messages import Message, message
from parity.records import Kind
from parity.records.evidence import InputEvidence, LogprobEvidence, TextEvidence
from parity.text import cell_width, clip, visible, wrap
from parity.view import FindingView
from parity.view.tokens import TokenText

REFERENCE: Final = message("terminal.reference.name", "reference")
NO_NUMBER: Final = message("terminal.logprob.none", "not listed, or not a number")
OF_IDS: Final = message("terminal.of_ids", "its token ids")
CHOSEN: Final = message("terminal.chosen", "(chosen)")


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
    elif getattr(example.evidence, "positions", None):  # those between them are no part of it
        what = message(
            "terminal.where.between",
            "{kind} in {arm}, request {request}, between tokens {at} and {last}",
            at=at,
            last=at + more,
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


def finding_lines(number: int, example: FindingView, baseline: str, tokens: TokenText, width: int) -> Iterator[str]:
    """`width`: columns of the terminal."""
    yield from wrap(visible(render(_where(number, example))), width - 1, other="   ")
    if why := visible(render(example.why)):
        yield from wrap(why, width - 1, first="   ", other="   ")
    labels, row, room = _layout(example, baseline, width)
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


def near_tie_lines(total: int, example: FindingView, baseline: str, tokens: TokenText, width: int) -> Iterator[str]:
    """The widest of all near-ties in few lines: where, both texts with the token marked, and its distance."""
    _, row, room = _layout(example, baseline, width)
    said = message(
        "terminal.widest.brief",
        "The widest of {total} near-ties (request {request}, token {at}):",
        total=total,
        request=example.key.request,
        at=example.position,
    )
    yield from wrap(visible(render(said)), width - 1, other="   ")
    for label, side in ((baseline, example.baseline), (example.arm, example.candidate)):
        if side is not None and example.position is not None:
            yield row(visible(label), tokens.marked(side.token_ids, example.position, room))
    if (distance := _distance(example)) is not None:
        yield from wrap(render(distance), width - 1, first=row("", ""), other=row("", ""))


def _layout(example: FindingView, baseline: str, width: int) -> tuple[dict[str, str], Callable[[str, str], str], int]:
    """The labels of both sides, a line with a label, and the columns that a text has beside one."""
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

    return labels, row, room


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
        expected = labels["baseline"] if evidence.by_baseline else render(OF_IDS)
        for label, text in ((expected, evidence.expected), (labels["candidate"], evidence.text)):
            if text is not None:
                yield label, clip(visible(text), room)
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
    found = _below(example)
    if found is None or not example.gap_is_moved:
        return found
    return message("terminal.gap.moved", "{distance} (penalties and biases counted)", distance=found)


def _below(example: FindingView) -> Message | None:
    gap, tolerance, widest = example.gap, example.tolerance, example.largest_gap
    if gap is None or tolerance is None or gap <= 0 or example.kind == Kind.INVALID_TOKEN:
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
