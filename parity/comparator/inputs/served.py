"""Answers of servers: text alone where there are no token ids, and answers that contradict themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parity.comparator.detect.integrity import same_text
from parity.records import Capture, Completion, Finding, Header, Key, Kind, Severity, TokenIds

RETOKENISED = "retokenised"
"""`token_source` in a header's `served`: the ids were made from the text, by parity."""

MOST_TOLD = 8


def _served(header: Header) -> Mapping[str, Any]:
    """What a header says of the server behind the arm; {} for other arms."""
    said = header.extra.get("served")
    return said if isinstance(said, Mapping) else {}


def text_alone(header: Header) -> bool:
    """Has this arm given text without token ids?"""
    return _served(header).get("token_source") == RETOKENISED


def level(baseline: Capture, candidate: Capture) -> tuple[Capture, Capture]:
    """Both captures, with the same token ids where the texts are the same.

    One text can be cut into tokens in several ways, and where a side gave text alone nobody knows how its engine
    did. So equal texts that ended alike count as equal; texts that differ keep the ids they have.
    """
    if not (text_alone(baseline.header) or text_alone(candidate.header)):
        return baseline, candidate
    taken: dict[Key, TokenIds] = {}
    from_baseline = text_alone(candidate.header)
    source, target = (baseline, candidate) if from_baseline else (candidate, baseline)
    for completion in target:
        other = source.completions.get(completion.key)
        if other is not None and _same_text(other, completion):
            taken[completion.key] = other.token_ids
    levelled = replace(
        target,
        completions={
            key: replace(one, token_ids=taken[key], logprobs=None) if key in taken else one
            for key, one in target.completions.items()
        },
    )
    return (baseline, levelled) if from_baseline else (levelled, candidate)


def _same_text(a: Completion, b: Completion) -> bool:
    if a.text is None or b.text is None or a.finish_reason != b.finish_reason:
        return False
    return same_text(a.text, b.text, normalised=True)


def contradictions(baseline: Capture, candidate: Capture) -> list[Finding]:
    """Answers of the candidate that do not add up: a stream's chunks against the counts behind it, and the like."""
    found = []
    for completion in candidate:
        problems = (completion.server or {}).get("problems")
        if not isinstance(problems, list) or not problems:
            continue
        told = [str(problem)[:200] for problem in problems[:MOST_TOLD]]
        found.append(
            Finding(
                arm=candidate.header.arm,
                baseline=baseline.header.arm,
                request=completion.key.request,
                round=completion.key.round,
                sample=completion.key.sample,
                kind=Kind.TEXT_MISMATCH,
                severity=Severity.CORRUPT,
                position=0,
                length=len(completion.token_ids),
                evidence={"why": f"the server's answer does not add up: {'; '.join(told)}", "problems": told},
            )
        )
    return found


def unchecked(*captures: Capture) -> list[str]:
    """What could not be looked at in these arms, as their captures say; one sentence each."""
    arms: dict[str, list[str]] = {}
    for capture in captures:
        told: Any = _served(capture.header).get("unchecked")
        for one in told[:MOST_TOLD] if isinstance(told, list) else ():
            arms.setdefault(str(one)[:300], []).append(capture.header.arm)
    return [f"not checked in {' and '.join(names)}: {one}" for one, names in arms.items()]


def limits(baseline: Capture, candidate: Capture) -> Mapping[str, str]:
    """By arm, in a few words, what a verdict about these two must not be read as saying."""
    return {
        capture.header.arm: "text alone was compared, not token ids"
        for capture in (baseline, candidate)
        if text_alone(capture.header)
    }
