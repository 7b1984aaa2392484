"""What the evidence of a finding says beyond its kind, as names and values: two findings with the same are alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parity.records.evidence import (
    Evidence,
    LeakEvidence,
    LocatedEvidence,
    RuleEvidence,
    TokensEvidence,
    ViolationEvidence,
)
from parity.records.kinds import Kind, Stretch

Sign = tuple[str, str]
"""A name and its value."""

STEADY: Final = ("donor", "invariant", "module", "rule", "period")
"""Those that stay where prompts or places are others: a bug has them in later runs too."""


def signs(kind: str, position: int | None, length: int | None, facts: Evidence) -> Iterator[Sign]:
    """Of a finding with this evidence."""
    if isinstance(facts, LeakEvidence):
        yield "donor", facts.donor_part
        if position is not None and isinstance(facts.donor_start, int):
            yield "offset", f"{facts.donor_start - position:+}"
    elif isinstance(facts, ViolationEvidence):
        yield "invariant", facts.invariant
    elif isinstance(facts, LocatedEvidence):
        yield "module", facts.module
    elif isinstance(facts, RuleEvidence):
        yield "rule", facts.rule
    elif Kind(kind).row.stretch is Stretch.LOST or kind == Kind.DUPLICATION:
        yield "length", str(length)
    elif isinstance(facts, TokensEvidence) and facts.period:
        yield "period", str(facts.period)
