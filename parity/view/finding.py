"""One finding of a view. Gaps and logprobs are in nats, positions count output tokens from 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from parity.messages import Message
from parity.records import RUN, Evidence, Key, Kind, Severity
from parity.records.first_faults import FOLLOWS, Fault, followed
from parity.records.weight import weight_of
from parity.store import CompletionRow, RequestRow

SAME_GAP: Final = 0.001
"""Nats by which a gap may differ from the distance of two logprobs that were rounded to be kept."""


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding with its prompt and both streams, where they are known. `id`, `fingerprint`: in the store."""

    id: int | None
    fingerprint: str | None
    arm: str
    key: Key
    kind: str
    severity: str
    position: int | None
    length: int | None
    gap: float | None
    evidence: Evidence
    state: str
    note: str
    """Of the one who looked at it."""
    asked: RequestRow | None
    """The request, with its prompt."""
    baseline: CompletionRow | None
    candidate: CompletionRow | None

    @property
    def request(self) -> str:
        return self.key.request

    @property
    def is_corrupt(self) -> bool:
        return self.severity == Severity.CORRUPT

    @property
    def of_run(self) -> bool:
        """About the run as a whole, not about one completion."""
        return self.request == RUN

    @property
    def weight(self) -> float:
        """How heavy its evidence is."""
        return weight_of(Kind(self.kind), self.severity, self.length, self.evidence)

    @property
    def why(self) -> Message:
        return self.evidence.said

    @property
    def first_divergence(self) -> int | None:
        return self.candidate.first_divergence if self.candidate is not None else None

    @property
    def token(self) -> int | None:
        """The candidate's token at its place."""
        stream, at = self.candidate, self.position
        if stream is None or at is None or not 0 <= at < len(stream.token_ids):
            return None
        return int(stream.token_ids[at])

    @property
    def tolerance(self) -> float | None:
        return self.evidence.tolerance

    @property
    def largest_gap(self) -> float | None:
        return self.evidence.largest_gap

    @property
    def is_lower_bound(self) -> bool:
        """The token is not among those listed: its gap may be larger."""
        return self.evidence.numbers is not None and self.evidence.numbers.gap_is_lower_bound

    def logprobs(self, source: str) -> list[tuple[int, float]]:
        """The best tokens at its place in nats, best first, of "reference", "baseline" or "candidate"."""
        return list((self.evidence.logprobs or {}).get(source) or ())

    def reference(self) -> list[tuple[int, float, float | None]]:
        """(token, logprob, gap) of the reference's best tokens at its place, best first.

        Where a penalty of the request has moved the gap of the token chosen, those of the others are not known.
        """
        pairs, moved = self.logprobs("reference"), self.gap_is_moved
        return [
            (
                token,
                value,
                self.gap if token == self.token and self.gap is not None else None if moved else pairs[0][1] - value,
            )
            for token, value in pairs
        ]

    @property
    def gap_is_moved(self) -> bool:
        """A penalty or bias of the request has moved the gap of the token chosen away from what the list shows."""
        pairs = self.logprobs("reference")
        below = {token: pairs[0][1] - value for token, value in pairs}
        return self.gap is not None and self.token in below and abs(below[self.token] - self.gap) > SAME_GAP


def fault_of(one: FindingView) -> Fault:
    """What a step broke stands by itself: what it did to the tokens is another thing to show."""
    alone = one.of_run or one.kind == Kind.VIOLATION or not one.is_corrupt
    return Fault(None if alone else (one.arm, *one.key), Kind(one.kind), one.position)


def begins(findings: Sequence[FindingView]) -> list[FindingView]:
    """Those with which a completion's faults begin, and those that stand by themselves, in their order."""
    places = followed([fault_of(one) for one in findings])
    return [one for one, after in zip(findings, places, strict=True) if after != FOLLOWS]


def worst(findings: Sequence[FindingView]) -> FindingView | None:
    """The heaviest corrupt finding with streams to show that a completion's faults begin with, else the widest
    near-tie."""

    def order(finding: FindingView) -> tuple[bool, bool, float]:
        shown = finding.candidate is not None and finding.position is not None
        return finding.is_corrupt, shown, finding.weight

    return max(begins(findings), key=order, default=None)
