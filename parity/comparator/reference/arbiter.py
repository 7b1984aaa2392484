"""Whom does an independent engine support where two arms differ?

The arbiter (Hugging Face transformers in float32, say) has teacher-forced both sides' completions. Where the two
part, a side is supported when every token of its own from there on lies within the arbiter's tolerance of its best
token. What follows for the verdict, where that is one side throughout, is `conclude.ruled`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from msgspec import Struct, structs

from parity.comparator.inputs.normalise import normalise
from parity.comparator.reference.gaps import FloatArray, TokenGaps
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.tolerance import chance_supported
from parity.comparator.stats import ArbiterStats
from parity.comparator.streams.pairing import pair_up
from parity.comparator.types import Comparison
from parity.messages import Message, message
from parity.records import Capture, Completion, Finding, Json, Key, Scores
from parity.records.many_findings import each

ARBITER_TOLERANCE = 2.0
"""In tolerances of the comparison: two engines stand between an arbiter's logits and an arm's, where a reference of
the arm's own kind has one. Clean bfloat16 runs of the shipped checkpoint lie up to 0.16 nats from float32."""

Side = Literal["baseline", "candidate", "both", "neither"]


class Ruling(Struct, frozen=True):
    """The arbiter's word on one pair. Gaps are nats below its best token; None where that side has no token."""

    key: Key
    position: int
    """The first divergent token."""
    supports: Side
    baseline_gap: float | None
    candidate_gap: float | None
    """At the first divergent token."""
    baseline_worst: float
    candidate_worst: float
    """The largest from there on."""
    whole: bool = True
    """Every token from there on has a gap, on both sides."""
    chance: float | None = None
    """That it would support a token taken at random in a candidate's place, from there on; None where nothing says."""

    def to_json(self, arbiter: str) -> dict[str, Json]:
        why = self.why(arbiter)
        return {
            "arbiter": arbiter,
            "supports": self.supports,
            "position": self.position,
            "baseline_gap": self.baseline_gap,
            "candidate_gap": self.candidate_gap,
            "baseline_worst_gap": self.baseline_worst,
            "candidate_worst_gap": self.candidate_worst,
            "why": str(why),
            "message": why.to_json(),
        }

    def why(self, arbiter: str) -> Message:
        """One sentence for a person."""
        return message(
            "arbiter.why",
            "{arbiter} {finds} (from token {position} on, at worst {baseline:.2f} nats below its best for the "
            "baseline, {candidate:.2f} for the candidate)",
            arbiter=arbiter,
            finds=_FINDS[self.supports],
            position=self.position,
            baseline=self.baseline_worst,
            candidate=self.candidate_worst,
        )


_FINDS: dict[Side, Message] = {
    "both": message("arbiter.both", "finds either side's tokens likely: noise"),
    "neither": message("arbiter.neither", "finds neither side's tokens likely"),
    "baseline": message("arbiter.baseline", "supports the baseline"),
    "candidate": message("arbiter.candidate", "supports the candidate"),
}


def rulings(
    baseline: Capture,
    candidate: Capture,
    scores: Scores,
    tolerance: float,
    detokenize: Callable[[Sequence[int]], str] | None = None,
) -> dict[Key, Ruling]:
    """The arbiter's word on every pair that differs, without what is mere habit, and of which it scored both sides.
    `scores`: its own; `detokenize`: as in `CompareOptions`. Where a text was cut into tokens again, a token that only
    this made says nothing, whoever scored it."""
    silent = [replace(arm, scores={}) if arm.scores else arm for arm in (baseline, candidate)]
    inputs = normalise(silent[0], silent[1], scores, detokenize)
    baseline, candidate = inputs.baseline, inputs.candidate
    lookup = Reference(baseline, candidate, inputs.scores, inputs.masked)
    pairs, arms = pair_up(baseline, candidate), inputs.arms
    limit = ARBITER_TOLERANCE * tolerance
    found = {}
    for row in np.flatnonzero(~pairs.identical).tolist():
        key, at = pairs.keys[row], int(pairs.parts_at[row])
        left, right = _gaps(lookup, arms[0], pairs.baseline[row]), _gaps(lookup, arms[1], pairs.candidate[row])
        if left is None or right is None:
            continue
        worst = [_worst(side.gap, at) for side in (left, right)]
        supports: Side = _SUPPORTS[(worst[0] <= limit, worst[1] <= limit)]
        found[key] = Ruling(
            key,
            at,
            supports,
            _gap(left.gap, at),
            _gap(right.gap, at),
            round(worst[0], 4),
            round(worst[1], 4),
            whole=not any(np.isnan(side.gap[at:]).any() for side in (left, right)),
            chance=chance_supported(right.best[at:], limit, candidate.header.vocab_size or baseline.header.vocab_size),
        )
    return found


_SUPPORTS: dict[tuple[bool, bool], Side] = {
    (True, True): "both",
    (True, False): "baseline",
    (False, True): "candidate",
    (False, False): "neither",
}


def _gaps(lookup: Reference, arm: str, completion: Completion) -> TokenGaps | None:
    gaps = lookup.gaps(arm, completion)
    top = lookup.score(arm, completion)
    return None if gaps is None or top is None or len(top) != len(completion.token_ids) else gaps


def _worst(gaps: FloatArray, start: int) -> float:
    known = gaps[start:][np.isfinite(gaps[start:])]
    return float(known.max()) if len(known) else 0.0


def _gap(gaps: FloatArray, at: int) -> float | None:
    return round(float(gaps[at]), 4) if at < len(gaps) and np.isfinite(gaps[at]) else None


def with_rulings(comparison: Comparison, found: dict[Key, Ruling], arbiter: str, tolerance: float) -> Comparison:
    """The comparison with the arbiter's word: in its statistics, its reasons, and each finding's evidence."""
    if not found:
        return comparison
    counts = Counter(ruling.supports for ruling in found.values())
    count = message(
        "reference.arbiter",
        "arbiter {arbiter}, of {number} completions that differ: supports the baseline in {baseline}, the candidate in "
        "{candidate}, both in {both} (noise), neither in {neither}",
        arbiter=arbiter,
        number=len(found),
        baseline=counts["baseline"],
        candidate=counts["candidate"],
        both=counts["both"],
        neither=counts["neither"],
    )
    findings = each(comparison.findings, partial(_with_ruling, found=found, arbiter=arbiter))
    numbers = ArbiterStats(
        arm=arbiter,
        tolerance=round(ARBITER_TOLERANCE * tolerance, 4),
        baseline=counts["baseline"],
        candidate=counts["candidate"],
        both=counts["both"],
        neither=counts["neither"],
    )
    stats = structs.replace(comparison.stats, arbiter=numbers)
    return replace(comparison, findings=findings, stats=stats, reasons=(*comparison.reasons, count))


def _with_ruling(one: Finding, *, found: Mapping[Key, Ruling], arbiter: str) -> Finding:
    if one.key not in found:
        return one
    return replace(one, evidence=structs.replace(one.evidence, arbiter=found[one.key].to_json(arbiter)))
