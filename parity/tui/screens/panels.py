"""The texts of the panels under a finding: logprobs, origin, prompt, triage, evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from parity.comparator.detect.leak import PART_NAMES
from parity.language import render
from parity.messages import Message, message
from parity.records import TopLogprobs
from parity.records.evidence import LeakEvidence, LocatedEvidence, TokensEvidence
from parity.records.sampling import json_value
from parity.records.steps import PREFILL
from parity.store import ArmRow, CompletionRow, FindingRow, Triage, TriageChange
from parity.tui.drawing import Drawing
from parity.tui.format import bar, fit, moment, nats, plain
from parity.tui.names import FIELDS, named, state_name, tokens
from parity.tui.screens.dialogs import history_text
from parity.tui.tokens import Decoder, spaced
from parity.tui.widgets.paneltext import Palette
from parity.view.completion import CompletionView, whole
from parity.view.strip import strip_lines

NAMES: Final[Mapping[str, Message]] = {
    "logprobs": message("tui.panel.logprobs", "logprobs"),
    "origin": message("tui.panel.origin", "origin"),
    "prompt": message("tui.panel.prompt", "prompt"),
    "triage": message("tui.panel.triage", "triage"),
    "evidence": message("tui.panel.evidence", "evidence"),
    "steps": message("tui.panel.steps", "steps"),
}
PANELS: Final = tuple(NAMES)
NONE_HERE: Final = message("tui.none_here", "No finding here.")
TOP: Final = 5
CONTEXT: Final = 24
"""Tokens shown before and after a span."""


def logprobs(drawing: Drawing, left: int, right: int, width: int, palette: Palette) -> Text:
    """The top tokens at the cursor as bars, one column per source; what the gap is made of below."""
    text = Text(no_wrap=True, overflow="crop")
    columns = _lists(drawing.view, left, right)
    if not columns and drawing.loading:
        return Text(render(message("tui.reading_files", "Reading the capture files …")))
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


def has_origin(finding: FindingRow | None) -> bool:
    """Does the evidence say where the finding's tokens come from?"""
    facts = finding.facts if finding else None
    return isinstance(facts, TokensEvidence) and (
        isinstance(facts, LeakEvidence)
        or whole(facts.period) > 0
        or facts.baseline_tokens is not None
        or facts.candidate_tokens is not None
    )


def origin(drawing: Drawing, palette: Palette) -> Text:
    """The donor of a leak with the span marked, the pattern of a repetition, or what was lost and gained."""
    finding, text = drawing.view.finding, Text()
    if finding is None:
        return Text(render(NONE_HERE))
    facts = finding.facts
    if isinstance(facts, LeakEvidence):
        _donor(text, drawing, finding, facts, palette)
    elif isinstance(facts, TokensEvidence) and whole(facts.period) > 0 and drawing.view.candidate is not None:
        _period(text, drawing, finding, facts, palette)
    elif isinstance(facts, TokensEvidence):
        for listed, title in (
            (facts.baseline_tokens, message("tui.only_baseline", "only in the baseline")),
            (facts.candidate_tokens, message("tui.only_candidate", "only in the candidate")),
        ):
            if listed:
                head = message("tui.only", "{where}, {tokens}: ", where=title, tokens=tokens(len(listed)))
                text.append(render(head), palette.title)
                text.append("".join(drawing.decoder.piece(whole(t, -1)).text for t in listed[:200]) + "\n")
    if not text:
        text.append(render(message("tui.no_origin", "Nothing is known of where these tokens come from.")))
    return text


def _donor(text: Text, drawing: Drawing, finding: FindingRow, leak: LeakEvidence, palette: Palette) -> None:
    first, last, view = whole(leak.donor_start), whole(leak.donor_end), drawing.view
    donor = message(
        "tui.donor_span",
        "donor: {part} of {request}, tokens {first} to {last}",
        part=PART_NAMES.get(leak.donor_part, plain(leak.donor_part)),
        request=plain(leak.donor),
        first=first,
        last=last - 1,
    )
    text.append(render(donor) + "\n", palette.title)
    stream = view.donor_tokens
    if stream is None:
        text.append(render(message("tui.no_donor", "the donor's tokens are not in the database")) + "\n")
    else:
        _marked(text, drawing.decoder, stream, first, last, palette)
    if view.candidate is not None and finding.position is not None:
        end = finding.position + (finding.length or 1)
        victim = message(
            "tui.victim_span",
            "victim: {request}, tokens {first} to {last}",
            request=plain(finding.request),
            first=finding.position,
            last=end - 1,
        )
        text.append(f"\n{render(victim)}\n", palette.title)
        _marked(text, drawing.decoder, view.right, finding.position, end, palette)


