"""One finding as sections: what was asked, what was expected, what came and what shows it, as its kind demands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from parity.comparator.detect.leak import PART_NAMES
from parity.errors import ParityError
from parity.messages import Message
from parity.records import TokenIds
from parity.records.evidence import (
    CopyOfSampleEvidence,
    EndEvidence,
    Evidence,
    InputEvidence,
    LeakEvidence,
    LocatedEvidence,
    LogprobEvidence,
    MissingEvidence,
    NearTieEvidence,
    NumericsEvidence,
    TextEvidence,
    ViolationEvidence,
)
from parity.report import facts
from parity.report.prose import Code
from parity.report.sections import AROUND, Cell, Part, Rows, Section, Stream, Verbatim
from parity.report.texts import sentence as say
from parity.store import CompletionRow
from parity.view import FindingView, RunView
from parity.view.lanes import LEGEND, lanes_of
from parity.view.strip import strip_lines
from parity.view.timeline import timeline_beside

LONGEST_PROMPT: Final = 4000
"""Characters."""
LANES: Final = 96
"""Characters of the step timeline."""

Drawn = Callable[[RunView, FindingView, Any], Iterator[Section]]

EXPECTED, ACTUAL, SHOWN = "heading.expected", "heading.actual", "heading.evidence.shown"


def example(view: RunView, finding: FindingView) -> Iterator[Section]:
    """The finding, from the prompt to what shows it."""
    if finding.asked is not None and not isinstance(finding.evidence, InputEvidence):
        prompt = finding.asked.prompt
        shown = prompt if prompt is not None else view.text.decode(finding.asked.prompt_token_ids)
        yield Section(None, (say("prompt"), Verbatim(shown[:LONGEST_PROMPT])))
    drawn = _DRAWN.get(type(finding.evidence), _tokens)
    yield from drawn(view, finding, finding.evidence)


def _tokens(view: RunView, finding: FindingView, evidence: Evidence) -> Iterator[Section]:
    """Tokens that differ: both texts around the place, and what the reference thinks of it."""
    if view.run.greedy:
        yield from _expected(view, finding)
    elif finding.baseline is not None:
        yield Section(None, (say("side.drawn", arm=Code(view.run.baseline)),))
    yield from _actual(finding)
    first, position = finding.first_divergence, finding.position
    if view.run.greedy and first is not None and position is not None and first < position:
        yield Section(None, (say("expected.parted", first=first),))
    if finding.of_run:
        by_samples = not view.run.greedy and not isinstance(evidence, NumericsEvidence)
        yield Section("heading.evidence.run" if by_samples else SHOWN, (finding.why, *_leaning(view, evidence)))
        return
    by_reference = finding.gap is not None or finding.reference()
    yield Section("heading.evidence" if by_reference else SHOWN, tuple(_reference(view, finding)))


def _leaning(view: RunView, evidence: Evidence) -> Iterator[Message]:
    """The tokens whose logprobs are off the same way each time, with their texts."""
    if isinstance(evidence, NumericsEvidence) and evidence.leaning_tokens:
        each = [
            say(
                "evidence.leaning.one",
                token=token,
                text=Code(view.text.token(token)),
                nats=f"{nats:+.3f}",
                places=places,
            )
            for token, nats, places in evidence.leaning_tokens
        ]
        yield say("evidence.leaning", tokens=each)


def _violation(view: RunView, finding: FindingView, evidence: ViolationEvidence) -> Iterator[Section]:
    yield from _damage(view, finding)
    parts: list[Part] = [facts.violation(finding), say("evidence.steps"), *_lanes(view, finding)]
    yield Section("heading.evidence.steps", tuple(parts))


def _lanes(view: RunView, finding: FindingView) -> Iterator[Part]:
    """The steps around it, for the finding that the report is about: reading them takes a while."""
    capture = view.arm(finding.arm).capture
    if finding is not view.chosen or capture is None:
        return
    try:
        timeline = timeline_beside(Path(capture), finding.key)
    except ParityError:  # the steps are no more what they were when the run was judged; the sentence above stands
        return
    if timeline is None:
        return
    lanes = lanes_of(timeline, finding.position or 0, LANES)
    yield Verbatim("\n".join(lanes.lines), grid=True)
    yield LEGEND
    names = ", ".join(f"{letter} {name}" for letter, name in lanes.names)
    yield say("evidence.lanes", names=Code(names))


def _located(view: RunView, finding: FindingView, evidence: LocatedEvidence) -> Iterator[Section]:
    yield from _damage(view, finding)
    strip = [Verbatim("\n".join(lines), grid=True)] if (lines := strip_lines(evidence)) else []
    yield Section("heading.evidence.sketches", (facts.located(finding), *strip))


def _damage(view: RunView, finding: FindingView) -> Iterator[Section]:
    """What became of the tokens, where something is wrong inside the engine."""
    if facts.left_no_trace(view, finding):
        yield Section(None, (say("evidence.undamaged", arm=Code(view.run.baseline)),))
        return
    if view.run.greedy:
        yield from _expected(view, finding)
    yield from _actual(finding)


def _leak(view: RunView, finding: FindingView, evidence: LeakEvidence) -> Iterator[Section]:
    yield from _tokens(view, finding, evidence)
    if evidence.leaked_tokens:
        part = PART_NAMES.get(evidence.donor_part, evidence.donor_part)
        whose = say("donor.tokens", donor=Code(evidence.donor), part=part, start=evidence.donor_start)
        yield Section("heading.donor", (whose, Verbatim(_tokens_as_text(view, evidence.leaked_tokens))))


def _missing(view: RunView, finding: FindingView, evidence: MissingEvidence) -> Iterator[Section]:
    for heading, stream, arm in (
        (EXPECTED, finding.baseline, view.run.baseline),
        (ACTUAL, finding.candidate, finding.arm),
    ):
        if stream is None:
            yield Section(heading, (say("side.none", arm=Code(arm)),))
        else:
            yield from _expected(view, finding) if heading == EXPECTED else _actual(finding)


def _copy(view: RunView, finding: FindingView, evidence: CopyOfSampleEvidence) -> Iterator[Section]:
    yield from _actual(finding)
    yield Section(SHOWN, (finding.why,))


def _input(view: RunView, finding: FindingView, evidence: InputEvidence) -> Iterator[Section]:
    """Both questions: what was answered to them says nothing."""
    said: list[Part] = [finding.why]
    for arm, length, ids, most in (
        (view.run.baseline, evidence.baseline_prompt_length, evidence.baseline_prompt, evidence.baseline_max_tokens),
        (finding.arm, evidence.candidate_prompt_length, evidence.candidate_prompt, evidence.candidate_max_tokens),
    ):
        if length is not None:
            start = evidence.prompts_from or 0
            said.append(say("asked.prompt", arm=Code(arm), tokens=length, start=start))
            if ids:
                said.append(Verbatim(_tokens_as_text(view, ids)))
        elif most is not None:
            said.append(say("asked.max_tokens", arm=Code(arm), tokens=most))
    yield Section("heading.asked", tuple(said))


def _logprob(view: RunView, finding: FindingView, evidence: LogprobEvidence) -> Iterator[Section]:
    """The engine's own number beside the reference's."""
    yield from _actual(finding)
    at = evidence.worst_position if evidence.worst_position is not None else finding.position
    expected = evidence.score
    if expected is None:
        listed = dict(finding.logprobs("reference") or finding.logprobs("baseline"))
        expected = None if finding.token is None else listed.get(finding.token)
    rows: list[tuple[Cell, ...]] = [(Code(finding.arm), _nats(evidence.logprob))]
    if expected is not None:
        rows.append((say("source.expected"), _nats(expected)))
    head = (say("column.source"), say("column.logprob"))
    where = say("evidence.logprob", position="-" if at is None else at)
    yield Section(SHOWN, (finding.why, where, Rows(head, tuple(rows))))


def _text(view: RunView, finding: FindingView, evidence: TextEvidence) -> Iterator[Section]:
    at = evidence.character
    said = "side.text.other" if at is None else "side.text"
    made = said if evidence.by_baseline else "side.own.other" if at is None else "side.own"
    theirs = view.run.baseline if evidence.by_baseline else finding.arm
    sides = ((EXPECTED, made, theirs, evidence.expected), (ACTUAL, said, finding.arm, evidence.text))
    for heading, lead, arm, text in sides:
        if text is not None:
            yield Section(heading, (say(lead, arm=Code(arm), character=at), Verbatim(text)))
    yield Section(SHOWN, (finding.why,))


_DRAWN: Final[Mapping[type[Evidence], Drawn]] = {
    LeakEvidence: _leak,
    MissingEvidence: _missing,
    CopyOfSampleEvidence: _copy,
    InputEvidence: _input,
    LogprobEvidence: _logprob,
    TextEvidence: _text,
    ViolationEvidence: _violation,
    LocatedEvidence: _located,
}
"""What is not drawn as tokens that differ."""


def _expected(view: RunView, finding: FindingView) -> Iterator[Section]:
    if finding.baseline is not None:
        lead = "expected.text" if finding.position is not None else "expected.text.whole"
        yield _stream(finding, finding.baseline, view.run.baseline, EXPECTED, lead)


def _actual(finding: FindingView) -> Iterator[Section]:
    if finding.candidate is not None:
        yield _stream(finding, finding.candidate, finding.arm, ACTUAL, "actual.text")


def _stream(finding: FindingView, row: CompletionRow, arm: str, heading: str, lead: str) -> Section:
    """A completion around the place of the finding, and how it ended."""
    mine = heading == ACTUAL
    start = max(0, (finding.position or 0) - AROUND)
    label = say("tokens.actual" if mine else "tokens.expected", start=start)
    other = finding.baseline if mine else finding.candidate
    stream = Stream(
        row,
        finding.position,
        finding.first_divergence,
        (finding.length or 1) if mine else 1,
        label,
        other.text if other is not None else None,
    )
    end = say("ends", arm=Code(arm), tokens=row.n_tokens, reason=Code(row.finish_reason))
    return Section(heading, (say(lead, arm=Code(arm), position=finding.position), stream, end))


def _reference(view: RunView, finding: FindingView) -> Iterator[Part]:
    """The reference's top tokens at the place, and the sentence that sums them up."""
    listed = finding.reference()
    if finding.why:
        yield finding.why
    if finding.gap is not None:
        bound = say("evidence.bound") if finding.is_lower_bound else ""
        allowed = view.tolerance if finding.tolerance is None else finding.tolerance
        yield say("evidence.gap", gap=f"{finding.gap:.3f}", bound=bound, tolerance=allowed)
    ending = finding.evidence
    if isinstance(ending, EndEvidence | NearTieEvidence) and ending.gap_of_ending_here is not None:
        yield say("evidence.end", gap=f"{ending.gap_of_ending_here:.3f}", tolerance=view.tolerance)
    elif not listed and finding.gap is None:
        yield say("evidence.none")
    if not listed:
        return
    if finding.gap_is_moved:
        yield say("evidence.moved")
    rows: list[tuple[Cell, ...]] = []
    for number, (token, value, gap) in enumerate(listed):
        role = say("role.chosen") if token == finding.token else say("role.best") if number == 0 else ""
        rows.append((Code(view.text.token(token)), f"{value:.3f}", "" if gap is None else f"{gap:.3f}", role))
    yield Rows(tuple(say(f"column.{name}") for name in ("token", "logprob", "gap", "role")), tuple(rows))


def _nats(value: float | None) -> Message | str:
    return say("logprob.none") if value is None else f"{value:.4f}"


def _tokens_as_text(view: RunView, tokens: tuple[int, ...]) -> str:
    """Their text, and their ids below."""
    ids: TokenIds = np.asarray(tokens, dtype=np.int64)
    return f"{view.text.decode(ids)}\n\n{' '.join(map(str, tokens))}"
