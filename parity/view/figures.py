"""The numbers of a comparison, from what it keeps of them."""

from __future__ import annotations

from collections.abc import Mapping

from parity.records import Json
from parity.view.arm import Figures


def figures_of(stats: Mapping[str, Json]) -> Figures:
    """From `Comparison.stats`, as it is or as the store gives it back."""
    floor, exercised = stats.get("floor") or {}, stats.get("exercised") or {}
    return Figures(
        tolerance=_number(stats.get("tolerance")),
        not_excluded=_number(stats.get("fault_rate_not_excluded")),
        floor_gap=_number(floor.get("largest_gap")),
        floor_tokens=floor.get("tokens"),
        floor_rejected=floor.get("rejected_tokens") or 0,
        drafted=exercised.get("draft_tokens"),
        accepted=exercised.get("accepted_tokens"),
        kinds=tuple((kind, int(rate["completions"])) for kind, rate in (stats.get("rates") or {}).items()),
        first_faults=dict(stats.get("first_faults") or {}),
        of_run=dict(stats.get("of_run") or {}),
    )


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) else None
