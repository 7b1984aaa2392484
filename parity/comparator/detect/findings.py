"""From the events of a pair to the findings of the run: which event wins, and what a person can check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.comparator.detect.leak import SPEAKING, Leak
from parity.comparator.detect.structure import Event
from parity.comparator.detect.walk import STRONG_ANCHOR, STRONG_CHUNK, Walk
from parity.comparator.reference.gaps import BoolArray, TokenGaps
from parity.records import Completion, Finding, Json, Kind, Severity
from parity.records.kinds import Stretch

FOREIGN_AND_SUPPORTED = 3
"""A leak begins with fewer tokens than this that the reference supports: one or two of another text may happen to
fit, more would be a text of the victim's own."""


DOUBT = 2.0
DOUBTFUL_TOKENS = 2
"""A fault whose only witnesses are this many tokens, each within DOUBT times the tolerance, convicts nobody: on the
embedded checkpoint 3 of 28,453 tokens of a baseline lay 0.38 to 0.44 nats below the best when it scored itself."""


@dataclass(slots=True)
class Case:
    """One pair on its way to findings."""

    a: Completion
    b: Completion
    walked: Walk
    view: TokenGaps | None
    events: list[Event]
    from_scores: bool
    ends_at_near_tie: bool = False
    """Ends before the baseline does, and ending there was as likely."""
    gap_is_the_others: bool = False
    """The gap where they part is that of the baseline's token in the candidate's own list."""
    contradicted: bool = False
    """The score rejects the baseline's token where they part."""

    def unsupported(self, tolerance: float) -> BoolArray | None:
        """Tokens that the scores do not support, shape (T,); None without scores."""
        return self.view.unsupported(tolerance) if self.view is not None and self.from_scores else None


@dataclass(frozen=True, slots=True)
class Findings:
    """Makes findings of one comparison."""

    arm: str
    baseline: str
    tolerance: float

    def of(
        self, b: Completion, event: Event, severity: Severity = Severity.CORRUPT, case: Case | None = None
    ) -> Finding:
        """The finding of an event, with the numbers of its tokens where the pair's case is given."""
        evidence = dict(event.evidence)
        if case is not None and event.position < len(b.token_ids):
            self._add_numbers(evidence, event, case)
        return self._finding(b, event.kind, severity, event.position, event.length, evidence)

    def _add_numbers(self, evidence: dict[str, Json], event: Event, case: Case) -> None:
        position, flip = event.position, case.walked.flip
        evidence.setdefault("candidate_token", int(case.b.token_ids[position]))
        if flip is not None and position == flip and position < len(case.a.token_ids):
            evidence.setdefault("baseline_token", int(case.a.token_ids[position]))
        if case.view is not None and math.isfinite(case.view.gap[position]):
            evidence |= case.view.at(position)
            evidence["tolerance"] = round(self.tolerance, 4)
            evidence["judged_by"] = self._judged_by(case, position)
            if event.kind is not Kind.NEAR_TIE:
                gaps = case.view.gap[position : max(event.end, position + 1)]
                over = np.flatnonzero(gaps > self.tolerance)
                if len(over):
                    evidence["unsupported_positions"] = (over[:32] + position).tolist()
                    evidence["largest_gap"] = round(float(min(1e9, gaps[over].max())), 4)
        if flip is not None and flip < position:
            evidence["first_divergent_token"] = flip

    @staticmethod
    def _judged_by(case: Case, position: int) -> str:
        if case.from_scores:
            return "scores"
        if position != case.walked.flip:
            return "the engine's own logprobs"
        return "the candidate's own logprobs" if case.gap_is_the_others else "logprobs at the first divergent token"

    def input_mismatch(self, a: Completion, b: Completion) -> Finding:
        """The prompts of a pair differ."""
        left, right = a.prompt_token_ids, b.prompt_token_ids
        size = min(len(left), len(right))
        different = np.flatnonzero(left[:size] != right[:size])
        if np.array_equal(left, right):
            limits = {"baseline_max_tokens": a.max_tokens, "candidate_max_tokens": b.max_tokens}
            why = "the request's max_tokens differs (null: the header's); nothing else is to be concluded"
            return self._finding(b, Kind.INPUT_MISMATCH, Severity.CORRUPT, None, None, {"why": why, **limits})
        at = int(different[0]) if len(different) else size
        evidence: dict[str, Json] = {
            "why": f"the prompts differ from prompt token {at} on; nothing else is to be concluded",
            "prompt_position": at,
            "baseline_prompt_length": len(left),
            "candidate_prompt_length": len(right),
        }
        return self._finding(b, Kind.INPUT_MISMATCH, Severity.CORRUPT, None, None, evidence)

    def _finding(
        self,
        b: Completion,
        kind: Kind,
        severity: Severity,
        position: int | None,
        length: int | None,
        evidence: dict[str, Json],
    ) -> Finding:
        return Finding(
            arm=self.arm,
            baseline=self.baseline,
            request=b.key.request,
            round=b.key.round,
            sample=b.key.sample,
            kind=kind,
            severity=severity,
            position=position,
            length=length,
            evidence=evidence,
        )


