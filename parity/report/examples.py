"""One finding in Markdown: what was asked, what was expected, what came and what shows it, as its kind demands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from parity.records import TokenIds
from parity.records.evidence import (
    CopyOfSampleEvidence,
    Evidence,
    InputEvidence,
    LeakEvidence,
    LogprobEvidence,
    MissingEvidence,
    TextEvidence,
)
from parity.report.escape import block, code, inline, table
from parity.report.texts import Texts
from parity.store import CompletionRow
from parity.view import FindingView, RunView

COLUMNS: Final = 400
"""Width of the texts shown around a token."""
AROUND: Final = 12
"""Token ids shown on either side of the token in question."""
LONGEST_PROMPT: Final = 4000
"""Characters."""

Drawn = Callable[[RunView, FindingView, Any, Texts], Iterator[str]]


def example(view: RunView, finding: FindingView, texts: Texts) -> Iterator[str]:
    """The finding, in paragraphs and sections of Markdown."""
    if finding.asked is not None and not isinstance(finding.evidence, InputEvidence):
        prompt = finding.asked.prompt
        shown = prompt if prompt is not None else view.text.decode(finding.asked.prompt_token_ids)
        yield f"{texts('prompt')}\n\n{block(shown[:LONGEST_PROMPT])}"
    drawn = _DRAWN.get(type(finding.evidence), _tokens)
    yield from drawn(view, finding, finding.evidence, texts)


def _tokens(view: RunView, finding: FindingView, evidence: Evidence, texts: Texts) -> Iterator[str]:
    """Tokens that differ: both texts around the place, and what the reference thinks of it."""
    if view.run.greedy:
        yield from _expected(view, finding, texts)
    elif finding.baseline is not None:
        yield texts("side.drawn", arm=code(view.run.baseline))
    yield from _actual(view, finding, texts)
    first, position = finding.first_divergence, finding.position
    if view.run.greedy and first is not None and position is not None and first < position:
        yield texts("expected.parted", first=first)
    if finding.of_run:
        yield _section("heading.evidence.run", inline(texts.said(finding.why)), texts)
        return
    yield _section("heading.evidence", _reference(view, finding, texts), texts)


def _leak(view: RunView, finding: FindingView, evidence: LeakEvidence, texts: Texts) -> Iterator[str]:
    yield from _tokens(view, finding, evidence, texts)
    if evidence.leaked_tokens:
        whose = texts(
            "donor.tokens", donor=code(evidence.donor), part=inline(evidence.donor_part), start=evidence.donor_start
        )
        text = view.text.decode(_ids(evidence.leaked_tokens))
        ids = " ".join(map(str, evidence.leaked_tokens))
        yield _section("heading.donor", f"{whose}\n\n{block(f'{text}{chr(10) * 2}{ids}')}", texts)


def _missing(view: RunView, finding: FindingView, evidence: MissingEvidence, texts: Texts) -> Iterator[str]:
    for heading, stream, arm in _sides(view, finding):
        if stream is None:
            yield _section(heading, texts("side.none", arm=code(arm)), texts)
        elif heading == "heading.expected":
            yield from _expected(view, finding, texts)
        else:
            yield from _actual(view, finding, texts)


def _copy(view: RunView, finding: FindingView, evidence: CopyOfSampleEvidence, texts: Texts) -> Iterator[str]:
    yield from _actual(view, finding, texts)
    yield _section("heading.evidence.shown", inline(texts.said(finding.why)), texts)


def _input(view: RunView, finding: FindingView, evidence: InputEvidence, texts: Texts) -> Iterator[str]:
    """Both questions: what was answered to them says nothing."""
    said = [inline(texts.said(finding.why))]
    for arm, length, ids, most in (
        (view.run.baseline, evidence.baseline_prompt_length, evidence.baseline_prompt, evidence.baseline_max_tokens),
        (finding.arm, evidence.candidate_prompt_length, evidence.candidate_prompt, evidence.candidate_max_tokens),
    ):
        if length is not None:
            start = evidence.prompts_from or 0
            said.append(texts("asked.prompt", arm=code(arm), tokens=length, start=start))
            if ids:
                shown = f"{view.text.decode(_ids(ids))}\n\n{' '.join(map(str, ids))}"
                said.append(block(shown))
        elif most is not None:
            said.append(texts("asked.max_tokens", arm=code(arm), tokens=most))
    yield _section("heading.asked", "\n\n".join(said), texts)


def _logprob(view: RunView, finding: FindingView, evidence: LogprobEvidence, texts: Texts) -> Iterator[str]:
    """The engine's own number beside the reference's."""
    yield from _actual(view, finding, texts)
    at = evidence.worst_position if evidence.worst_position is not None else finding.position
    expected = evidence.score
    if expected is None:
        listed = dict(finding.logprobs("reference") or finding.logprobs("baseline"))
        expected = None if finding.token is None else listed.get(finding.token)
    rows = [[code(finding.arm), _nats(evidence.logprob, texts)]]
    if expected is not None:
        rows.append([inline(texts("source.expected")), _nats(expected, texts)])
    parts = [inline(texts.said(finding.why)), texts("evidence.logprob", position="-" if at is None else at)]
    parts.append(table([texts("column.source"), texts("column.logprob")], rows))
    yield _section("heading.evidence.shown", "\n\n".join(parts), texts)


def _text(view: RunView, finding: FindingView, evidence: TextEvidence, texts: Texts) -> Iterator[str]:
    for heading, arm, text in (
        ("heading.expected", view.run.baseline, evidence.expected),
        ("heading.actual", finding.arm, evidence.text),
    ):
        if text is not None:
            at = evidence.character
            name = "side.text.other" if at is None else "side.text"
            yield _section(heading, f"{texts(name, arm=code(arm), character=at)}\n\n{block(text)}", texts)
    yield _section("heading.evidence.shown", inline(texts.said(finding.why)), texts)


_DRAWN: Final[Mapping[type[Evidence], Drawn]] = {
    LeakEvidence: _leak,
    MissingEvidence: _missing,
    CopyOfSampleEvidence: _copy,
    InputEvidence: _input,
    LogprobEvidence: _logprob,
    TextEvidence: _text,
}
"""What is not drawn as tokens that differ."""


def _sides(view: RunView, finding: FindingView) -> tuple[tuple[str, CompletionRow | None, str], ...]:
    return (
        ("heading.expected", finding.baseline, view.run.baseline),
        ("heading.actual", finding.candidate, finding.arm),
    )


def _section(heading: str, text: str, texts: Texts) -> str:
    return f"#### {texts(heading)}\n\n{text}"


def _expected(view: RunView, finding: FindingView, texts: Texts) -> Iterator[str]:
    if finding.baseline is not None:
        lead = "expected.text" if finding.position is not None else "expected.text.whole"
        yield _stream(view, finding, finding.baseline, view.run.baseline, ("heading.expected", lead), texts)


def _actual(view: RunView, finding: FindingView, texts: Texts) -> Iterator[str]:
    if finding.candidate is not None:
        yield _stream(view, finding, finding.candidate, finding.arm, ("heading.actual", "actual.text"), texts)


def _stream(
    view: RunView, finding: FindingView, stream: CompletionRow, arm: str, names: tuple[str, str], texts: Texts
) -> str:
    """A completion around the place of the finding, and how it ended."""
    heading, lead = names
    at = finding.position if finding.position is not None else 0
    start = max(0, at - AROUND)
    ids = " ".join(map(str, stream.token_ids[start : at + AROUND].tolist()))
    if finding.position is None:
        text = view.text.decode(stream.token_ids[:COLUMNS])[:COLUMNS]
    else:
        text = view.text.marked(stream.token_ids, at, COLUMNS)
    name = "tokens.expected" if heading == "heading.expected" else "tokens.actual"
    end = texts("ends", arm=code(arm), tokens=stream.n_tokens, reason=code(stream.finish_reason))
    lines = f"{text}\n\n{texts(name, start=start).strip()}: {ids}"
    said = texts(lead, arm=code(arm), position=finding.position)
    return _section(heading, f"{said}\n\n{block(lines)}\n\n{end}", texts)


def _reference(view: RunView, finding: FindingView, texts: Texts) -> str:
    """The reference's top tokens at the place, and the sentence that sums them up."""
    listed = finding.reference()
    parts = [inline(texts.said(finding.why))] if finding.why else []
    if finding.gap is not None:
        bound = texts("evidence.bound") if finding.is_lower_bound else ""
        allowed = view.tolerance if finding.tolerance is None else finding.tolerance
        parts.append(texts("evidence.gap", gap=f"{finding.gap:.3f}", bound=bound, tolerance=allowed))
    if not listed:
        return "\n\n".join([*parts, texts("evidence.none")] if finding.gap is None else parts)
    rows = []
    for number, (token, value, gap) in enumerate(listed):
        role = texts("role.chosen") if token == finding.token else texts("role.best") if number == 0 else ""
        rows.append([code(view.text.token(token)), f"{value:.3f}", "" if gap is None else f"{gap:.3f}", role])
    head = [texts(f"column.{name}") for name in ("token", "logprob", "gap", "role")]
    return "\n\n".join([*parts, table(head, rows)])


def _nats(value: float | None, texts: Texts) -> str:
    return texts("logprob.none") if value is None else f"{value:.4f}"


def _ids(tokens: tuple[int, ...]) -> TokenIds:
    return np.asarray(tokens, dtype=np.int64)
