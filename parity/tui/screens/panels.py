"""The texts at the bottom of the finding: who thought what, donor, prompt, triage, evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.text import Text

from parity.records import TopLogprobs
from parity.store import ArmRow, CompletionRow, FindingRow, RequestRow, RunRow, Triage, TriageChange
from parity.tui.captures import Extras, step_of
from parity.tui.format import bar, fit, plain
from parity.tui.screens.dialogs import history_text
from parity.tui.tokens import Decoder, spaced

PANELS: Final = ("logprobs", "donor", "prompt", "history", "evidence")
TOP: Final = 5
CONTEXT: Final = 24
"""Tokens shown before and after a span."""


@dataclass
class Subject:
    """Everything at hand about one completion."""

    run: RunRow
    decoder: Decoder
    finding: FindingRow | None
    baseline: CompletionRow | None
    candidate: CompletionRow | None
    request: RequestRow | None
    arms: Mapping[str, ArmRow]
    arm: str
    others: Sequence[FindingRow] = ()
    extras: Extras = field(default_factory=Extras)
    donor: CompletionRow | None = None
    donor_request: RequestRow | None = None


def logprobs(subject: Subject, left: int, right: int, width: int) -> Text:
    """The top tokens at the cursor as bars, one column per source."""
    text = Text(no_wrap=True, overflow="crop")
    columns = []
    for title, opinion, token in _opinions(subject, left, right):
        columns.append((title, opinion, token))
    if not columns:
        text.append("No logprobs for this token: ", style="bold")
        text.append(
            "the capture and score files of the run hold none, or are no longer there."
            if subject.extras.problem is None
            else plain(subject.extras.problem)
        )
        text.append("\n")
    else:
        share = max(20, (width + 2) // len(columns) - 2)
        drawn = [_column(subject.decoder, *column, share) for column in columns]
        height = max(len(lines) for lines in drawn)
        for row in range(height):
            for number, lines in enumerate(drawn):
                if number:
                    text.append("  ")
                text.append_text(lines[row] if row < len(lines) else Text(" " * share))
            text.append("\n")
    text.append(_step(subject, right), style="dim")
    return text


def _opinions(subject: Subject, left: int, right: int) -> list[tuple[str, list[tuple[int, float]], int]]:
    """(title, best tokens with nats, token emitted) per source that says something about the cursor's row."""
    ours = _token(subject.candidate, right)
    theirs = _token(subject.baseline, left)
    found = []
    stored: Any = {}
    if subject.finding is not None and subject.finding.position == right:
        stored = subject.finding.evidence.get("logprobs") or {}
    for title, top, at, token, name in (
        (f"baseline {subject.run.baseline}", subject.extras.baseline, left, theirs, "baseline"),
        ("reference scores candidate", subject.extras.reference, right, ours, "reference"),
        (f"candidate {subject.arm}", subject.extras.candidate, right, ours, "candidate"),
    ):
        pairs = _at(top, at)
        if not pairs and isinstance(stored, Mapping) and isinstance(stored.get(name), list):
            pairs = [(int(t), float(v)) for t, v in stored[name] if v is not None]
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


def _column(decoder: Decoder, title: str, pairs: list[tuple[int, float]], token: int, width: int) -> list[Text]:
    """Lines of exactly `width` columns; `>` marks the token that was emitted."""
    shown = pairs[:TOP]
    shown += [pair for pair in pairs[TOP:] if pair[0] == token]
    lines = [Text(fit(plain(title), width), style="bold")]
    name = max(8, min(18, width - 18))
    for token_id, value in shown:
        label = spaced(decoder.piece(token_id).text)
        mark = ">" if token_id == token else " "
        drawn = bar(math.exp(min(0.0, value)), width - name - 10)
        line = f"{mark}{fit(label, name)}{value:7.2f} {drawn}"
        lines.append(Text(fit(line, width), style="bold" if token_id == token else ""))
    if token >= 0 and all(token_id != token for token_id, _ in shown):
        lines.append(Text(fit(f">{spaced(decoder.piece(token).text)} (not among the top tokens)", width), style="bold"))
    return lines


def _step(subject: Subject, right: int) -> str:
    """The decode step that made the token, where a trace is known."""
    if right < 0 or subject.extras.accepted is None:
        return ""
    found = step_of(right, subject.extras.accepted)
    if found is None:
        return "token of the prefill" if right == 0 else ""
    step, place = found
    accepted = subject.extras.accepted[step]
    drafted = subject.extras.drafted[step] if subject.extras.drafted and step < len(subject.extras.drafted) else None
    of = "" if drafted is None else f" of {drafted}"
    kind = f"draft token {place + 1}" if place < accepted else "the token sampled after the drafts"
    return f"decode step {step}: {accepted}{of} draft tokens accepted; this is {kind}"


