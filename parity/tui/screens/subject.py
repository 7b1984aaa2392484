"""Everything at hand about one completion, read from the store, and what follows from it for the eye."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from parity.records import DEFAULT_TOLERANCE, Key, Kind, TokenIds
from parity.records.evidence import LeakEvidence, TokensEvidence
from parity.records.kinds import Stretch
from parity.records.steps import TokenSteps, steps_of
from parity.store import ArmRow, CompletionRow, FindingRow, RequestRow, RunRow
from parity.store.browse import Browser
from parity.tui.alignment import Alignment, align, stretch_of
from parity.tui.captures import Extras
from parity.tui.format import plain, whole
from parity.tui.tokens import Decoder, Piece
from parity.tui.widgets.sides import Content

DONOR_CONTEXT = 12
"""Tokens of the donor shown before and after what leaked."""

LONG = 8192
"""Tokens from which the sides are aligned in a thread, so that the screen does not wait."""

_decoders: dict[str, Decoder] = {}


def decoder_of(run: RunRow) -> Decoder:
    """The decoder of the run's model; one per checkpoint, since loading a tokenizer takes a while."""
    name = run.plan.model.path
    if name not in _decoders:
        _decoders[name] = Decoder(Path(name) if name else None)
    return _decoders[name]


@dataclass
class Subject:
    """One completion of a candidate arm beside the baseline's; `align` before it is drawn."""

    run: RunRow
    decoder: Decoder
    finding: FindingRow | None
    baseline: CompletionRow | None
    candidate: CompletionRow | None
    request: RequestRow | None
    arms: Mapping[str, ArmRow]
    arm: str
    key: Key
    others: Sequence[FindingRow] = ()
    """All findings of the completion."""
    extras: Extras = field(default_factory=Extras)
    donor: CompletionRow | None = None
    donor_request: RequestRow | None = None
    alignment: Alignment = field(init=False)
    gaps: npt.NDArray[np.float64] | None = None
    """Nats, by position of the candidate; None where there are no scores."""
    steps: TokenSteps | None = field(init=False, default=None)
    """Which decode step made each token of the candidate; None without a trace."""

    def align(self) -> None:
        """Lay the two sides beside each other. Takes most of a second where long streams differ everywhere."""
        found = (stretch_of(row) for row in self.others)
        self.alignment = align(self.left, self.right, [one for one in found if one is not None])

    @property
    def long(self) -> bool:
        return len(self.left) + len(self.right) > LONG

    def learn(self, extras: Extras) -> None:
        """What the capture files said, which are read later."""
        self.extras = extras
        if self.gaps is None:
            self.gaps = extras.gaps
        self.steps = None if extras.spec is None else steps_of(extras.spec.accepted, len(self.right))

    @cached_property
    def pieces(self) -> tuple[list[Piece], list[Piece]]:
        """What the tokens of both sides look like."""
        return self.decoder.pieces(self.left), self.decoder.pieces(self.right)

    @staticmethod
    def read(store: Browser, run: RunRow, arm: str, key: Key, finding: FindingRow | None) -> Subject:
        subject = Subject(
            run=run,
            decoder=decoder_of(run),
            finding=finding,
            baseline=store.completion(run.id, run.baseline, key),
            candidate=store.completion(run.id, arm, key),
            request=store.request(run.id, key.request),
            arms={row.name: row for row in store.arms(run.id)},
            arm=arm,
            key=key,
            others=store.findings_of_completion(run.id, arm, key),
        )
        kept = store.token_gaps(run.id, arm, key)
        subject.gaps = None if kept is None else _nats(kept.gap)
        leak = finding.facts if finding else None
        if isinstance(leak, LeakEvidence):
            giver = run.baseline if "baseline" in leak.donor_part else arm
            subject.donor = store.completion(run.id, giver, Key(leak.donor_request, key.round, key.sample))
            subject.donor_request = store.request(run.id, leak.donor_request)
        return subject

    # ------------------------------------------------------------------ tokens

    @property
    def left(self) -> TokenIds:
        """The baseline's tokens, none where it has no such completion."""
        return self.baseline.token_ids if self.baseline else np.empty(0, dtype=np.int64)

    @property
    def right(self) -> TokenIds:
        return self.candidate.token_ids if self.candidate else np.empty(0, dtype=np.int64)

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

    def row_of_difference(self) -> int:
        """The row of the first divergent token, which the shorter side may lack; 0 where the streams are equal."""
        at = self.first_difference
        reached = np.flatnonzero(np.maximum(self.alignment.left, self.alignment.right) >= (0 if at is None else at))
        return int(reached[0]) if len(reached) else 0

    def row_of_finding(self) -> int:
        """The row of the alignment at which the finding begins; without one, where the sides first differ."""
        finding, alignment = self.finding, self.alignment
        if finding is None or finding.position is None:
            return self.row_of_difference()
        row = alignment.row_of(finding.position)
        # What the baseline has alone stands just before the candidate's next token.
        while Kind(finding.kind).row.stretch is Stretch.LOST and row > 0 and alignment.right[row - 1] < 0:
            row -= 1
        return row

    # ------------------------------------------------------------------ what is drawn

    def content(self) -> Content:
        names = [plain(self.run.baseline), plain(self.arm)]
        donor = self.donor_pieces()
        title = f"donor {plain(self.leak.donor_request)}" if donor and self.leak else ""
        return Content(
            self.alignment,
            *self.pieces,
            self.gaps,
            self.tolerance,
            _covered(self.others),
            _copies(self.finding, len(self.right)),
            trace_marks(self.steps),
            donor,
            (names[0], names[1], title),
        )

    @property
    def leak(self) -> LeakEvidence | None:
        """What says whose tokens the finding's are, where they are another request's."""
        facts = self.finding.facts if self.finding else None
        return facts if isinstance(facts, LeakEvidence) else None

    def donor_tokens(self) -> TokenIds | None:
        """The stream that the tokens of a leak come from."""
        if self.leak is not None and "prompt" in self.leak.donor_part:
            return self.donor_request.prompt_token_ids if self.donor_request else None
        return self.donor.token_ids if self.donor else None

    def donor_pieces(self) -> dict[int, tuple[Piece, bool]]:
        """By position of the candidate: the donor's token opposite, and whether it is the same."""
        tokens, finding, leak = self.donor_tokens(), self.finding, self.leak
        if tokens is None or finding is None or leak is None or finding.position is None:
            return {}
        shift = whole(leak.donor_start) - finding.position
        first = max(0, -shift, finding.position - DONOR_CONTEXT)
        last = min(len(self.right), len(tokens) - shift, finding.position + (finding.length or 1) + DONOR_CONTEXT)
        if last <= first:
            return {}
        pieces = self.decoder.pieces(tokens[first + shift : last + shift])
        return {
            j: (piece, bool(tokens[j + shift] == self.right[j]))
            for j, piece in zip(range(first, last), pieces, strict=True)
        }


