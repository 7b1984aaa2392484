"""How heavy a finding's evidence is: one number, by which every list of findings is ordered, the heaviest first.

It adds up, in nats or what is worth about as much, what a person would look at: tokens with a donor, how far the
reference puts the worst token below its best, how many tokens are concerned, how little chance explains. It orders and
judges nothing. Findings of equal weight stay by request and position.
"""

from __future__ import annotations

import math
from typing import Final

from parity.records.evidence import CopyOfSampleEvidence, Evidence, InvalidTokenEvidence, LeakEvidence, TokensEvidence
from parity.records.kinds import Family, Kind, Severity

CORRUPT: Final = 1000.0
"""What every corrupt finding weighs more than any benign one."""

MOST: Final = 64
"""Tokens that count: a hundred prove no more."""

DONATED: Final = 4.0
"""Nats of a token that another request has in the same place of the same span: one of some fifty common tokens."""

COPIED: Final = 1.0
"""Of a token that the completion says again: texts do repeat themselves."""

DAMAGED: Final = 0.5
"""Of each token concerned, whatever it is."""

WIDEST: Final = 30.0
"""Nats of a gap that count: it is chance no more."""

LEAST_CHANCE: Final = 1e-40

PROVEN: Final = 100.0
"""A rule of the request that was broken, an id that cannot be: no reference is needed."""

NAMED: Final = {Family.ENGINE: PROVEN, Family.RULES: PROVEN, Family.SET: 60.0, Family.INPUT: 60.0, Family.OUTPUT: 20.0}
"""What a finding of a family weighs by what it is."""

OPEN: Final = -5.0
"""What the tokens leave open makes it lighter."""


def weight_of(kind: Kind, severity: Severity | str, length: int | None, evidence: Evidence) -> float:
    """The weight of a finding: 0 and more, above CORRUPT for those that are corrupt."""
    gap = _gap(evidence)
    if severity != Severity.CORRUPT:
        return round(gap, 3)
    found = gap + DAMAGED * min(_damage(length, evidence), MOST) + _donor(length, evidence) + _chance(evidence)
    found += PROVEN if isinstance(evidence, InvalidTokenEvidence) else NAMED.get(kind.row.family, 0.0)
    found += OPEN if evidence.ambiguous is not None else 0.0
    return round(CORRUPT + max(0.0, found), 3)


def _gap(evidence: Evidence) -> float:
    known = 0.0
    for gap in (evidence.gap, evidence.largest_gap):
        if gap is not None and gap > known:  # NaN is not
            known = gap
    return min(known, WIDEST)


def _damage(length: int | None, evidence: Evidence) -> int:
    counted = evidence.unsupported_tokens if isinstance(evidence, TokensEvidence) else None
    return max(counted or 0, len(evidence.unsupported_positions or ()), length or 0)


def _donor(length: int | None, evidence: Evidence) -> float:
    if isinstance(evidence, LeakEvidence):
        donated = min(max(evidence.donor_end - evidence.donor_start, 0), MOST)
        return DONATED * donated / max(1, evidence.requests_with_this_span)
    if isinstance(evidence, CopyOfSampleEvidence):
        return PROVEN
    if isinstance(evidence, TokensEvidence) and evidence.source_start is not None:
        return COPIED * min(length or 0, MOST)
    return 0.0


def _chance(evidence: Evidence) -> float:
    p_value = getattr(evidence, "p_value", None)
    return -math.log(max(p_value, LEAST_CHANCE)) if isinstance(p_value, float) and 0 <= p_value <= 1 else 0.0
