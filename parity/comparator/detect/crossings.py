"""Drawn completions that their own prompt does not explain: is it another request's text that does?

Where no completion of the run holds the tokens (two rows were swapped, and each drew its own text), the scorer decides:
it scores them once more, after the prompts of other requests. Here is which of these to ask; detect/donors.py says what
the answers say.

A flat model draws whatever comes: a swapped row is then a little more surprising than the others at its first tokens,
and no more. Where no logprobs of the engine's own tell it, the most surprising rows are asked about each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isqrt

import numpy as np

from parity.comparator.inputs.questions import temperature_in
from parity.comparator.reference.crossed import excess
from parity.records import Capture, Completion, Finding, Key, Kind, ScoreKey, Scores, Severity, TokenIds
from parity.records.crossings import Crossing
from parity.records.evidence import JudgedBy, TemperatureEvidence
from parity.records.sampling import forbids, penalises

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

FIRST = 8
"""Tokens over which rows are compared by surprisal: after them another's text explains itself."""

STRANGE = 8
"""Completions that are asked about each other at least, because they are the most surprising: about as many questions
as of 64 completions. Of N completions the square root of N, so that there are N questions."""

_BY_SCORES = (JudgedBy.SCORES, None)
"""Logprobs that disagree do so with scores."""

_SUSPICIOUS = frozenset({Kind.GARBLED, Kind.UNJUSTIFIED, Kind.WRONG_TEMPERATURE, Kind.LOGPROB_MISMATCH})


def suspicious(arm: Capture, findings: Iterable[Finding]) -> dict[Key, int]:
    """Drawn completions that their own prompts do not explain, the heaviest first: position of the first such token."""
    found: dict[Key, int] = {}
    findings = list(findings)
    named = {one.key for one in findings if one.kind is Kind.ROW_LEAK}
    for one in findings:
        row = arm.completions.get(one.key)
        if one.severity is not Severity.CORRUPT or one.kind not in _SUSPICIOUS or one.position is None:
            continue
        if row is None or one.key in named or not _is_hot(one.evidence) or one.evidence.judged_by not in _BY_SCORES:
            continue
        if temperature_in(arm.sampling_of(row)) > 0:
            found[one.key] = min(one.position, found.get(one.key, one.position))
    return found


def _is_hot(evidence: object) -> bool:
    """Unlikely tokens may look as if drawn at a higher temperature, never at a lower one."""
    return not isinstance(evidence, TemperatureEvidence) or evidence.looks_like > evidence.asked


def strange(arm: Capture, scores: Scores, known: Collection[Key] = ()) -> list[Key]:
    """Drawn completions, beside those `known` to be suspicious, whose first tokens are the least expected, these
    first: those of which nothing but scores could tell that they are another's. In models whose text depends on its
    prompt for long they are found without; in flat ones nine of ten swapped rows are among these."""
    found: dict[Key, float] = {}
    for one in arm:
        top = scores.get(ScoreKey(arm.header.arm, *one.key))
        if top is not None and len(top) == len(one.token_ids) and may_be_strange(arm, one):
            temperature = temperature_in(arm.sampling_of(one))
            found[one.key] = excess(top.part(stop=FIRST), one.token_ids[:FIRST], temperature)
    most = min(ROWS, max(STRANGE, isqrt(len(found)) + 1))
    return [key for key in sorted(found, key=lambda key: -found[key])[:most] if key not in known]


def may_be_strange(arm: Capture, one: Completion) -> bool:
    """Could this completion be another's without anything but a scorer to tell it? It was drawn from what scores list,
    and its engine recorded no logprobs."""
    sampling = arm.sampling_of(one)
    drawn = temperature_in(sampling) > 0 and not penalises(sampling) and not forbids(sampling)
    return one.logprobs is None and drawn and len(one.token_ids) >= FEWEST


def crossings(
    arm: Capture, findings: Iterable[Finding], order: Sequence[str] = (), scores: Scores | None = None
) -> list[Crossing]:
    """What the scorer is to be asked, by the findings of a comparison, the heaviest first; then, with `scores`, about
    the most surprising completions, each after the prompts of the others alone.

    `order`: requests as they were sent; neighbours are asked about first, and before them the other suspicious
    completions: rows that were mixed up with each other are all among these.
    """
    rows = dict(list(suspicious(arm, findings).items())[:ROWS])
    odd = strange(arm, scores or {}, rows)
    if not rows and len(odd) < 2:
        return []
    numbers = {request: number for number, request in enumerate(order)}
    for one in arm:
        numbers.setdefault(one.key.request, len(numbers))
    by_round: dict[int, list[Completion]] = {}
    for one in sorted(arm, key=lambda one: (numbers[one.key.request], one.key.sample)):
        by_round.setdefault(one.key.round, []).append(one)
    each = max(FEWEST, min(EACH, MOST // (len(rows) + len(odd))))
    found: list[Crossing] = []
    for key in (*rows, *odd):
        receiver = arm.completions[key]
        near = sorted(
            (one for one in by_round[key.round] if key in rows or one.key in rows or one.key in odd),
            key=lambda one: (
                one.key not in rows,
                one.key not in odd,
                abs(numbers[one.key.request] - numbers[key.request]),
            ),
        )
        found += _of_row(arm.header.arm, receiver, rows.get(key, 0), near, rows, each)
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


def sequence(crossing: Crossing, arm: Capture) -> tuple[TokenIds, TokenIds]:
    """(prompt, tokens) to be scored."""
    donor, receiver = arm.completions[crossing.donor], arm.completions[crossing.receiver]
    prompt = np.concatenate([donor.prompt_token_ids, donor.token_ids[: crossing.start]])
    return prompt, receiver.token_ids[crossing.start : crossing.start + SCORED]
