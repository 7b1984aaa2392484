"""From the events of a pair to findings: what a person can check, with the numbers of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.cases import Case
from parity.comparator.detect.events import Event
from parity.comparator.streams.pairing import Pairs
from parity.messages import message
from parity.records import Completion, Evidence, Finding, Key, Kind
from parity.records.evidence import AROUND_PARTING, InputEvidence, JudgedBy


def findings_of(case: Case, arms: tuple[str, str], tolerance: float) -> Iterator[Finding]:
    """The findings of one pair; `arms`: the names of baseline and candidate."""
    events = (*case.benign, *case.events)
    for event in sorted(events, key=lambda one: one.position) if len(events) > 1 else events:
        evidence = _with_numbers(event, case, tolerance)
        yield finding(arms, case.b.key, event.kind, evidence, event.position, event.length)


def finding(
    arms: tuple[str, str],
    key: Key,
    kind: Kind,
    evidence: Evidence,
    position: int | None = None,
    length: int | None = None,
) -> Finding:
    """A finding about one completion; `arms`: the names of baseline and candidate."""
    baseline, candidate = arms
    return Finding(
        candidate,
        baseline,
        key.request,
        key.round,
        key.sample,
        kind,
        kind.row.severity,
        position,
        length,
        evidence,
    )


def input_mismatches(arms: tuple[str, str], pairs: Pairs) -> Iterator[Finding]:
    """Of the pairs that were not asked alike."""
    for row in np.flatnonzero(~pairs.same_prompt).tolist():
        own = pairs.own_differences.get(pairs.keys[row], ())
        yield _input_mismatch(arms, pairs.baseline[row], pairs.candidate[row], own)


def _input_mismatch(arms: tuple[str, str], a: Completion, b: Completion, own: Sequence[str]) -> Finding:
    """A pair was not asked alike; `own`: the sampling parameters of its own that differ (`Pairs.own_differences`)."""
    left, right = a.prompt_token_ids, b.prompt_token_ids
    if np.array_equal(left, right) and a.max_tokens == b.max_tokens:
        why = message(
            "input.sampling",
            "the request's own sampling parameters differ ({names}); nothing else is to be concluded",
            names=list(own),
        )
        return finding(arms, b.key, Kind.INPUT_MISMATCH, InputEvidence(why=why))
    if np.array_equal(left, right):
        why = message(
            "input.max_tokens",
            "the request's max_tokens differs (null: the header's); nothing else is to be concluded",
        )
        limits = InputEvidence(why=why, baseline_max_tokens=a.max_tokens, candidate_max_tokens=b.max_tokens)
        return finding(arms, b.key, Kind.INPUT_MISMATCH, limits)
    size = min(len(left), len(right))
    different = np.flatnonzero(left[:size] != right[:size])
    at = int(different[0]) if len(different) else size
    why = message(
        "input.prompt",
        "the prompts differ from prompt token {position} on; nothing else is to be concluded",
        position=at,
    )
    start = max(0, at - AROUND_PARTING)
    evidence = InputEvidence(
        why=why,
        prompt_position=at,
        baseline_prompt_length=len(left),
        candidate_prompt_length=len(right),
        prompts_from=start,
        baseline_prompt=tuple(left[start : at + AROUND_PARTING].tolist()),
        candidate_prompt=tuple(right[start : at + AROUND_PARTING].tolist()),
    )
    return finding(arms, b.key, Kind.INPUT_MISMATCH, evidence)


def _with_numbers(event: Event, case: Case, tolerance: float) -> Evidence:
    """The event's evidence with the tokens and gaps at its place."""
    position, flip, tokens, evidence, gaps = event.position, case.flip, case.b.token_ids, event.evidence, case.gaps
    if case.is_identical or position >= len(tokens):
        return evidence
    more: dict[str, Any] = {}
    if evidence.candidate_token is None:
        more["candidate_token"] = tokens.item(position)
    if position == flip and position < len(theirs := case.a.token_ids):
        more["baseline_token"] = theirs.item(position)
    if gaps is not None and (numbers := gaps.at(position)).gap is not None:
        more["numbers"] = numbers
        more["tolerance"] = round(tolerance, 4)
        more["judged_by"] = _judged_by(case, position)
        if event.kind is not Kind.NEAR_TIE:
            over = case.rejected(position, max(event.end, position + 1), tolerance)
            if over:
                more["unsupported_positions"] = tuple(over[:32])
                more["largest_gap"] = round(min(1e9, max(map(gaps.gap.item, over))), 4)
    if flip is not None and flip < position:
        more["first_divergent_token"] = flip
    return replace(evidence, **more)


def _judged_by(case: Case, position: int) -> JudgedBy:
    if case.from_scores:
        return JudgedBy.SCORES
    if position != case.flip:
        return JudgedBy.OWN_LIST
    return JudgedBy.CANDIDATE_LIST if case.gap_is_the_others else JudgedBy.BASELINE_LIST