def _nats(stored: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The numbers that were stored to 4 decimals, so that they are rounded as those in evidence."""
    return stored.astype(np.float64).round(4)


def trace_marks(steps: TokenSteps | None) -> str:
    """One character per output token: `1`, `2` … for an accepted draft, `·` for a token that was sampled."""
    if steps is None:
        return ""
    made = zip(steps.place.tolist(), steps.is_draft.tolist(), strict=True)
    return "".join(str(min(9, place + 1)) if is_draft else "·" for place, is_draft in made)


def _covered(findings: Sequence[FindingRow]) -> frozenset[int]:
    covered: set[int] = set()
    for row in findings:
        if row.position is not None:
            covered.update(range(row.position, row.position + max(1, row.length or 1)))
    return frozenset(covered)


def _copies(finding: FindingRow | None, length: int) -> tuple[int, ...]:
    """Where each copy of a repetition's pattern begins, and where the last one ends."""
    facts = finding.facts if finding else None
    if finding is None or finding.position is None or not isinstance(facts, TokensEvidence):
        return ()
    period, start = whole(facts.period), whole(facts.source_start, -1)
    if period < 1:
        return ()
    first = start if start >= 0 else finding.position
    end = min(length, finding.position + (finding.length or 0))
    return (*range(first, end, period), end) if end > first else ()
