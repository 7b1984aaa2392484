"""The drawing of a profile: modules along x, a line and a band for each arm."""

from __future__ import annotations

from parity.report import svg
from parity.report.texts import Texts
from parity.view.profile import Profiled


def drawn(found: Profiled, texts: Texts | None = None, *, alone: bool = True) -> str:
    """An SVG: median, 10th and 99th percentile of each module's distance, on a logarithmic axis; the modules that stand
    out marked, and what one rounding takes off as a line."""
    texts = texts or Texts()
    profile = found.profile
    arms = list(enumerate(profile.arms))
    return svg.spreads(
        texts("plot.modules"),
        texts("plot.x.layer"),
        texts("plot.y.distance"),
        {
            name: [
                None if (of := one.of_arms[place]) is None else (of.low, of.middle, of.high) for one in profile.modules
            ]
            for place, name in arms
        },
        [str(one.layer) if one.layer >= 0 else "" for one in profile.modules],
        marked={
            name: [
                at for at, one in enumerate(profile.modules) if (of := one.of_arms[place]) is not None and of.stands_out
            ]
            for place, name in arms
        },
        limit=found.rounding or None,
        names=[one.name for one in profile.modules],
        alone=alone,
    )
