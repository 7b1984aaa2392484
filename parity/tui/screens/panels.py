"""The texts of the panels under a finding: logprobs, origin, prompt, triage, evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from parity.records import TopLogprobs
from parity.records.evidence import LeakEvidence, TokensEvidence
from parity.records.sampling import json_value
from parity.records.steps import PREFILL
from parity.store import CompletionRow, FindingRow, Triage, TriageChange
from parity.tui.format import bar, counted, fit, nats, plain, whole
from parity.tui.screens.dialogs import history_text
from parity.tui.screens.subject import Subject
from parity.tui.tokens import Decoder, spaced
from parity.tui.widgets.paneltext import Palette

PANELS: Final = ("logprobs", "origin", "prompt", "triage", "evidence")
TOP: Final = 5
CONTEXT: Final = 24
"""Tokens shown before and after a span."""


def logprobs(subject: Subject, left: int, right: int, width: int, palette: Palette) -> Text:
    """The top tokens at the cursor as bars, one column per source; what the gap is made of below."""
    text = Text(no_wrap=True, overflow="crop")
    columns = _lists(subject, left, right)
    if not columns:
        text.append("No logprobs for this token", style=palette.title)
        problem = "the capture and score files of the run hold none, or are no longer there"
        text.append(f": {plain(subject.extras.problem) if subject.extras.problem else problem}.\n")
        return text
    share = min(60, max(20, (width + 2) // len(columns) - 2))
    drawn = [_column(subject.decoder, *column, share, palette) for column in columns]
    for row in range(max(len(lines) for lines in drawn)):
        for number, lines in enumerate(drawn):
            if number:
                text.append("  ")
            text.append_text(lines[row] if row < len(lines) else Text(" " * share))
        text.append("\n")
    text.append_text(_gap_line(subject, right, palette))
    return text


def _gap_line(subject: Subject, right: int, palette: Palette) -> Text:
    """How far below the reference's best token the candidate's lies, and whether that is allowed."""
    measured = subject.gaps
    if measured is None or not 0 <= right < len(measured) or math.isnan(measured[right]):
        return Text()
    gap = float(measured[right])
    over = gap > subject.tolerance
    words = "more than" if over else "within"
    return Text(
        f"gap {nats(gap)} nats, {words} the tolerance of {nats(subject.tolerance)}",
        style=palette.high if over else palette.dim,
    )


def _lists(subject: Subject, left: int, right: int) -> list[tuple[str, list[tuple[int, float]], int]]:
    """(title, best tokens with nats, token emitted) per source that says something about the cursor's row."""
    ours = _token(subject.candidate, right)
    theirs = _token(subject.baseline, left)
    found = []
    stored: Mapping[str, Sequence[tuple[int, float]] | None] = {}
    if subject.finding is not None and subject.finding.position == right:
        stored = subject.finding.facts.logprobs or {}
    for title, top, at, token, name in (
        (f"baseline {subject.run.baseline}", subject.extras.baseline, left, theirs, "baseline"),
        ("reference scores candidate", subject.extras.reference, right, ours, "reference"),
        (f"candidate {subject.arm}", subject.extras.candidate, right, ours, "candidate"),
    ):
        pairs = _at(top, at) or [(whole(listed, -1), value) for listed, value in stored.get(name) or ()]
        if pairs:
            found.append((title, pairs, token))
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
        lines.append(Text(fit(f">{_label(decoder, token)} (not among the top tokens)", width), style=palette.high))
    return lines


def _label(decoder: Decoder, token_id: int) -> str:
    piece = decoder.piece(token_id)
    return piece.text if piece.odd else spaced(piece.text)


def step(subject: Subject, right: int, *, short: bool = False) -> str:
    """The decode step that made the token, where a trace is known."""
    steps, spec = subject.steps, subject.extras.spec
    if steps is None or spec is None or not 0 <= right < len(steps):
        return ""
    number = int(steps.step[right])
    if number == PREFILL:
        return "made by the prefill"
    accepted = int(spec.accepted[number])
    drafted = int(spec.drafted[number]) if number < len(spec.drafted) else None
    if short:
        return f"step {number}: {accepted}{'' if drafted is None else f'/{drafted}'} accepted"
    of = "" if drafted is None else f" of {drafted}"
    kind = f"draft {steps.place[right] + 1}" if steps.is_draft[right] else "sampled"
    return f"step {number}: {accepted}{of} drafts accepted; this one {kind}"


def has_origin(finding: FindingRow | None) -> bool:
    """Does the evidence say where the finding's tokens come from?"""
    facts = finding.facts if finding else None
    return isinstance(facts, TokensEvidence) and (
        isinstance(facts, LeakEvidence)
        or whole(facts.period) > 0
        or facts.baseline_tokens is not None
        or facts.candidate_tokens is not None
    )


