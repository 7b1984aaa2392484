"""Drawn completions that their own prompt does not explain: is it another request's text that does?

Where no completion of the run holds the tokens (two rows were swapped, and each drew its own text), the scorer decides:
it scores them once more, after the prompts of other requests. Here is which of these to ask; detect/donors.py says what
the answers say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from parity.comparator.inputs.questions import temperature_in
from parity.records import Capture, Completion, Finding, Key, Kind, Severity, TokenIds
from parity.records.crossings import Crossing
from parity.records.evidence import JudgedBy, TemperatureEvidence

ROWS = 64
"""Completions that are asked about at most, the heaviest findings first."""

MOST = 1024
"""Questions asked at most, in all."""

EACH = 128
"""Questions asked of one completion at most."""

SCORED = 128
"""Tokens of a completion that are scored after another text."""

EARLY = 8
"""Tokens: where the first unlikely one comes before, the whole completion is asked about alone; later, its rest is as
well."""

FEWEST = 8
"""Tokens that a completion, or its rest, must have."""

_BY_SCORES = (JudgedBy.SCORES, None)
"""Logprobs that disagree do so with scores."""

_SUSPICIOUS = frozenset({Kind.GARBLED, Kind.UNJUSTIFIED, Kind.WRONG_TEMPERATURE, Kind.LOGPROB_MISMATCH})


def suspicious(candidate: Capture, findings: Iterable[Finding]) -> dict[Key, int]:
    """Drawn completions that their own prompts do not explain, the heaviest first: position of the first such token."""
    found: dict[Key, int] = {}
    findings = list(findings)
    named = {one.key for one in findings if one.kind is Kind.ROW_LEAK}
    for one in findings:
        row = candidate.completions.get(one.key)
        if one.severity is not Severity.CORRUPT or one.kind not in _SUSPICIOUS or one.position is None:
            continue
        if row is None or one.key in named or not _is_hot(one.evidence) or one.evidence.judged_by not in _BY_SCORES:
            continue
        if temperature_in(candidate.sampling_of(row)) > 0:
            found[one.key] = min(one.position, found.get(one.key, one.position))
    return found


def _is_hot(evidence: object) -> bool:
    """Unlikely tokens may look as if drawn at a higher temperature, never at a lower one."""
    return not isinstance(evidence, TemperatureEvidence) or evidence.looks_like > evidence.asked


def crossings(candidate: Capture, findings: Iterable[Finding], order: Sequence[str] = ()) -> list[Crossing]:
    """What the scorer is to be asked, by the findings of a comparison, the heaviest first.

    `order`: requests as they were sent; neighbours are asked about first, and before them the other suspicious
    completions: rows that were mixed up with each other are all among these.
    """
    rows = dict(list(suspicious(candidate, findings).items())[:ROWS])
    if not rows:
        return []
    numbers = {request: number for number, request in enumerate(order)}
    for one in candidate:
        numbers.setdefault(one.key.request, len(numbers))
    by_round: dict[int, list[Completion]] = {}
    for one in sorted(candidate, key=lambda one: (numbers[one.key.request], one.key.sample)):
        by_round.setdefault(one.key.round, []).append(one)
    each = max(FEWEST, min(EACH, MOST // len(rows)))
    found: list[Crossing] = []
    for key, position in rows.items():
        receiver = candidate.completions[key]
        near = sorted(
            by_round[key.round],
            key=lambda one: (one.key not in rows, abs(numbers[one.key.request] - numbers[key.request])),
        )
        found += _of_row(candidate.header.arm, receiver, position, near, rows, each)
    return found


def _of_row(
    arm: str, receiver: Completion, position: int, donors: Iterable[Completion], rows: Mapping[Key, int], most: int
) -> list[Crossing]:
    found: list[Crossing] = []
    asked: set[tuple[bytes, int, bytes]] = set()
    own = receiver.prompt_token_ids.tobytes()
    for donor in donors:
        prompt = donor.prompt_token_ids.tobytes()
        if donor.key.request == receiver.key.request or prompt == own or donor.aborted:
            continue
        for start in _starts(position, rows.get(donor.key)):
            said = donor.token_ids[:start]
            name = prompt, start, said.tobytes()
            if name in asked or len(said) < start or len(receiver.token_ids) - start < FEWEST:
                continue
            asked.add(name)
            found.append(Crossing(arm, receiver.key, donor.key, start))
            if len(found) >= most:
                return found
    return found


def _starts(position: int, of_donor: int | None) -> tuple[int, ...]:
    """From which tokens on a completion may be the donor's. Where both are suspicious, from the same one on."""
    shared = position if of_donor is None or of_donor < EARLY else min(position, of_donor)
    return (0,) if shared < EARLY else (0, shared)


def sequence(crossing: Crossing, candidate: Capture) -> tuple[TokenIds, TokenIds]:
    """(prompt, tokens) to be scored."""
    donor, receiver = candidate.completions[crossing.donor], candidate.completions[crossing.receiver]
    prompt = np.concatenate([donor.prompt_token_ids, donor.token_ids[: crossing.start]])
    return prompt, receiver.token_ids[crossing.start : crossing.start + SCORED]
