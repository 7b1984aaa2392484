"""Answers of servers: text alone where there are no token ids, and answers that contradict themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parity.comparator.inputs.text import same_text
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, Finding, Header, Key, Kind, Severity, TokenIds
from parity.records.evidence import TextEvidence

RETOKENISED = "retokenised"
"""`token_source` in a header's `served`: the ids were made from the text, by parity."""

MOST_SHOWN = 8


def _served(header: Header) -> Mapping[str, Any]:
    """What a header says of the arm's server; {} for other arms."""
    said = header.extra.get("served")
    return said if isinstance(said, Mapping) else {}


def served(header: Header) -> bool:
    """Was this arm a server that somebody else runs? Captures made by hand may name the backend alone."""
    return header.backend == "server" or bool(_served(header))


def text_alone(header: Header) -> bool:
    """Has this arm given text without token ids?"""
    return _served(header).get("token_source") == RETOKENISED


def same_ids_for_same_text(baseline: Capture, candidate: Capture) -> tuple[Capture, Capture]:
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
    normalised = replace(
        target,
        completions={
            key: replace(one, token_ids=taken[key], logprobs=None) if key in taken else one
            for key, one in target.completions.items()
        },
    )
    return (baseline, normalised) if from_baseline else (normalised, candidate)


def _same_text(a: Completion, b: Completion) -> bool:
    if a.text is None or b.text is None or a.finish_reason != b.finish_reason:
        return False
    return same_text(a.text, b.text, normalised=True)


def contradictions(baseline: Capture, candidate: Capture) -> list[Finding]:
    """Answers of the candidate that do not add up: a stream's chunks against the counts after it, and the like."""
    found = []
    for completion in candidate:
        problems = (completion.server or {}).get("problems")
        if not isinstance(problems, list) or not problems:
            continue
        shown = [str(problem)[:200] for problem in problems[:MOST_SHOWN]]
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
                evidence=TextEvidence(
                    why=message(
                        "text.answer", "the server's answer does not add up: {problems}", problems="; ".join(shown)
                    ),
                    problems=tuple(shown),
                ),
            )
        )
    return found


def remarks(baseline: Capture, candidate: Capture) -> Remarks:
    """What a verdict about these two must not be read as saying, and what could not be looked at in them."""
    arms: dict[str, list[str]] = {}
    for capture in (baseline, candidate):
        unchecked: Any = _served(capture.header).get("unchecked")
        for one in unchecked[:MOST_SHOWN] if isinstance(unchecked, list) else ():
            arms.setdefault(str(one)[:300], []).append(capture.header.arm)
    return Remarks(
        limits=tuple(
            message("inputs.text_alone", "{arm}: text alone was compared, not token ids", arm=capture.header.arm)
            for capture in (baseline, candidate)
            if text_alone(capture.header)
        ),
        notes=tuple(
            message("inputs.not_checked", "not checked in {arms}: {what}", arms=_and(names), what=what)
            for what, names in arms.items()
        ),
    )


def _and(names: list[str]) -> str | Message:
    return names[0] if len(names) == 1 else message("inputs.both", "{one} and {other}", one=names[0], other=names[1])
