"""Small charts as SVG, written by hand.

Five kinds of chart are all that reports need. They stand in a page that follows its reader's theme, they are text
that a test can count the bars of, and they need no dependency that is larger than parity. matplotlib would draw
them as well, and far more than that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from parity.report.escape import markup

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 44

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's, which people who see colours differently can tell apart."""

_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600;font-size:13px}"
    ".axis{stroke:#888;stroke-width:1}.grid{stroke:#8884;stroke-width:1}.limit{stroke:#d55e00;stroke-dasharray:4 3}"
    ".mark{stroke:#d00;stroke-width:1.5}.back{fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)


def _frame(title: str, x_label: str, y_label: str, body: Sequence[str], ticks: Sequence[str], *, alone: bool) -> str:
    background = '<rect class="back" width="100%" height="100%"/>'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{markup(title)}">'
    )
    style = f"<style>{_STYLE}</style>" if alone else ""
    turned = f'transform="rotate(-90 12 {TOP + 60})" x="12" y="{TOP + 60}" text-anchor="middle"'
    middle, low = LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - BOTTOM
    lines = [
        head,
        style,
        background,
        f'<text class="title" x="{LEFT}" y="18">{markup(title)}</text>',
        f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{markup(x_label)}</text>',
        f"<text {turned}>{markup(y_label)}</text>",
        *ticks,
        *body,
        f'<line class="axis" x1="{LEFT}" y1="{low}" x2="{WIDTH - RIGHT}" y2="{low}"/>',
        f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{low}"/>',
        "</svg>",
    ]
    return "\n".join(line for line in lines if line)


def nice(largest: float, steps: int = 4, *, whole: bool = False) -> list[float]:
    """Round numbers from 0 to at least `largest`, about `steps` of them; `whole` ones where things are counted."""
    if not largest > 0 or not math.isfinite(largest):
        return [0.0, 1.0]
    raw = largest / steps
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    step = max(1.0, step) if whole else step
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


class _Scale:
    """From data to the page."""

    def __init__(self, x: tuple[float, float], y: float) -> None:
        self.x0, self.x1 = x if x[1] > x[0] else (x[0], x[0] + 1)
        self.y1 = y or 1.0

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - min(1.0, value / self.y1) * (HEIGHT - TOP - BOTTOM)


Spread = tuple[float, float, float] | None
"""Low, middle and high at one place."""


class _Logarithmic(Struct, frozen=True):
    """A scale whose y goes by powers of ten, from `least` on."""

    least: int
    most: int
    linear: _Scale

    @classmethod
    def of(cls, values: Sequence[float], places: int) -> _Logarithmic:
        known = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
        least, most = max(-9, math.floor(math.log10(min(known)))), math.ceil(math.log10(max(known)) + 1e-9)
        return cls(least, most, _Scale((0, max(1, places)), float(max(1, most - least))))

    @property
    def powers(self) -> range:
        return range(self.least, self.most + 1)

    @property
    def labels(self) -> list[str]:
        return [f"{10.0**power:g}" for power in self.powers]

    def x(self, at: int) -> float:
        """Of the middle of a place."""
        return self.linear.x(at + 0.5)

    def y(self, value: float) -> float:
        above = math.log10(value) - self.least if value > 0 else 0.0
        return self.linear.y(min(max(0.0, above), self.most - self.least))


def _y_ticks(scale: _Scale, values: Sequence[float], labels: Sequence[str] | None = None) -> list[str]:
    lines = []
    for value, label in zip(values, labels or [_number(value) for value in values], strict=True):
        y = scale.y(value)
        lines.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    return lines


def _x_ticks(scale: _Scale, values: Sequence[float], labels: Sequence[str] | None = None) -> list[str]:
    return [
        f'<text x="{scale.x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>'
        for value, label in zip(values, labels or [_number(value) for value in values], strict=True)
    ]


def _colours(series: Iterable[str], known: Sequence[str] | None) -> dict[str, str]:
    """A colour for each series: by its place among the `known` ones, so that it is the same in every chart."""
    names = list(dict.fromkeys([*(known or ()), *series]))
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}


