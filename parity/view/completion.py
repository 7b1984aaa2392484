"""One completion of a candidate arm beside the baseline's: streams, findings, gaps, steps, donor. From the store, with
what only the capture files hold added when they have been read. Gaps are in nats, positions count output tokens from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from parity.records import DEFAULT_TOLERANCE, Key, Kind, TokenIds
from parity.records.evidence import LeakEvidence, TokensEvidence
from parity.records.kinds import Stretch
from parity.records.steps import TokenSteps, steps_of
from parity.store import ArmRow, CompletionRow, FindingRow, RequestRow, RunRow
from parity.store.browse import Browser
from parity.view.alignment import Alignment, align, stretch_of
from parity.view.extras import Extras

LONG = 8192
"""Tokens of both sides from which aligning them takes long enough to be waited for."""


@dataclass(frozen=True)
class CompletionView:
    """What is known of a completion. `arm`, `key`: which one; `finding`: the one looked at, None for the whole."""

    run: RunRow
    arm: str
    key: Key
    finding: FindingRow | None
    baseline: CompletionRow | None
    candidate: CompletionRow | None
    request: RequestRow | None
    arms: Mapping[str, ArmRow]
    others: Sequence[FindingRow] = ()
    """All findings of the completion."""
    gaps: npt.NDArray[np.float64] | None = None
    """Nats, by position of the candidate; None where there are no scores."""
    extras: Extras = field(default_factory=Extras)
    donor: CompletionRow | None = None
    donor_request: RequestRow | None = None
    alignment: Alignment = field(default_factory=Alignment.empty)
    """Which token stands opposite which; empty before `aligned`."""

    @staticmethod
    def read(store: Browser, run: RunRow, arm: str, key: Key, finding: FindingRow | None) -> CompletionView:
        """From the store, not yet aligned. Raises ParityError."""
        kept = store.token_gaps(run.id, arm, key)
        donor, donor_request = _donor(store, run, arm, key, finding)
        return CompletionView(
            run=run,
            arm=arm,
            key=key,
            finding=finding,
            baseline=store.completion(run.id, run.baseline, key),
            candidate=store.completion(run.id, arm, key),
            request=store.request(run.id, key.request),
            arms={row.name: row for row in store.arms(run.id)},
            others=tuple(store.findings_of_completion(run.id, arm, key)),
            gaps=None if kept is None else _nats(kept.gap),
            donor=donor,
            donor_request=donor_request,
        )

    def aligned(self) -> CompletionView:
        """With the two sides laid beside each other. Takes most of a second where long streams differ everywhere."""
        found = (stretch_of(row) for row in self.others)
        return replace(self, alignment=align(self.left, self.right, [one for one in found if one is not None]))

    def having(self, extras: Extras) -> CompletionView:
        """With what the capture files said."""
        return replace(self, extras=extras, gaps=extras.gaps if self.gaps is None else self.gaps)

    def at(self, store: Browser, finding: FindingRow | None) -> CompletionView:
        """Looked at from another finding, or from what is stored of this one by now. Raises ParityError."""
        if finding is not None and self.finding is not None and finding.id == self.finding.id:
            return replace(self, finding=finding)
        donor, request = _donor(store, self.run, self.arm, self.key, finding)
        return replace(self, finding=finding, donor=donor, donor_request=request)

    # ------------------------------------------------------------------ tokens

    @property
    def left(self) -> TokenIds:
        """The baseline's tokens, none where it has no such completion."""
        return self.baseline.token_ids if self.baseline else np.empty(0, dtype=np.int64)

    @property
    def right(self) -> TokenIds:
        return self.candidate.token_ids if self.candidate else np.empty(0, dtype=np.int64)

    @property
    def long(self) -> bool:
        return len(self.left) + len(self.right) > LONG

    @property
    def steps(self) -> TokenSteps | None:
        """Which decode step made each token of the candidate; None without a trace."""
        spec = self.extras.spec
        return None if spec is None else steps_of(spec.accepted, len(self.right))

    @property
    def tolerance(self) -> float:
        """In nats: what the finding was judged by, else the arm, else what the plan says, else the default."""
        arm = self.arms.get(self.arm)
        judged = self.finding.facts.tolerance if self.finding else None
        for value in (judged, arm.stats.get("tolerance") if arm else None, self.run.plan.tolerance):
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        return DEFAULT_TOLERANCE

    @property
    def first_difference(self) -> int | None:
        """The first divergent token, as the comparison found it; None where the streams are equal."""
        return self.candidate.first_divergence if self.candidate else None

    # ------------------------------------------------------------------ rows of the alignment

    def row_of_difference(self) -> int:
        """The row of the first divergent token, which the shorter side may lack; 0 where the streams are equal."""
        at = self.first_difference
        reached = np.flatnonzero(np.maximum(self.alignment.left, self.alignment.right) >= (0 if at is None else at))
        return int(reached[0]) if len(reached) else 0

    def row_of_finding(self) -> int:
        """The row at which the finding begins; without one, where the sides first differ."""
        finding, alignment = self.finding, self.alignment
        if finding is None or finding.position is None:
            return self.row_of_difference()
        row = alignment.row_of(finding.position)
        # What the baseline has alone stands just before the candidate's next token.
        while Kind(finding.kind).row.stretch is Stretch.LOST and row > 0 and alignment.right[row - 1] < 0:
            row -= 1
        return row

    # ------------------------------------------------------------------ what the findings say

    @property
    def leak(self) -> LeakEvidence | None:
        """What says whose tokens the finding's are, where they are another request's."""
        facts = self.finding.facts if self.finding else None
        return facts if isinstance(facts, LeakEvidence) else None

    @property
    def donor_tokens(self) -> TokenIds | None:
        """The stream that the tokens of a leak come from."""
        if self.leak is not None and "prompt" in self.leak.donor_part:
            return self.donor_request.prompt_token_ids if self.donor_request else None
        return self.donor.token_ids if self.donor else None

    @cached_property
    def covered(self) -> frozenset[int]:
        """Candidate positions that a finding covers; what was lost has none, and is covered by `lost`."""
        covered: set[int] = set()
        for row in self.others:
            if row.position is not None and not _is_lost(row):  # a database of somebody else may name any number
                end = row.position + max(1, row.length or 1)
                covered.update(range(max(0, row.position), min(len(self.right) + 1, end)))
        return frozenset(covered)

    @cached_property
    def lost(self) -> frozenset[int]:
        """Baseline positions that a finding says were lost: the tokens that stand before its place."""
        lost: set[int] = set()
        for row in self.others:
            if row.position is not None and _is_lost(row):
                last = self.alignment.row_of(row.position)
                if last < len(self.alignment) and self.alignment.right[last] < row.position:
                    last += 1  # the candidate ends there
                first = max(0, last - (row.length or 0))
                rows = self.alignment.left[first:last][self.alignment.right[first:last] < 0]
                lost.update(rows.tolist())
        return frozenset(lost)

    @property
    def copies(self) -> tuple[int, ...]:
        """Where each copy of a repetition's pattern begins, and where the last one ends."""
        finding = self.finding
        facts = finding.facts if finding else None
        if finding is None or finding.position is None or not isinstance(facts, TokensEvidence):
            return ()
        period, start = whole(facts.period), whole(facts.source_start, -1)
        if period < 1:
            return ()
        first = start if start >= 0 else max(0, finding.position)
        end = min(len(self.right), finding.position + (finding.length or 0))
        return (*range(first, end, period), end) if end > first else ()


def _is_lost(row: FindingRow) -> bool:
    return Kind(row.kind).row.stretch is Stretch.LOST


def _donor(
    store: Browser, run: RunRow, arm: str, key: Key, finding: FindingRow | None
) -> tuple[CompletionRow | None, RequestRow | None]:
    """Whose tokens the finding's are: that completion and its request, where it is known."""
    leak = finding.facts if finding else None
    if not isinstance(leak, LeakEvidence):
        return None, None
    giver = run.baseline if "baseline" in leak.donor_part else arm
    place = (
        key.round if leak.donor_round is None else leak.donor_round,
        key.sample if leak.donor_sample is None else leak.donor_sample,
    )
    donor = store.completion(run.id, giver, Key(leak.donor_request, *place))
    return donor, store.request(run.id, leak.donor_request)


def whole(value: object, otherwise: int = 0) -> int:
    """A whole number of an ordinary size, as evidence has it; `otherwise` where it is something else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else otherwise


def _nats(stored: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The numbers that were stored to 4 decimals, so that they are rounded as those in evidence."""
    return stored.astype(np.float64).round(4)