def donor(subject: Subject) -> Text:
    """The donor of a leak with the span marked, the pattern of a repetition, or what was lost."""
    finding, text = subject.finding, Text()
    if finding is None:
        return Text("No finding here.")
    evidence, decoder = finding.evidence, subject.decoder
    if "donor_request" in evidence:
        first, last = int(evidence.get("donor_start", 0)), int(evidence.get("donor_end", 0))
        part = str(evidence.get("donor_part", ""))
        text.append(
            f"donor: {plain(part)} of {plain(evidence['donor_request'])}, tokens {first} to {last - 1}\n", "bold"
        )
        tokens = None
        if "prompt" in part and subject.donor_request is not None:
            tokens = subject.donor_request.prompt_token_ids
        elif subject.donor is not None:
            tokens = subject.donor.token_ids
        if tokens is None:
            text.append("the donor's tokens are not in the database\n")
        else:
            _marked(text, decoder, tokens, first, last)
        if subject.candidate is not None and finding.position is not None:
            text.append(f"\nvictim: {plain(finding.request)}, tokens from {finding.position}\n", "bold")
            end = finding.position + (finding.length or 1)
            _marked(text, decoder, subject.candidate.token_ids, finding.position, end)
    elif "period" in evidence and subject.candidate is not None:
        period = int(evidence["period"])
        start = int(evidence.get("source_start", (finding.position or 0) - period))
        copies = evidence.get("copies")
        text.append(
            f"period of {period} tokens" + (f", {copies:g} copies" if copies else "") + "; one period:\n", "bold"
        )
        _marked(text, decoder, subject.candidate.token_ids, start, start + period)
    else:
        for name, title in (("baseline_tokens", "only in the baseline"), ("candidate_tokens", "only in the candidate")):
            tokens_here = evidence.get(name)
            if isinstance(tokens_here, list) and tokens_here:
                text.append(f"{title}, {len(tokens_here)} tokens: ", "bold")
                text.append("".join(decoder.piece(int(t)).text for t in tokens_here[:200]) + "\n")
    if not text:
        text.append("These tokens come from nowhere that was found.")
    return text


def _marked(text: Text, decoder: Decoder, tokens: Any, first: int, last: int) -> None:
    """The span between >> and <<, with some text around it."""
    text.append(decoder.text(tokens[max(0, first - CONTEXT) : first]))
    text.append(f">>{decoder.text(tokens[first:last])}<<", style="bold underline")
    text.append(decoder.text(tokens[last : last + CONTEXT]))


def prompt(subject: Subject) -> Text:
    text = Text()
    request = subject.request
    text.append("prompt ", "bold")
    if request is None:
        text.append("not in the database\n")
    else:
        text.append(f"({len(request.prompt_token_ids)} tokens) ")
        shown = request.prompt if request.prompt is not None else subject.decoder.text(request.prompt_token_ids)
        text.append(plain(shown) + "\n")
    sampling = subject.run.plan.get("sampling", {})
    text.append("sampling ", "bold")
    text.append(
        plain(", ".join(f"{k} {v}" for k, v in sampling.items() if v not in (None, [], "")) or "unknown") + "\n"
    )
    for completion in (subject.baseline, subject.candidate):
        if completion is not None:
            text.append(f"{plain(completion.arm)} ", "bold")
            reason = plain(completion.finish_reason or "no finish reason")
            stop = f" {plain(completion.stop_reason)}" if completion.stop_reason is not None else ""
            text.append(f"{completion.n_tokens} tokens, {reason}{stop}")
            arm = subject.arms.get(completion.arm)
            if arm is not None and arm.acceptance_rate is not None:
                text.append(f", acceptance {arm.acceptance_rate:.0%} over the arm")
            text.append("\n")
    if subject.extras.accepted is not None:
        text.append("accepted per step ", "bold")
        text.append(" ".join(str(n) for n in subject.extras.accepted[:200]) + "\n")
    candidate = subject.arms.get(subject.arm)
    if candidate is not None:
        text.append("engine ", "bold")
        text.append(plain(", ".join(f"{k} {v}" for k, v in candidate.engine.items())) + "\n")
    return text


def history(triage: Triage, changes: Sequence[TriageChange], fingerprint: str) -> Text:
    text = Text()
    text.append(f"{triage.state.value}", "bold")
    for name, value in (("note", triage.note), ("link", triage.link), ("duplicate of", triage.duplicate_of)):
        if value:
            text.append(f"\n{name}: {plain(value)}")
    text.append(f"\nfingerprint {plain(fingerprint)}\n", "dim")
    text.append_text(history_text(changes) if changes else Text("nobody has decided yet: t, c, b"))
    return text


def evidence(finding: FindingRow | None) -> Text:
    if finding is None:
        return Text("No finding here.")
    return Text(plain(json.dumps(dict(finding.evidence), indent=1, ensure_ascii=True, default=str), keep="\n"))
