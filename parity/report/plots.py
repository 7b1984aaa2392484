"""The plots of a run: gap distribution, divergence positions, output lengths, acceptance by draft position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from parity.errors import writing
from parity.messages import message
from parity.records import Key
from parity.records.gaps import KeptGaps
from parity.report import svg
from parity.report.texts import Texts
from parity.view import Evidence

GAP_EDGES = (0.0, 1e-9, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 1e9)
GAP_LABELS = ("0", "0+", "0.06", "0.13", "0.25", "0.5", "1", "2", "4", "8", "16", "")
"""Bins of the gap in nats: the first holds the tokens that are the reference's best ones."""


def plots(
    evidence: Evidence, texts: Texts | None = None, *, tolerance: float | None = None, alone: bool = True
) -> dict[str, str]:
    """File name without suffix → SVG; only those there are numbers for. `alone`: as files of their own."""
    texts = texts or Texts()
    found: dict[str, str] = {}
    arms = list(dict.fromkeys([*evidence.lengths, *evidence.gaps, *evidence.divergences, *evidence.acceptance]))
    if evidence.gaps:
        gaps = {arm: _flat(values) for arm, values in evidence.gaps.items()}
        found["gaps"] = svg.histogram(
            texts("plot.gap_distribution"),
            texts("plot.x.gap"),
            texts("plot.y.tokens"),
            gaps,
            GAP_EDGES,
            labels=GAP_LABELS,
            limit=tolerance,
            log=True,
            known=arms,
            alone=alone,
        )
    if any(evidence.divergences.values()):
        found["divergences"] = svg.histogram(
            texts("plot.divergence"),
            texts("plot.x.position"),
            texts("plot.y.completions"),
            evidence.divergences,
            edges(evidence.divergences.values()),
            known=arms,
            alone=alone,
        )
    if any(evidence.lengths.values()):
        found["lengths"] = svg.histogram(
            texts("plot.lengths"),
            texts("plot.x.length"),
            texts("plot.y.completions"),
            evidence.lengths,
            edges(evidence.lengths.values()),
            log=True,
            known=arms,
            alone=alone,
        )
    if evidence.acceptance:
        found["acceptance"] = svg.bars(
            texts("plot.acceptance"),
            texts("plot.x.draft"),
            texts("plot.y.rate"),
            evidence.acceptance,
            known=arms,
            alone=alone,
        )
    return found


def write_plots(found: Mapping[str, str], directory: Path) -> list[Path]:
    """Write each plot as `NAME.svg`. Raises ParityError where the directory cannot be written."""
    written = []
    with writing(directory, message("report.name_another_place", "name another place")):
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            path = directory / f"{name}.svg"
            path.write_text(text + "\n", encoding="utf-8")
            written.append(path)
    return written


def edges(columns: Iterable[Sequence[float]]) -> list[float]:
    """At most 24 bins of a whole number of tokens from 0 to the largest value."""
    largest = max([0, *(max(column) for column in columns if len(column))])
    width = max(1, -(-(int(largest) + 1) // 24))
    count = int(largest) // width + 1
    return [float(width * at) for at in range(count + 1)]


def _flat(values: Mapping[Key, KeptGaps]) -> list[float]:
    joined = np.concatenate([one.gap for one in values.values()]) if values else np.empty(0)
    return [float(value) for value in joined[np.isfinite(joined)]]