@dataclass(frozen=True, slots=True)
class Doubt:
    """What convicts nobody: a few tokens little beyond the tolerance, and nothing else wrong."""

    limit: float
    """Nats below the best token that such a token may lie."""
    share: float = 0.0
    """Share of the baseline's own tokens that lie beyond the tolerance, where they are scored: completions may have as
    many as that makes likely."""
    free: float = 0.0
    """Nats that are two steps of the logits as the scores show them: tokens so near are not counted."""

    def covers(self, events: Sequence[Event], case: Case, tolerance: float) -> bool:
        """Is this all there is against a completion?

        Not where a length says the same, a long chunk is lost or stands twice with long agreement behind it, or a
        token lies at an unknown distance.
        """
        if case.view is None or not all(_by_tokens_alone(event) for event in events):
            return False
        beyond: set[int] = set()
        for event in events:
            part = event.places(len(case.view.gap))
            over = part.start + np.flatnonzero(case.view.gap[part.start : part.stop] > tolerance)
            if not len(over):
                return False
            beyond.update(over.tolist())
        places = sorted(beyond)
        gaps = case.view.gap[places]
        if bool(case.view.bounded[places].any()) or float(gaps.max()) > max(self.limit, self.free):
            return False
        return int((gaps > self.free).sum()) <= self._most(len(case.b.token_ids))

    def _most(self, length: int) -> int:
        """Tokens beyond the tolerance that a clean completion of this length stays below but once in 10,000."""
        expected = length * self.share
        most, chance = 0, math.exp(-expected)
        left = 1.0 - chance  # of more than `most`, Poisson
        while left > 1e-4 and most < length:
            most += 1
            chance *= expected / most
            left -= chance
        return max(DOUBTFUL_TOKENS, most)


def _by_tokens_alone(event: Event) -> bool:
    """Does nothing but tokens speak for it?"""
    if not event.kind.row.may_be_doubted or "corroborated_by" in event.evidence:
        return False
    agreed = event.evidence.get("agree_again_for", 0)
    return not (event.length >= STRONG_CHUNK and agreed >= STRONG_ANCHOR and "ambiguous" not in event.evidence)


def leak_wins(event: Event, leak: Leak, unsupported: BoolArray | None) -> bool:
    """Does the match with another request explain the event better than its structure does?"""
    end = leak.start + leak.length
    covers = leak.start <= event.position < end
    if event.kind.row.stretch is not Stretch.COPY:
        return covers
    if unsupported is None or not covers or leak.length < event.length + 4:
        return False
    # The copy explains its own tokens; only unsupported ones behind it speak for another request.
    return int(unsupported[event.end : end].sum()) >= SPEAKING


def become_leak(case: Case, event: Event, leak: Leak) -> None:
    """Rewrite an event: its tokens are another request's."""
    if case.from_scores and event.position - leak.start >= FOREIGN_AND_SUPPORTED:
        # So many supported tokens are the victim's own and the donor's by chance; the fault begins behind them.
        shift = event.position - leak.start
        leak = replace(leak, start=event.position, length=leak.length - shift, donor_start=leak.donor_start + shift)
    event.kind = Kind.ROW_LEAK
    event.position, event.length = leak.start, leak.length
    event.evidence = {
        **{name: value for name, value in event.evidence.items() if name in ("agree_again_for", "baseline_tokens")},
        **leak.to_json(),
        "why": f"{leak.length} tokens are those of the {leak.donor_part} of {leak.donor_request} "
        f"from its position {leak.donor_start} on",
        "leaked_tokens": case.b.token_ids[leak.start : leak.start + leak.length].tolist()[:64],
    }


def without_overlaps(events: list[Event]) -> list[Event]:
    """The most specific event where several explain the same tokens."""
    kept: list[Event] = []
    for event in sorted(events, key=lambda one: one.kind.row.precedence):
        if any(other.kind is event.kind and other.position <= event.position < other.end for other in kept):
            continue
        covered = any(
            other.kind.row.explains_rest and other.position <= event.position < other.end + 3 for other in kept
        )
        if not (covered and event.kind.row.explained_away):
            kept.append(event)
    return kept