def origin(subject: Subject, palette: Palette) -> Text:
    """The donor of a leak with the span marked, the pattern of a repetition, or what was lost and gained."""
    finding, text = subject.finding, Text()
    if finding is None:
        return Text("No finding here.")
    facts = finding.facts
    if isinstance(facts, LeakEvidence):
        _donor(text, subject, finding, facts, palette)
    elif isinstance(facts, TokensEvidence) and whole(facts.period) > 0 and subject.candidate is not None:
        _period(text, subject, finding, facts, palette)
    elif isinstance(facts, TokensEvidence):
        for tokens, title in (
            (facts.baseline_tokens, "only in the baseline"),
            (facts.candidate_tokens, "only in the candidate"),
        ):
            if tokens:
                text.append(f"{title}, {counted(len(tokens), 'token')}: ", palette.title)
                text.append("".join(subject.decoder.piece(whole(t, -1)).text for t in tokens[:200]) + "\n")
    if not text:
        text.append("Nothing is known of where these tokens come from.")
    return text


def _donor(text: Text, subject: Subject, finding: FindingRow, leak: LeakEvidence, palette: Palette) -> None:
    first, last = whole(leak.donor_start), whole(leak.donor_end)
    title = f"donor: {plain(leak.donor_part)} of {plain(leak.donor_request)}, tokens {first} to {last - 1}\n"
    text.append(title, palette.title)
    tokens = subject.donor_tokens()
    if tokens is None:
        text.append("the donor's tokens are not in the database\n")
    else:
        _marked(text, subject.decoder, tokens, first, last, palette)
    if subject.candidate is not None and finding.position is not None:
        end = finding.position + (finding.length or 1)
        text.append(f"\nvictim: {plain(finding.request)}, tokens {finding.position} to {end - 1}\n", palette.title)
        _marked(text, subject.decoder, subject.right, finding.position, end, palette)


def _period(text: Text, subject: Subject, finding: FindingRow, facts: TokensEvidence, palette: Palette) -> None:
    period = whole(facts.period)
    start = max(0, whole(facts.source_start, (finding.position or 0) - period))
    times = "" if facts.copies is None else f", {facts.copies:g} {'copy' if facts.copies == 1 else 'copies'}"
    text.append(f"period of {period} {'token' if period == 1 else 'tokens'}{times}; one period:\n", palette.title)
    _marked(text, subject.decoder, subject.right, start, start + period, palette)


def _marked(text: Text, decoder: Decoder, tokens: Any, first: int, last: int, palette: Palette) -> None:
    """The span between >> and <<, with some text around it."""
    first, last = max(0, first), max(0, last)
    text.append(decoder.text(tokens[max(0, first - CONTEXT) : first]), palette.dim)
    text.append(f">>{decoder.text(tokens[first:last])}<<", style=palette.span)
    text.append(decoder.text(tokens[last : last + CONTEXT]), palette.dim)


def prompt(subject: Subject, palette: Palette) -> Text:
    text, request = Text(), subject.request
    text.append("prompt ", palette.title)
    if request is None:
        text.append("not in the database\n")
    else:
        text.append(f"({counted(len(request.prompt_token_ids), 'token')})\n", palette.dim)
        shown = request.prompt if request.prompt is not None else subject.decoder.text(request.prompt_token_ids)
        text.append(plain(shown, keep="\n") + "\n")
    sampling = subject.run.plan.sampling
    text.append("sampling ", palette.title)
    given = (
        f"{row.name} {json_value(value)}"
        for row, value in sampling
        if row.name in ("temperature", "max_tokens") or row.means_something(value, sampling.temperature)
    )
    text.append(plain(", ".join(given)) + "\n")
    for completion in (subject.baseline, subject.candidate):
        if completion is None:
            continue
        text.append(f"{plain(completion.arm)} ", palette.title)
        reason = plain(completion.finish_reason or "no finish reason")
        stop = f" {plain(completion.stop_reason)}" if completion.stop_reason is not None else ""
        text.append(f"{counted(completion.n_tokens, 'token')}, ended by {reason}{stop}")
        arm = subject.arms.get(completion.arm)
        if arm is not None and arm.acceptance_rate is not None:
            text.append(f", {arm.acceptance_rate:.0%} of the arm's drafts accepted")
        text.append("\n")
    if subject.extras.spec is not None:
        text.append("drafts accepted, step by step ", palette.title)
        text.append(" ".join(str(n) for n in subject.extras.spec.accepted[:200].tolist()) + "\n")
    candidate = subject.arms.get(subject.arm)
    if candidate is not None and candidate.engine:
        text.append("engine ", palette.title)
        text.append(plain(", ".join(f"{k} {v}" for k, v in candidate.engine.items() if not isinstance(v, Mapping))))
    return text


def triage(said: Triage, changes: Sequence[TriageChange], fingerprint: str, palette: Palette) -> Text:
    text = Text()
    text.append(said.state.value, palette.title)
    for name, value in (
        ("label", said.label),
        ("note", said.note),
        ("link", said.link),
        ("duplicate of", said.duplicate_of),
    ):
        if value:
            text.append(f"\n{name}: {plain(value)}")
    text.append(f"\nfingerprint {plain(fingerprint)}\n", palette.dim)
    text.append_text(history_text(changes) if changes else Text("nobody has decided yet: c, b, t"))
    return text


def evidence(finding: FindingRow | None) -> Text:
    if finding is None:
        return Text("No finding here.")
    return Text(plain(json.dumps(dict(finding.evidence), indent=1, ensure_ascii=True, default=str), keep="\n"))