def _period(text: Text, drawing: Drawing, finding: FindingRow, facts: TokensEvidence, palette: Palette) -> None:
    period = whole(facts.period)
    start = max(0, whole(facts.source_start, (finding.position or 0) - period))
    said = message("tui.period", "period of {tokens}", tokens=tokens(period))
    if facts.copies is not None:
        said = message(
            "tui.period_copies",
            "{period}, {count:g} copy",
            plural="{period}, {count:g} copies",
            period=said,
            count=facts.copies,
        )
    text.append(render(message("tui.one_period", "{period}; one period:", period=said)) + "\n", palette.title)
    _marked(text, drawing.decoder, drawing.view.right, start, start + period, palette)


def _marked(text: Text, decoder: Decoder, tokens: Any, first: int, last: int, palette: Palette) -> None:
    """The span between >> and <<, with some text around it."""
    first, last = max(0, first), max(0, last)
    text.append(decoder.text(tokens[max(0, first - CONTEXT) : first]), palette.dim)
    text.append(f">>{decoder.text(tokens[first:last])}<<", style=palette.span)
    text.append(decoder.text(tokens[last : last + CONTEXT]), palette.dim)


def prompt(drawing: Drawing, palette: Palette) -> Text:
    text, view = Text(), drawing.view
    for heading, said in _about(drawing):
        text.append(f"{heading} ", palette.title)
        text.append(said + "\n")
    candidate = view.arms.get(view.arm)
    if candidate is not None and candidate.engine:
        text.append(render(message("tui.engine", "engine")) + " ", palette.title)
        text.append(plain(", ".join(f"{k} {v}" for k, v in candidate.engine.items() if not isinstance(v, Mapping))))
    return text


def _about(drawing: Drawing) -> Iterator[tuple[str, str]]:
    """(heading, what is said under it) of the request and both completions."""
    view, request = drawing.view, drawing.view.request
    if request is None:
        yield render(NAMES["prompt"]), render(message("tui.no_prompt", "not in the database"))
    else:
        shown = request.prompt if request.prompt is not None else drawing.decoder.text(request.prompt_token_ids)
        long = render(message("tui.so_long", "({tokens})", tokens=tokens(len(request.prompt_token_ids))))
        yield render(NAMES["prompt"]), f"{long}\n{plain(shown, keep=chr(10))}"
    sampling = view.run.plan.sampling
    given = (
        f"{row.name} {json_value(value)}"
        for row, value in sampling
        if row.name in ("temperature", "max_tokens") or row.means_something(value, sampling.temperature)
    )
    yield render(message("tui.sampling", "sampling")), plain(", ".join(given))
    for completion in (view.baseline, view.candidate):
        if completion is not None:
            yield plain(completion.arm), render(_ended(completion, view.arms.get(completion.arm)))
    if view.extras.spec is not None:
        steps = " ".join(str(n) for n in view.extras.spec.accepted[:200].tolist())
        yield render(message("tui.drafts_by_step", "drafts accepted, step by step")), steps


def _ended(completion: CompletionRow, arm: ArmRow | None) -> Message:
    reason: Message | str = message("tui.no_finish_reason", "no finish reason")
    if completion.finish_reason:
        stop = "" if completion.stop_reason is None else f" {plain(completion.stop_reason)}"
        reason = plain(completion.finish_reason) + stop
    said = message("tui.ended", "{tokens}, ended by {reason}", tokens=tokens(completion.n_tokens), reason=reason)
    if arm is None or arm.acceptance_rate is None:
        return said
    return message(
        "tui.ended_accepted", "{said}, {rate:.0%} of the arm's drafts accepted", said=said, rate=arm.acceptance_rate
    )


def triage(
    said: Triage,
    changes: Sequence[TriageChange],
    fingerprint: str,
    palette: Palette,
    runs: Sequence[tuple[str, str]] = (),
) -> Text:
    """`runs`: (id, time) of those in which it occurs, the newest first."""
    text = Text()
    text.append(state_name(said.state), palette.title)
    for name, value in (
        ("label", said.label),
        ("note", said.note),
        ("link", said.link),
        ("original", said.duplicate_of),
    ):
        if value:
            text.append("\n" + named(FIELDS[name], value))
    text.append(f"\n{render(message('tui.fingerprint', 'fingerprint'))} {plain(fingerprint)}\n", palette.dim)
    nobody = message("tui.nobody_decided", "nobody has decided yet: c, b, t")
    text.append_text(history_text(changes) if changes else Text(render(nobody) + "\n"))
    if len(runs) > 1:
        text.append(render(message("tui.in_runs", "in {count} runs", count=len(runs))) + "\n", palette.title)
        text.append("".join(f"{moment(created)}  {plain(run)}\n" for run, created in runs))
    return text


def evidence(finding: FindingRow | None) -> Text:
    if finding is None:
        return Text(render(NONE_HERE))
    shown, strip = dict(finding.evidence), []
    found = finding.facts
    if isinstance(found, LocatedEvidence) and (strip := strip_lines(found)):
        shown = {name: value for name, value in shown.items() if not name.startswith("strip")}
        strip.append("")
    text = json.dumps(shown, indent=1, ensure_ascii=True, default=str)
    return Text(plain("\n".join([*strip, text]), keep="\n"))
