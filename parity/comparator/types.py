"""What goes into a comparison and what comes out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeVar, runtime_checkable

from parity.comparator.stats import Stats
from parity.messages import Message
from parity.records import DEFAULT_TOLERANCE, RUN, Finding, Json, Key, Kind, Severity, Verdict
from parity.records.evidence import RunEvidence
from parity.records.gaps import KeptGaps
from parity.records.many_findings import corrupt_of, heads
from parity.records.next_steps import NextStep, Step

CompletionClass = Literal["identical", "near_tie", "corrupt", "unjudged", "missing", "sampled"]


DEFAULT_ALPHA: Final = 0.001
"""Family-wise error rate of the statistical tests of a run."""

PINNED: Final = "conclude.pinned"
"""Id of the reason that says what a PASS of pinned arms says nothing about: the same for all arms of a run."""


P = TypeVar("P")
R = TypeVar("R")


class Spread(Protocol):
    """Who answers a question about each part of something."""

    def __call__(self, parts: Sequence[P], work: Callable[[P], R], about: Message, /) -> Iterator[R]:
        """`work` of each part, in their order. It may run in a copy of this process: only its answers count. about:
        what is asked, a noun, for those who wait."""


def alone(parts: Sequence[P], work: Callable[[P], R], about: Message, /) -> Iterator[R]:
    """In this process, one after another."""
    return map(work, parts)


@runtime_checkable
class Tokenizer(Protocol):
    """A whole tokenizer, which can be given as `CompareOptions.detokenize`."""

    def __call__(self, token_ids: Sequence[int], /) -> str:
        """The text of token ids, special tokens left out."""

    def with_special(self, token_ids: Sequence[int], /) -> str:
        """Their text, with special tokens."""

    def encode(self, text: str, /) -> Sequence[int]:
        """The token ids of a text, special tokens not added."""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How to compare.

    tolerance: nats, or "auto" to calibrate from the baseline's own scored completions.
    detokenize: gives the text of token ids, special tokens left out; None skips the text check. A `Tokenizer` is asked
    for special tokens and for the token ids of bad words as well.
    alpha: family-wise error rate of the statistical tests of a run.
    spread: who looks at the parts of a large run.
    """

    tolerance: float | Literal["auto"] = DEFAULT_TOLERANCE
    detokenize: Callable[[Sequence[int]], str] | None = None
    alpha: float = DEFAULT_ALPHA
    spread: Spread = alone


@dataclass(frozen=True, slots=True)
class Remarks:
    """What a check says besides findings."""

    reasons: tuple[Message, ...] = ()
    """Each keeps the run from saying PASS."""
    notes: tuple[Message, ...] = ()
    """What a reader of the verdict must know."""
    limits: tuple[Message, ...] = ()
    """What the verdict does not say, whichever it is: given with its reasons."""
    next_steps: tuple[NextStep, ...] = ()
    """What would settle the reasons; for each the best one first."""

    def __add__(self, other: Remarks) -> Remarks:
        return Remarks(
            self.reasons + other.reasons,
            self.notes + other.notes,
            self.limits + other.limits,
            self.next_steps + other.next_steps,
        )


def reason(said: Message, *steps: Step | NextStep) -> Remarks:
    """A reason that keeps the run from saying PASS, and what would settle it, the best one first."""
    return Remarks(
        reasons=(said,),
        next_steps=tuple(one if isinstance(one, NextStep) else NextStep(one, said.id) for one in steps),
    )


def note(said: Message) -> Remarks:
    """What a reader must know, and what keeps no run from saying PASS."""
    return Remarks(notes=(said,))


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing one candidate arm with the baseline.

    What others show of a token, they ask for here: its gap in `candidate_gaps[key].at(position)` (or `baseline_gaps`),
    the first divergent token in `first_divergence.get(key)` (none where the streams are equal). The decode step of a
    token is `parity.records.steps.steps_of`.
    """

    baseline: str
    candidate: str
    verdict: Verdict
    reasons: tuple[Message, ...]
    findings: Sequence[Finding]
    classes: Mapping[Key, CompletionClass]
    stats: Stats
    notes: tuple[Message, ...] = ()
    baseline_gaps: Mapping[Key, KeptGaps] = field(default_factory=dict)
    """Of the baseline's completions that are scored."""
    candidate_gaps: Mapping[Key, KeptGaps] = field(default_factory=dict)
    """Of the candidate's; a completion equal to the baseline's has the baseline's."""
    first_divergence: Mapping[Key, int] = field(default_factory=dict)
    """Position of the first output token that differs, or the shorter length where one stream begins the other, for
    each completion whose stream differs from the baseline's."""
    next_steps: tuple[NextStep, ...] = ()
    """What would settle the reasons of an INCONCLUSIVE verdict, for each the best one first; what would say more of the
    findings of another one."""
    asked: tuple[Sequence[Key], Sequence[Key]] = ((), ())
    """The keys of the captures, the baseline's and the candidate's, as they stand there: the order of findings that
    weigh as much."""

    @property
    def counts(self) -> dict[str, int]:
        """Findings by kind, most frequent first."""
        return dict(Counter(str(one.kind) for one in heads(self.findings)).most_common())

    @property
    def corrupt(self) -> Sequence[Finding]:
        return corrupt_of(self.findings)

    def to_json(self) -> dict[str, Json]:
        """Schema `parity.comparison/1`: reasons and notes as English text, and in `messages` by id and parameters."""
        return {
            "schema": "parity.comparison/1",
            "verdict": str(self.verdict),
            "reasons": [str(reason) for reason in self.reasons],
            "baseline": self.baseline,
            "candidate": self.candidate,
            "counts": self.counts,
            "findings": [finding.to_json() for finding in self.findings],
            "stats": self.stats.to_json(),
            "notes": [str(note) for note in self.notes],
            "next_steps": [one.to_json() for one in self.next_steps],
            "messages": {
                "reasons": [reason.to_json() for reason in self.reasons],
                "notes": [note.to_json() for note in self.notes],
            },
        }


def run_finding(
    arm: str, baseline: str, kind: Kind, evidence: RunEvidence, severity: Severity = Severity.CORRUPT
) -> Finding:
    """A finding about the run as a whole, not about one completion."""
    return Finding(
        arm=arm,
        baseline=baseline,
        request=RUN,
        round=0,
        sample=0,
        kind=kind,
        severity=severity,
        position=None,
        length=None,
        evidence=evidence,
    )
