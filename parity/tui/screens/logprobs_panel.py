"""Who thought what at the cursor: the top tokens as bars, the gap, the step that made the token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from rich.text import Text

from parity.language import render
from parity.messages import message
from parity.records import RUN, TopLogprobs
from parity.records.steps import PREFILL
from parity.store import CompletionRow
from parity.tui.drawing import Drawing
from parity.tui.format import bar, fit, nats, plain
from parity.tui.tokens import Decoder, spaced
from parity.tui.widgets.paneltext import Palette
from parity.view.completion import CompletionView, whole

TOP: Final = 5


def logprobs(drawing: Drawing, left: int, right: int, width: int, palette: Palette) -> Text:
    """The top tokens at the cursor as bars, one column per source; what the gap is made of below."""
    text = Text(no_wrap=True, overflow="crop")
    columns = _lists(drawing.view, left, right)
    if not columns and drawing.loading:
        return Text(render(message("tui.reading_files", "Reading the capture files …")))
    if drawing.view.finding is not None and drawing.view.finding.request == RUN:
        return Text(
            render(message("tui.about_run", "About the run as a whole, not about a token: 5 shows the evidence."))
        )
    if not columns:
        problem = drawing.view.extras.problem or message(
            "tui.no_files", "the capture and score files of the run hold none, or are no longer there"
        )
        text.append(render(message("tui.no_logprobs", "No logprobs for this token")), style=palette.title)
        text.append(plain(render(message("tui.because", ": {problem}.", problem=problem))) + "\n")
        return text
    share = min(60, max(20, (width + 2) // len(columns) - 2))
    drawn = [_column(drawing.decoder, *column, share, palette) for column in columns]
    for row in range(max(len(lines) for lines in drawn)):
        for number, lines in enumerate(drawn):
            if number:
                text.append("  ")
            text.append_text(lines[row] if row < len(lines) else Text(" " * share))
        text.append("\n")
    text.append_text(_gap_line(drawing.view, right, palette))
    return text


def _gap_line(view: CompletionView, right: int, palette: Palette) -> Text:
    """How far below the reference's best token the candidate's lies, and whether that is allowed."""
    measured = view.gaps
    if measured is None or not 0 <= right < len(measured) or math.isnan(measured[right]):
        return Text()
    gap = float(measured[right])
    shown = {"gap": nats(gap), "tolerance": nats(view.tolerance)}
    if gap > view.tolerance:
        over = message("tui.gap_over", "gap {gap} nats, more than the tolerance of {tolerance}", **shown)
        return Text(render(over), style=palette.high)
    within = message("tui.gap_within", "gap {gap} nats, within the tolerance of {tolerance}", **shown)
    return Text(render(within), style=palette.dim)


def _lists(view: CompletionView, left: int, right: int) -> list[tuple[str, list[tuple[int, float]], int]]:
    """(title, best tokens with nats, token emitted) per source that says something about the cursor's row."""
    ours, theirs = _token(view.candidate, right), _token(view.baseline, left)
    extras, finding = view.extras, view.finding
    found = []
    stored: Mapping[str, Sequence[tuple[int, float]] | None] = {}
    if finding is not None and finding.position == right:
        stored = finding.facts.logprobs or {}
    baseline = message("tui.source.baseline", "baseline {arm}", arm=view.run.baseline)
    reference = message("tui.source.reference", "reference scores candidate")
    candidate = message("tui.source.candidate", "candidate {arm}", arm=view.arm)
    for title, top, at, token, name in (
        (baseline, extras.baseline, left, theirs, "baseline"),
        (reference, extras.reference, right, ours, "reference"),
        (candidate, extras.candidate, right, ours, "candidate"),
    ):
        pairs = _at(top, at) or [(whole(listed, -1), value) for listed, value in stored.get(name) or ()]
        if pairs:
            found.append((render(title), pairs, token))
    return found


def _token(completion: CompletionRow | None, at: int) -> int:
    return int(completion.token_ids[at]) if completion is not None and 0 <= at < completion.n_tokens else -1


def _at(top: TopLogprobs | None, at: int) -> list[tuple[int, float]]:
    if top is None or not 0 <= at < len(top):
        return []
    pairs = {
        int(t): float(v)
        for t, v in zip(top.ids[at].tolist(), top.values[at].tolist(), strict=True)
        if t >= 0 and math.isfinite(v)
    }
    return sorted(pairs.items(), key=lambda pair: -pair[1])


def _column(
    decoder: Decoder, title: str, pairs: list[tuple[int, float]], token: int, width: int, palette: Palette
) -> list[Text]:
    """Lines of exactly `width` columns; `>` marks the token that was emitted."""
    shown = pairs[:TOP]
    shown += [pair for pair in pairs[TOP:] if pair[0] == token]
    lines = [Text(fit(plain(title), width), style=palette.title)]
    percent = width >= 34
    name = max(8, min(18, width - (26 if percent else 18)))
    for token_id, value in shown:
        emitted = token_id == token
        share = math.exp(min(0.0, value))
        line = Text(f"{'>' if emitted else ' '}{fit(_label(decoder, token_id), name)}{value:7.2f}")
        if percent:
            line.append(f" {share:5.1%}" if share < 0.9995 else "  100%")
        line.append(" ")
        line.append(bar(share, width - line.cell_len), style=palette.chosen if emitted else palette.bar)
        line.append(" " * (width - line.cell_len))
        if emitted:
            line.stylize(palette.title, 0, 1 + name)
        lines.append(line)
    if token >= 0 and all(token_id != token for token_id, _ in shown):
        missing = render(message("tui.not_on_top", "(not among the top tokens)"))
        lines.append(Text(fit(f">{_label(decoder, token)} {missing}", width), style=palette.high))
    return lines


def _label(decoder: Decoder, token_id: int) -> str:
    piece = decoder.piece(token_id)
    return piece.text if piece.odd else spaced(piece.text)


def step(view: CompletionView, right: int, *, short: bool = False) -> str:
    """The decode step that made the token, where a trace is known."""
    steps, spec = view.steps, view.extras.spec
    if steps is None or spec is None or not 0 <= right < len(steps):
        return ""
    number = int(steps.step[right])
    if number == PREFILL:
        return render(message("tui.prefill", "made by the prefill"))
    accepted = int(spec.accepted[number])
    drafted = int(spec.drafted[number]) if number < len(spec.drafted) else None
    if short:
        shown = f"{accepted}" if drafted is None else f"{accepted}/{drafted}"
        return render(message("tui.step_short", "step {number}: {shown} accepted", number=number, shown=shown))
    said = (
        message("tui.step", "step {number}: {accepted} drafts accepted", number=number, accepted=accepted)
        if drafted is None
        else message(
            "tui.step_of",
            "step {number}: {accepted} of {drafted} drafts accepted",
            number=number,
            accepted=accepted,
            drafted=drafted,
        )
    )
    if steps.is_draft[right]:
        place = int(steps.place[right]) + 1
        return render(message("tui.step_draft", "{said}; this one draft {place}", said=said, place=place))
    return render(message("tui.step_sampled", "{said}; this one sampled", said=said))
