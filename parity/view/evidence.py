"""Numbers of single tokens and completions: gaps, where streams part, lengths, acceptance by draft position.

Gaps and first divergent tokens are those that the comparison found; nothing of them is computed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from parity.comparator import Comparison
from parity.records import Capture, Json, Key
from parity.records.gaps import KeptGaps


class Evidence(Struct, frozen=True):
    """By arm: the gaps of each scored completion, where completions part from the baseline's, output lengths, and the
    share of drafts accepted at each draft position."""

    gaps: Mapping[str, Mapping[Key, KeptGaps]] = field(default_factory=dict)
    divergences: Mapping[str, list[int]] = field(default_factory=dict)
    lengths: Mapping[str, list[int]] = field(default_factory=dict)
    acceptance: Mapping[str, list[float]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """What could not be read, in words."""

    def gap(self, arm: str, key: Key) -> KeptGaps | None:
        return self.gaps.get(arm, {}).get(key)


def of_comparisons(
    captures: Iterable[Capture], comparisons: Mapping[str, Comparison], missing: tuple[str, ...] = ()
) -> Evidence:
    """From captures, and how those of candidate arms compare with the baseline."""
    captures = list(captures)
    gaps: dict[str, Mapping[Key, KeptGaps]] = {}
    for comparison in comparisons.values():
        if comparison.baseline_gaps:
            gaps[comparison.baseline] = comparison.baseline_gaps
        if comparison.candidate_gaps:
            gaps[comparison.candidate] = comparison.candidate_gaps
    return Evidence(
        gaps=gaps,
        divergences={arm: list(one.first_divergence.values()) for arm, one in comparisons.items()},
        lengths={one.header.arm: [len(completion.token_ids) for completion in one] for one in captures},
        acceptance={one.header.arm: rates for one in captures if (rates := acceptance(one))},
        missing=missing,
    )


def acceptance(capture: Capture) -> list[float]:
    """Share of decode steps in which the draft token at each position was accepted; [] without speculation."""
    counted = acceptance_counted(capture.counters or {})
    if counted:
        return counted
    counts: dict[int, list[int]] = {}
    for completion in capture:
        if completion.spec is None:
            continue
        for took, drafted in zip(completion.spec.accepted, completion.spec.drafted, strict=False):
            for position in range(int(drafted)):
                counts.setdefault(position, []).append(int(took > position))
    return [sum(counts[position]) / len(counts[position]) for position in sorted(counts)]


def acceptance_counted(counters: Mapping[str, Json]) -> list[float]:
    """The same from an engine's own counters; [] where it did not count by position."""
    drafts, accepted = counters.get("drafts"), counters.get("accepted_per_pos")
    if isinstance(drafts, int) and drafts > 0 and isinstance(accepted, list):
        return [float(count) / drafts for count in accepted]
    return []
