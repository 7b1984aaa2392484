"""What a format is: how it writes a case, and for whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

if TYPE_CHECKING:
    from parity.messages import Message
    from parity.report.policy import Judgement
    from parity.report.texts import Texts
    from parity.view import FindingView, RunView

REPOSITORIES: Final = {"vllm": "vllm-project/vllm", "vllm-ascend": "vllm-project/vllm-ascend"}
"""The projects that reports are for, and where each takes them."""


class Wanted(Struct, frozen=True):
    """How a report is to be written.

    target: one of REPOSITORIES; None for every project concerned.
    searched: a person has searched for known reports.
    see_also: project to the address of the report of the same fault filed there.
    judgement: what a policy says of the run.
    """

    texts: Texts
    target: str | None = None
    searched: bool = False
    see_also: Mapping[str, str] = field(default_factory=dict)
    judgement: Judgement | None = None

    @property
    def allowed(self) -> frozenset[str]:
        """Fingerprints of findings that the policy allows."""
        return frozenset(self.judgement.allowed) if self.judgement is not None else frozenset()

    def passed_over(self, finding: FindingView) -> str | None:
        """Why a finding is no failure: it is allowed, or the policy passes with it. None where it is one."""
        mark = str(finding.fingerprint)
        if mark in self.reasons:
            return self.reasons[mark]
        return self.texts("policy.within") if self.verdict == "PASS" else None

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why each of these is allowed, by its fingerprint."""
        found = {} if self.judgement is None else self.judgement.allowed
        return {mark: self.texts.said(reason) for mark, reason in found.items()}

    @property
    def verdict(self) -> str | None:
        """What the policy makes of the run; None without one."""
        return None if self.judgement is None else str(self.judgement.verdict)

    @property
    def broken(self) -> tuple[str, ...]:
        """Rules of the policy that the run broke, in words of the report's language."""
        if self.judgement is None:
            return ()
        return tuple(self.texts.said(line) for line in (*self.judgement.expired, *self.judgement.broken))


class Document(Struct, frozen=True):
    """A written report. `advice`: what to do with it, for the one who asked for it."""

    text: str
    project: str | None = None
    advice: tuple[Message, ...] = ()


class Format(Struct, frozen=True):
    """A format. `for_readers`: in the language in use; others are for programs, and the same in every language.

    `by_project`: one document for each project concerned.
    """

    write: Callable[[RunView, Wanted], Sequence[Document]]
    for_readers: bool = False
    by_project: bool = False