def _legend(colours: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """At the right of the title; below it where that is too narrow, by the ends of names, in which they differ."""
    beside = sum(7 * min(len(name), 28) + 22 for name in names) <= (WIDTH - LEFT - RIGHT) / 2
    most = 28 if beside else int((WIDTH - LEFT - RIGHT) / max(1, len(names)) - 22) // 7
    lines, x, y = [], WIDTH - RIGHT, 18 if beside else 31
    for full in reversed(names):
        name = full if len(full) <= most else "…" + full[len(full) - most + 1 :]
        x -= 7 * len(name) + 22
        colour = colours[full]
        lines.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        lines.append(f'<text x="{x + 14}" y="{y}">{markup(name)}</text>')
    return lines


def histogram(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[float]],
    edges: Sequence[float],
    *,
    labels: Sequence[str] | None = None,
    limit: float | None = None,
    log: bool = False,
    known: Sequence[str] | None = None,
    alone: bool = True,
) -> str:
    """Counts of each series between `edges`, side by side; values beyond the last edge count in the last bin.

    `labels` name the edges where numbers would not do; then all bins are equally wide. `log` makes the counts'
    axis logarithmic, so that one token among a million still shows. `known` names the series of all charts that
    stand together, in their order: a series has one colour in all of them.
    """
    bins = len(edges) - 1
    counts = {name: _count(values, edges) for name, values in series.items()}
    largest = max((max(row) for row in counts.values()), default=0)
    height = (lambda count: math.log10(count) + 1 if count else 0.0) if log else float
    if log:
        powers = range(math.ceil(math.log10(max(largest, 1))) + 1)
        tick_values, tick_labels = [float(p + 1) for p in powers], [_number(10**p) for p in powers]
    else:
        tick_values = nice(largest, whole=True)
        tick_labels = [_number(value) for value in tick_values]
    scale = _Scale((0, bins), tick_values[-1])
    ticks = _y_ticks(scale, tick_values, tick_labels)
    every = max(1, math.ceil((bins + 1) / 12))
    shown = range(0, bins + 1, every)
    names = labels or [_number(edge) for edge in edges]
    ticks += _x_ticks(scale, [float(at) for at in shown], [markup(names[at]) for at in shown])
    colours = _colours(series, known)
    body = []
    width = (scale.x(1) - scale.x(0)) * 0.9 / max(1, len(series))
    for index, (name, row) in enumerate(counts.items()):
        for at, count in enumerate(row):
            if count:
                y = scale.y(height(count))
                x = scale.x(at + 0.05) + index * width
                body.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.0, width):.1f}" height="{HEIGHT - BOTTOM - y:.1f}" '
                    f'fill="{colours[name]}"><title>{markup(name)}: {count}</title></rect>'
                )
    if limit is not None:
        x = scale.x(_place(limit, edges))
        body.append(f'<line class="limit" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
    return _frame(title, x_label, y_label, [*body, *_legend(colours, list(series))], ticks, alone=alone)


def _count(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    row = [0] * (len(edges) - 1)
    for value in values:
        if math.isfinite(value):
            row[min(len(row) - 1, int(_place(value, edges)))] += 1
    return row


def _place(value: float, edges: Sequence[float]) -> float:
    """Where `value` lies among `edges`, as a fraction of bins."""
    for at in range(len(edges) - 1):
        if value < edges[at + 1]:
            return at + max(0.0, (value - edges[at]) / (edges[at + 1] - edges[at]))
    return float(len(edges) - 1)


def bars(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[float]],
    *,
    known: Sequence[str] | None = None,
    alone: bool = True,
) -> str:
    """Shares between 0 and 1, one group of bars per place. `known` as in `histogram`."""
    places = max((len(values) for values in series.values()), default=0)
    scale = _Scale((0, max(1, places)), 1.0)
    ticks = _y_ticks(scale, [0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    ticks += _x_ticks(scale, [at + 0.5 for at in range(places)], [str(at + 1) for at in range(places)])
    width = (scale.x(1) - scale.x(0)) * 0.7 / max(1, len(series))
    colours = _colours(series, known)
    body = []
    for index, (name, values) in enumerate(series.items()):
        for at, value in enumerate(values):
            x, y = scale.x(at + 0.15) + index * width, scale.y(value)
            body.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" '
                f'fill="{colours[name]}"><title>{markup(name)}: {value:.1%}</title></rect>'
            )
    return _frame(title, x_label, y_label, [*body, *_legend(colours, list(series))], ticks, alone=alone)


def gap_line(
    title: str,
    x_label: str,
    y_label: str,
    gaps: Sequence[float],
    *,
    tolerance: float | None,
    mark: int | None = None,
    alone: bool = True,
) -> str:
    """The gap at each position as stems, the tolerance as a line, one position marked."""
    finite = [gap for gap in gaps if math.isfinite(gap)]
    tick_values = nice(max([*finite, tolerance or 0.0, 0.5]))
    scale = _Scale((0, max(1, len(gaps))), tick_values[-1])
    ticks = _y_ticks(scale, tick_values)
    ticks += _x_ticks(scale, [value for value in nice(len(gaps), 8) if value <= len(gaps)])
    body = []
    low = HEIGHT - BOTTOM
    for at, gap in enumerate(gaps):
        if math.isfinite(gap) and gap > 0:
            colour = COLOURS[5] if tolerance is not None and gap > tolerance else COLOURS[0]
            x, y = scale.x(at + 0.5), scale.y(gap)
            body.append(
                f'<line x1="{x:.1f}" y1="{low}" x2="{x:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="3">'
                f"<title>{at}: {gap:.3f}</title></line>"
            )
    if tolerance is not None:
        y = scale.y(tolerance)
        body.append(f'<line class="limit" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
    if mark is not None and 0 <= mark <= len(gaps):
        x = scale.x(mark + 0.5)
        body.append(f'<path class="mark" d="M{x:.1f} {low + 2}l-4 7h8z" fill="#d00"/>')
    return _frame(title, x_label, y_label, body, ticks, alone=alone)


def spreads(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[Spread]],
    groups: Sequence[str],
    *,
    marked: Mapping[str, Collection[int]],
    limit: float | None = None,
    names: Sequence[str] = (),
    alone: bool = True,
) -> str:
    """Low, middle and high of each series at each place, on a logarithmic axis: a line through the middles in a band.

    `groups` says to which group each place belongs; the first place of each is labelled. `marked` places have a
    triangle. What is below the axis (0 too) lies on its lowest line.
    """
    scale = _Logarithmic.of(
        [value for row in series.values() for one in row if one is not None for value in one] + [limit or 0.0],
        len(groups),
    )
    ticks = _y_ticks(scale.linear, [float(power - scale.least) for power in scale.powers], scale.labels)
    begins = [at for at, group in enumerate(groups) if at == 0 or groups[at - 1] != group]
    every = max(1, math.ceil(len(begins) / 16))
    shown = begins[::every]
    ticks += _x_ticks(scale.linear, [at + 0.5 for at in shown], [markup(groups[at]) for at in shown])
    colours = _colours(series, None)
    body = []
    for name, row in series.items():
        body += _band(row, scale, colours[name])
        body += _marks(row, scale, sorted(marked.get(name, ())), names)
    if limit:
        y = f"{scale.y(limit):.1f}"
        body.append(f'<line class="limit" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
    return _frame(title, x_label, y_label, [*body, *_legend(colours, list(series))], ticks, alone=alone)


def _band(row: Sequence[Spread], scale: _Logarithmic, colour: str) -> list[str]:
    """From low to high, and the line through the middles."""
    places = [(scale.x(at), one) for at, one in enumerate(row) if one is not None]
    if not places:
        return []
    around = [f"{x:.1f},{scale.y(high):.1f}" for x, (_, _, high) in places]
    around += [f"{x:.1f},{scale.y(low):.1f}" for x, (low, _, _) in reversed(places)]
    line = " ".join(f"{x:.1f},{scale.y(middle):.1f}" for x, (_, middle, _) in places)
    return [
        f'<polygon points="{" ".join(around)}" fill="{colour}" fill-opacity="0.15"/>',
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
    ]


def _marks(row: Sequence[Spread], scale: _Logarithmic, marked: Sequence[int], names: Sequence[str]) -> list[str]:
    found = []
    for at in marked:
        one = row[at]
        if one is not None:
            title = f"<title>{markup(names[at])}</title>" if names else ""
            top = scale.y(one[1]) - 3
            found.append(f'<path class="mark" d="M{scale.x(at):.1f} {top:.1f}l-4 -7h8z" fill="#d00">{title}</path>')
    return found
