"""Numbers behind the plots: gaps, divergence positions, lengths, acceptance, from the files of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from parity.capture import read_capture, read_scores
from parity.comparator.reference.gaps import token_gaps
from parity.errors import ParityError
from parity.records import Capture, Completion, Key, ScoreKey, TopLogprobs
from parity.report.case import Case
from parity.report.repro import score_files

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """Per arm: gaps (nats, NaN where unknown) of each scored completion, where completions part from the
    baseline's, output lengths, and the share of drafts accepted at each draft position."""

    gaps: Mapping[str, Mapping[Key, FloatArray]] = field(default_factory=dict)
    divergences: Mapping[str, list[int]] = field(default_factory=dict)
    lengths: Mapping[str, list[int]] = field(default_factory=dict)
    acceptance: Mapping[str, list[float]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """What could not be read, in words."""

    def gap(self, arm: str, key: Key) -> FloatArray | None:
        return self.gaps.get(arm, {}).get(key)


def read_evidence(case: Case) -> Evidence:
    """From the captures and scores that the run names; what is gone is left out and said."""
    captures: dict[str, Capture] = {}
    missing: list[str] = []
    for arm in case.arms:
        path = arm.row.capture
        try:
            if not path or not Path(path).is_file():
                raise ParityError(f"the capture of {arm.name} is not there")
            captures[arm.name] = read_capture(Path(path), partial=True)
        except ParityError as error:
            missing.append(str(error))
    scores: dict[ScoreKey, TopLogprobs] = {}
    try:
        for capture in captures.values():
            scores.update(capture.scores)
        for file in score_files(case):
            scores.update(read_scores(file))
    except ParityError as error:
        missing.append(str(error))
    return evidence_of(captures, scores, case.run.baseline, missing=missing)


def evidence_of(
    captures: Mapping[str, Capture],
    scores: Mapping[ScoreKey, TopLogprobs],
    baseline: str,
    *,
    missing: list[str] | None = None,
) -> Evidence:
    """The same from captures in memory."""
    reference = captures.get(baseline)
    gaps: dict[str, dict[Key, FloatArray]] = {}
    divergences: dict[str, list[int]] = {}
    for name, capture in captures.items():
        found: dict[Key, FloatArray] = {}
        for completion in capture:
            top = _score(scores, name, baseline, reference, completion)
            if top is not None and len(top) == len(completion.token_ids):
                found[completion.key] = token_gaps(top, completion.token_ids).gap
        if found:
            gaps[name] = found
        if reference is not None and name != baseline:
            divergences[name] = _parted(reference, capture)
    return Evidence(
        gaps=gaps,
        divergences=divergences,
        lengths={name: [len(one.token_ids) for one in capture] for name, capture in captures.items()},
        acceptance={name: rates for name, capture in captures.items() if (rates := acceptance(capture))},
        missing=tuple(missing or ()),
    )


def _score(
    scores: Mapping[ScoreKey, TopLogprobs], arm: str, baseline: str, reference: Capture | None, completion: Completion
) -> TopLogprobs | None:
    """The completion's score; that of the baseline's own where both are the same tokens (scored once)."""
    top = scores.get(ScoreKey(arm, *completion.key))
    if top is None and reference is not None and arm != baseline:
        twin = reference.completions.get(completion.key)
        if twin is not None and np.array_equal(twin.token_ids, completion.token_ids):
            top = scores.get(ScoreKey(baseline, *completion.key))
    return top


def _parted(baseline: Capture, candidate: Capture) -> list[int]:
    found = []
    for completion in candidate:
        other = baseline.completions.get(completion.key)
        if other is None:
            continue
        shared = min(len(other.token_ids), len(completion.token_ids))
        unequal = np.flatnonzero(other.token_ids[:shared] != completion.token_ids[:shared])
        if len(unequal):
            found.append(int(unequal[0]))
        elif len(other.token_ids) != len(completion.token_ids):
            found.append(shared)
    return found


def acceptance(capture: Capture) -> list[float]:
    """Share of decode steps in which the draft token at each position was accepted; [] without speculation."""
    counters = capture.counters or {}
    drafts, accepted = counters.get("drafts"), counters.get("accepted_per_pos")
    if isinstance(drafts, int) and drafts > 0 and isinstance(accepted, list):
        return [float(count) / drafts for count in accepted]
    counts: dict[int, list[int]] = {}
    for completion in capture:
        if completion.spec is None:
            continue
        for took, drafted in zip(completion.spec.accepted, completion.spec.drafted, strict=False):
            for position in range(int(drafted)):
                counts.setdefault(position, []).append(int(took > position))
    return [sum(counts[position]) / len(counts[position]) for position in sorted(counts)]
