"""What the flight recorder saw of both arms, into the comparison of their tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from parity.capture.steps import RowSteps, StepRequest, StepsStopped, StepsSummary, read_steps, steps_path
from parity.comparator import Comparison
from parity.errors import reading, writing
from parity.explain.drafted import Drafted, drafted
from parity.explain.invariants import INVARIANTS, invariants_of
from parity.explain.violations import Checked, Violation, check
from parity.messages import Message, joined, message, words_heard
from parity.pipeline.added import with_findings
from parity.pipeline.directory import write_whole
from parity.pipeline.server_steps import named_by_server
from parity.records import Capture, Completion, Finding, Key, Kind, Severity, Verdict
from parity.records.evidence import ViolationEvidence
from parity.records.objects import object_of
from parity.records.recording import RING

PLACES: Final = 32
"""Row-steps that the evidence of a finding names; it counts them all."""

FEW: Final = 3
"""As many rules are said as sentences, more of them by their names (docs/steps.md has both)."""

MISSED: Final = 3.0
"""With no violation in N row-steps, a fault in more than 3/N of them is excluded at 95 % (Hanley and Lippman-Hand 1983,
JAMA 249:1743)."""


@dataclass(frozen=True)
class Inside:
    """What the invariants say of one arm."""

    starts: tuple[Checked, ...]
    """Of each start of an engine of which all steps are there."""
    stretches: tuple[Checked, ...] = ()
    """Of what a ring has kept; what it counted says `summaries`."""
    summaries: tuple[StepsSummary, ...] = ()
    unrecorded: Message | None = None
    """Why the engine could not be recorded, where it was asked for."""
    stopped: tuple[StepsStopped, ...] = ()
    """Where the recorder gave up, and why."""
    drafted: tuple[Drafted, ...] = ()
    """What was drafted for each completion."""
    completions: Collection[Key] = ()
    """Of the capture, where there are steps: these may have more, of a server's other clients or beside a part of a
    capture."""

    @property
    def row_steps(self) -> int:
        return sum(one.row_steps for one in self.starts) + sum(one.row_steps for one in self.summaries)

    @property
    def violations(self) -> list[Violation]:
        """Those whose steps are there."""
        return [one for start in (*self.starts, *self.stretches) for one in start.violations]

    @property
    def of_ours(self) -> list[Violation]:
        """Those of requests that parity made."""
        return [one for one in self.violations if one.key is not None]

    @property
    def broken(self) -> int:
        """Row-steps that broke an invariant."""
        whole = sum(sum(start.broken.values()) for start in self.starts)
        return whole + sum(one.broken for one in self.summaries)

    @property
    def broken_of(self) -> Mapping[Key, int]:
        """Row-steps of each completion that broke an invariant, those that are not listed too."""
        found: Counter[Key] = Counter()
        for one in (*self.starts, *self.stretches):
            keys = {violation.request.number: violation.key for violation in one.violations}
            found.update({key: one.broken[number] for number, key in keys.items() if key is not None})
        return found

    @property
    def names(self) -> list[str]:
        """Invariants that were broken."""
        counted = {name for one in self.summaries for name, count in one.violations.items() if count}
        return sorted({one.invariant for one in self.violations} | counted)

    @property
    def why_not(self) -> dict[str, Any]:
        """Columns that were not seen, and why."""
        return {name: why for one in (*self.starts, *self.stretches) for name, why in one.why_not.items()}

    @property
    def asked(self) -> set[str]:
        """Invariants that were asked of every start."""
        found = [set(one.asked) for one in self.starts if one.row_steps]
        found += [set(one.asked) for one in self.summaries if one.row_steps]
        return set.intersection(*found) if found else set()


def look_inside(capture: Capture, steps: Sequence[RowSteps]) -> Inside:
    """Ask the invariants of the steps of a capture."""
    prompts = {one.key: one.prompt_token_ids for one in capture} if steps else {}
    why = object_of(capture.header.extra.get("steps")).get("unrecorded")
    named = [named_by_server(capture, one) for one in steps]
    held_to = invariants_of(capture.header.engine)
    return Inside(
        tuple(check(one, prompts, held_to) for one in named if one.header.kept != RING),
        tuple(check(one, prompts, held_to) for one in named if one.header.kept == RING),
        tuple(one.summary for one in named if one.summary is not None),
        None if why is None else words_heard(why),
        tuple(one.stopped for one in named if one.stopped is not None),
        tuple(drafts for one in named for drafts in drafted(one)),
        frozenset(prompts),
    )


def with_drafts(capture: Capture, inside: Inside) -> Capture:
    """The capture with the drafts of its completions, where the steps handed out the tokens that these have."""
    known = {one.key: one for one in inside.drafted}

    def named(one: Completion) -> Completion:
        found = known.get(one.key)
        if found is None or not np.array_equal(found.handed[: len(one.token_ids)], one.token_ids):
            return one
        return replace(one, spec=found.trace)

    return capture.but({key: named(capture.completions[key]) for key in known if key in capture.completions})


def steps_beside(capture: Path) -> tuple[RowSteps, ...]:
    """The steps in the file beside a capture; none where there is none. Raises CaptureError for a damaged one."""
    path = steps_path(capture)
    return read_steps(path) if path.exists() else ()


def bring_steps(recording: Path, capture: Path) -> None:
    """Put the steps beside a recording beside the capture that was replayed from it, whole, where there are any.

    Raises ParityError where they cannot be read, or the disk does not take them.
    """
    path, beside = steps_path(recording), steps_path(capture)
    if path.is_file():
        with writing(beside):
            write_whole(beside, _pieces(path), private=True)


def _pieces(path: Path) -> Iterator[bytes]:
    with reading(path), path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def with_steps(comparison: Comparison, baseline: Inside, candidate: Inside) -> Comparison:
    """The comparison and what broke inside the engines: a violation needs no scores."""
    findings = [*_findings(comparison, candidate)]
    reasons, notes = list(comparison.reasons), list(comparison.notes)
    arms = ((comparison.baseline, baseline), (comparison.candidate, candidate))
    notes += [
        message(
            "inside.unrecorded", "{arm}: the engine's steps could not be recorded: {why}", arm=arm, why=one.unrecorded
        )
        for arm, one in arms
        if one.unrecorded
    ]
    notes += [_gave_up(arm, one, stop) for arm, one in arms for stop in one.stopped]
    if baseline.broken:
        reasons.insert(0, _baseline_broken(comparison.baseline, baseline))
    broke = bool(candidate.of_ours) or any(one.broken for one in candidate.summaries)
    if broke:
        reasons.insert(0, _broken(candidate))
    verdict = _worse(comparison.verdict, broke, bool(baseline.broken))
    if candidate.row_steps and not candidate.broken:
        (reasons if verdict is Verdict.PASS else notes).append(_clean(candidate))
    notes += _not_asked(candidate)
    notes += [note for arm, one in arms for note in _of_a_ring(arm, one)]
    return with_findings(comparison, findings, verdict, reasons, notes)


def _worse(verdict: Verdict, candidate_broke: bool, baseline_broke: bool) -> Verdict:
    """Steps take nothing back of what tokens, scores or an arbiter say."""
    if candidate_broke:
        return Verdict.DIVERGED
    return Verdict.INCONCLUSIVE if baseline_broke and verdict is Verdict.PASS else verdict


def _gave_up(arm: str, inside: Inside, stop: StepsStopped) -> Message:
    return message(
        "inside.stopped",
        "{arm}: the recorder gave up at step {step} ({why}); {row_steps} row-steps of the arm were kept",
        arm=arm,
        step=stop.step,
        why=stop.why,
        row_steps=inside.row_steps,
    )


def _broken(inside: Inside) -> Message:
    return message(
        "inside.broken",
        "{broken} of {row_steps} row-steps broke the engine's own bookkeeping, where {rules}",
        broken=inside.broken,
        row_steps=inside.row_steps,
        rules=rules_of(inside.names),
    )


def _baseline_broken(arm: str, inside: Inside) -> Message:
    return message(
        "inside.baseline_broken",
        "{broken} of {row_steps} row-steps of the baseline {arm} broke its own bookkeeping, where {rules}",
        broken=inside.broken,
        row_steps=inside.row_steps,
        arm=arm,
        rules=rules_of(inside.names),
    )


def rules_of(names: Sequence[str]) -> Message:
    """Invariants as what they say; a name that is none of ours stays a name."""
    said = {one.name: one.said for one in INVARIANTS}
    return joined([said.get(name, name) for name in names], by="; ")


def _clean(inside: Inside) -> Message:
    return message(
        "inside.clean",
        "none of {row_steps} row-steps broke any of {asked} invariants of the engine's bookkeeping: fewer than {rate} "
        "of them do (95 %)",
        row_steps=inside.row_steps,
        asked=len(inside.asked),
        rate=f"{MISSED / inside.row_steps:.2g}",
    )


def _of_a_ring(arm: str, inside: Inside) -> list[Message]:
    """How much of what was counted can still be looked at."""
    if not inside.summaries:
        return []
    return [
        message(
            "inside.ring",
            "{arm}: a ring kept {kept} of {row_steps} row-steps: what surrounds violations, and the last ones",
            arm=arm,
            kept=sum(one.kept for one in inside.summaries),
            row_steps=sum(one.row_steps for one in inside.summaries),
        ),
        *(
            [
                message(
                    "inside.let_go",
                    "{arm}: counted, but not kept for want of room: {let_go} row-steps that broke an invariant",
                    arm=arm,
                    let_go=sum(one.let_go for one in inside.summaries),
                )
            ]
            if any(one.let_go for one in inside.summaries)
            else []
        ),
    ]


def _not_asked(inside: Inside) -> list[Message]:
    if not inside.row_steps:
        return []
    unasked = [one for one in INVARIANTS if one.name not in inside.asked and not one.optional]
    if not unasked:
        return []
    needed = {need.removesuffix("/*") for one in unasked for need in one.needs}
    columns: dict[str, list[str]] = {}
    said = {name: words_heard(why) for name, why in inside.why_not.items() if name.partition("/")[0] in needed | {"*"}}
    for name, why in said.items():
        columns.setdefault(str(why), []).append(name)
    names = [one.name for one in unasked]
    return [
        message("inside.unasked", "rules that could not be asked of the engine's steps: {rules}", rules=rules_of(names))
        if len(names) <= FEW
        else message(
            "inside.unasked_many",
            "rules that could not be asked of the engine's steps ({count} of {all}): {names}",
            count=len(names),
            all=sum(not one.optional for one in INVARIANTS),
            names=names,
        ),
        *(
            message(
                "inside.unseen", "not seen of the engine's steps: {columns}: {why}", columns=seen, why=said[seen[0]]
            )
            for seen in columns.values()
        ),
    ]


def _findings(comparison: Comparison, inside: Inside) -> list[Finding]:
    """One for each completion with a violation: its first row-step, and how many came after it."""
    by_key: dict[Key, list[Violation]] = {}
    for one in inside.of_ours:
        if one.key is not None and one.key in inside.completions:
            by_key.setdefault(one.key, []).append(one)
    counts = inside.broken_of
    return [_finding(comparison, key, violations, counts[key]) for key, violations in sorted(by_key.items())]


def _finding(comparison: Comparison, key: Key, violations: list[Violation], row_steps: int) -> Finding:
    at = [list(group) for _, group in groupby(violations, key=lambda one: one.index)]
    first = at[0][0]
    damaged = _damaged(comparison, key, first.position)
    return Finding(
        arm=comparison.candidate,
        baseline=comparison.baseline,
        request=key.request,
        round=key.round,
        sample=key.sample,
        kind=Kind.VIOLATION,
        severity=Severity.CORRUPT,
        position=first.position,
        length=max(1, first.length),
        evidence=ViolationEvidence(
            why=_why(first),
            invariant=first.invariant,
            step=first.step,
            row=first.row,
            expected=first.expected,
            found=first.found,
            broken=tuple(one.invariant for one in at[0]),
            row_steps=row_steps,
            places=tuple((one[0].step, one[0].row, one[0].position) for one in at[:PLACES]),
            row_before=_name(first.row_before),
            shared_with=_name(first.shared_with),
            unsupported_positions=damaged or None,
        ),
    )


def _why(one: Violation) -> Message:
    invariant = next(invariant for invariant in INVARIANTS if invariant.name == one.invariant)
    found, expected = invariant.in_words(one.found, one.expected)
    return message(
        "inside.violation",
        "step {step}, row {row} breaks the rule that {invariant}: {number}{found} instead of {expected}",
        step=one.step,
        row=one.row,
        invariant=invariant.said,
        number=joined([invariant.number, " "], by="") if invariant.number else "",
        found=found,
        expected=expected,
    )


def _name(request: StepRequest | None) -> str | None:
    return None if request is None else str(request.key or request.engine_id)


def _damaged(comparison: Comparison, key: Key, position: int) -> tuple[int, ...]:
    """Tokens from there on that the reference does not support, where it says so."""
    gaps = comparison.candidate_gaps.get(key)
    if gaps is None:
        return ()
    wide = np.flatnonzero(np.nan_to_num(gaps.gap[position:]) > comparison.stats.tolerance)
    return tuple((wide[:PLACES] + position).tolist())
