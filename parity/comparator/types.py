"""What goes into a comparison and what comes out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from parity.records import DEFAULT_TOLERANCE, Finding, Json, Key, Severity, Verdict
from parity.records.gaps import KeptGaps

CompletionClass = Literal["identical", "near_tie", "corrupt", "unjudged", "missing", "sampled"]


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How to compare.

    tolerance: nats, or "auto" to calibrate from the baseline's own scored completions.
    detokenize: gives the text of token ids, special tokens left out; None skips the text check.
    alpha: family-wise error rate of the statistical tests of a run.
    """

    tolerance: float | Literal["auto"] = DEFAULT_TOLERANCE
    detokenize: Callable[[Sequence[int]], str] | None = None
    alpha: float = 0.001


@dataclass
class Comparison:
    """The outcome of comparing one candidate arm with the baseline.

    What others show of a token, they ask for here: its gap in `candidate_gaps[key].at(position)` (or `baseline_gaps`),
    the first divergent token in `first_divergence.get(key)` (none where the streams are equal). The decode step of a
    token is `parity.records.steps.steps_of`.
    """

    baseline: str
    candidate: str
    verdict: Verdict
    reasons: list[str]
    findings: list[Finding]
    classes: Mapping[Key, CompletionClass]
    stats: dict[str, Json]
    notes: list[str] = field(default_factory=list)
    baseline_gaps: Mapping[Key, KeptGaps] = field(default_factory=dict)
    """Of the baseline's completions that are scored."""
    candidate_gaps: Mapping[Key, KeptGaps] = field(default_factory=dict)
    """Of the candidate's; a completion equal to the baseline's has the baseline's."""
    first_divergence: Mapping[Key, int] = field(default_factory=dict)
    """Position of the first output token that differs, or the shorter length where one stream begins the other, for
    each completion whose stream differs from the baseline's."""

    @property
    def counts(self) -> dict[str, int]:
        """Findings by kind, most frequent first."""
        return dict(Counter(str(finding.kind) for finding in self.findings).most_common())

    @property
    def corrupt(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.CORRUPT]

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": "parity.comparison/1",
            "verdict": str(self.verdict),
            "reasons": self.reasons,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "counts": self.counts,
            "findings": [finding.to_json() for finding in self.findings],
            "stats": self.stats,
            "notes": self.notes,
        }
