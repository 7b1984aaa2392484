"""The texts of the panels under a finding: logprobs, origin, prompt, triage, evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from parity.comparator.detect.leak import PART_NAMES
from parity.language import render
from parity.messages import Message, message
from parity.records.evidence import LeakEvidence, LocatedEvidence, TokensEvidence
from parity.records.sampling import json_value
from parity.store import ArmRow, CompletionRow, FindingRow
from parity.tui.drawing import Drawing
from parity.tui.format import plain
from parity.tui.names import tokens
from parity.tui.tokens import Decoder
from parity.tui.widgets.paneltext import Palette
from parity.view.completion import whole
from parity.view.msprobe import msprobe
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


def evidence(finding: FindingRow | None) -> Text:
    if finding is None:
        return Text(render(NONE_HERE))
    shown, strip = dict(finding.evidence), []
    found = finding.facts
    if isinstance(found, LocatedEvidence) and (strip := strip_lines(found)):
        shown = {name: value for name, value in shown.items() if not name.startswith("strip")}
        if (dump := msprobe([(found.module, found.module_type, found.step)])) is not None:
            strip.append(render(dump))
        strip.append("")
    text = json.dumps(shown, indent=1, ensure_ascii=True, default=str)
    return Text(plain("\n".join([*strip, text]), keep="\n"))
