"""One fault as the detectors see it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from parity.messages import Message
from parity.records import Evidence, Kind
from parity.records.evidence import TokensEvidence


class Event(msgspec.Struct, frozen=True):
    """Tokens [position, position + length) of the candidate, and what is wrong with them."""

    kind: Kind
    position: int
    length: int
    evidence: Evidence
    earliest: int = 0
    """The fault cannot have begun before this position: up to there the streams were equal."""
    past_limit: bool = False
    """More tokens than were asked for, whatever they are."""
    by_gap: bool = False
    """That its first token lies below the best is all that speaks for it."""
    by_rule: bool = False
    """It breaks a rule of its request, whatever the gaps of its tokens are."""

    @property
    def end(self) -> int:
        return self.position + self.length

    @property
    def is_ambiguous(self) -> bool:
        """The tokens leave something open."""
        return self.evidence.ambiguous is not None

    @property
    def is_corroborated(self) -> bool:
        """The completion's length says the same."""
        return self.evidence.corroborated_by is not None

    @property
    def agrees_after(self) -> int:
        """Tokens after it that both streams have in common."""
        return (self.evidence.agree_again_for or 0) if isinstance(self.evidence, TokensEvidence) else 0

    def places(self, length: int) -> range:
        """Positions of the tokens concerned, in a completion of `length` tokens; the first one at least."""
        return range(self.position, min(max(self.end, self.position + 1), length))

    def but(self, **evidence: Any) -> Event:
        """The same event with other evidence."""
        return replace(self, evidence=replace(self.evidence, **evidence))


def tokens_event(kind: Kind, position: int, length: int, why: Message, **evidence: Any) -> Event:
    """Tokens that are not the baseline's."""
    return Event(kind, position, length, TokensEvidence(why=why, **evidence))
