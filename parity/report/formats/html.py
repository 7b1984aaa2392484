"""The report as one HTML file: no request leaves it, it works offline and without scripts (except the filter).

Its content security policy allows nothing from outside and only the one script that parity wrote, named by its hash:
text that slipped through the escaping could not run. `templates/report.html` is the page; every value in it is made
visible and escaped.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

import numpy as np
import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from parity._version import __version__
from parity.language import render
from parity.messages import Message
from parity.records import Kind
from parity.report import facts, first_screen, svg
from parity.report.escape import without_paths
from parity.report.examples import ACTUAL, EXPECTED, example
from parity.report.format import Document, Format
from parity.report.formats.md import environment_lines
from parity.report.overview import overview
from parity.report.plots import plots
from parity.report.profile import drawn as profile_drawn
from parity.report.prose import in_html
from parity.report.sections import Part, Stream, Verbatim, runs
from parity.report.texts import Texts
from parity.report.texts import sentence as say
from parity.text import visible
from parity.view import FindingView, RunView, next_commands
from parity.view.experiments import proposed

MOST_TOKENS = 240
"""Tokens of a stream shown, around the place in question."""

FIRST = 20
"""Cards that stand in the page as they are; a reader without scripts sees these."""

WHOLE = 200
"""Cards with their gap plot and all of their texts; those after them show what is near the place."""

SHORT_TOKENS = 40
"""Of the others: tokens of a stream."""

COLUMNS = ("arm", "completions", "identical", "near", "corrupt", "shortest", "acceptance", "speed")


class Drawn(Struct, frozen=True):
    """A part of a section as the page draws it. `form`: said, verbatim, grid, stream or rows."""

    form: str
    said: Markup | str = ""
    """The sentence, the text, or what stands before the token ids."""
    runs: Sequence[tuple[str, str]] = ()
    """Of a stream: its text in pieces, each with its mark (`sections.runs`)."""
    head: Sequence[Markup] = ()
    rows: Sequence[Sequence[Markup]] = ()


class DrawnSection(Struct, frozen=True):
    """Parts below a heading."""

    heading: str | None
    parts: Sequence[Drawn]


class Card(Struct, frozen=True):
    """What is drawn of a finding."""

    finding: FindingView
    badges: list[str]
    question: Message
    """What its reader asks first."""
    columns: Sequence[Sequence[DrawnSection]]
    """Sections one below the other; those of one list stand side by side."""
    gaps: Markup | None
    no_gaps: bool
    """Other completions have scores, this one has none."""


def html_report(view: RunView, texts: Texts | None = None) -> str:
    """The whole page."""
    texts = texts or Texts()
    script = data("report.js")
    drawn = plots(view.evidence, texts, tolerance=view.tolerance, alone=False)

    def shown(lines: Iterator[Message | str]) -> list[Markup]:
        return [in_html(line, texts.language) for line in lines]

    return (
        environment()
        .get_template("report.html")
        .render(
            t=texts,
            view=view,
            version=__version__,
            verdict=view.run.verdict or str(view.run.status),
            # Ours, not escaped: the style sheet, the script that the policy names by its hash, and drawings.
            style=Markup(data("report.css")),
            script=Markup(script),
            plots=[Markup(one) for one in [*drawn.values(), *_profile(view, texts)]],
            profile=shown(iter(view.profile.said() if view.profile is not None else ())),
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            lead=shown(_lead(view)),
            inside=shown(facts.inside(view)),
            strips=[_in_lines(strip) for strip in facts.strips(view)],
            experiments=[
                (in_html(each.what, texts.language), visible(without_paths(each.shown)))
                for some in proposed(view, view.why)
                for each in some
            ],
            failures=[
                (name, _in_lines(without_paths(render(said, texts.language)))) for name, said in facts.failures(view)
            ],
            following=[
                (
                    in_html(one.what, texts.language),
                    visible(without_paths(one.text)),
                    one.remark and render(one.remark, texts.language),
                )
                for one in next_commands(view)
            ],
            columns=COLUMNS,
            roles={arm.name: facts.role(arm, texts) for arm in view.arms},
            cells={arm.name: facts.cells(arm) for arm in view.arms},
            left_out=view.total_findings - len(view.findings),
            cards=[_card(view, finding, texts) for finding in view.findings[:FIRST]],
            packed=_packed(view, texts),
            total=len(view.findings),
            overview=overview(view, texts),
            measured=shown(facts.measured(view)),
            inferred=shown(facts.inferred(view)),
            unchecked=shown(facts.unchecked(view)),
            settings={arm.name: environment_lines(arm) for arm in view.arms},
        )
        + "\n"
    )


def _profile(view: RunView, texts: Texts) -> list[str]:
    return [] if view.profile is None else [profile_drawn(view.profile, texts, alone=False)]


def _in_lines(text: str) -> Markup:
    """Text over several lines: what else cannot be seen in it is written as an escape."""
    return escape(visible(text, keep="\n\t"))


def _packed(view: RunView, texts: Texts) -> Markup | None:
    """The cards after the first ones: gzip of a JSON list of (HTML, corrupt), in base64. 10,000 of them would be 100 MB
    of page; drawn when somebody gets to them, they are a few MB of text."""
    rest = view.findings[FIRST:]
    if not rest:
        return None
    draw = environment().get_template("card.html").make_module({"t": texts}).card  # type: ignore[attr-defined]
    found = [
        (str(draw(_card(view, one, texts, whole=at < WHOLE))), int(one.is_corrupt))
        for at, one in enumerate(rest, FIRST)
    ]
    return Markup(base64.b64encode(gzip.compress(orjson.dumps(found), 9, mtime=0)).decode())


@cache
def environment() -> Environment:
    def finalize(value: object) -> object:
        """No control, bidirectional or invisible character, before it is escaped."""
        return value if isinstance(value, Markup) else visible(str(value))

    return Environment(
        loader=PackageLoader("parity.report"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def data(name: str) -> str:
    return resources.files("parity.report").joinpath(f"data/{name}").read_text(encoding="utf-8")


def _lead(view: RunView) -> Iterator[Message | str]:
    """What a reader must know first, why this verdict, and by which rule a token counts as wrong."""
    yield from first_screen.notes(view)
    yield first_screen.what(view)
    yield from first_screen.points(view)
    yield from view.run.reasons
    if view.tolerance is not None and view.run.greedy and facts.rests_on_gaps(first_screen.accused(view)):
        yield say("lead.rule", tolerance=f"{view.tolerance:g}")


def _card(view: RunView, finding: FindingView, texts: Texts, *, whole: bool = True) -> Card:
    badges = [finding.arm, texts("html.of_run") if finding.of_run else str(finding.key)]
    if finding.position is not None:
        badges.append(f"{texts('column.token')} {finding.position}")
    if finding.gap is not None:
        badges.append(f"{finding.gap:.2f} nats")
    gaps = _gaps(view, finding, texts) if whole else None
    return Card(
        finding,
        [*badges, finding.state],
        Kind(finding.kind).row.question,
        _columns(list(_sections(view, finding, texts, whole))),
        gaps,
        whole and gaps is None and bool(view.evidence.gaps) and finding.gap is not None,
    )


def _columns(sections: Sequence[DrawnSection]) -> list[list[DrawnSection]]:
    """What was expected and what came stand side by side."""
    found: list[list[DrawnSection]] = []
    for one in sections:
        if one.heading == ACTUAL and found and found[-1][-1].heading == EXPECTED:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _sections(view: RunView, finding: FindingView, texts: Texts, whole: bool) -> Iterator[DrawnSection]:
    """As in Markdown, without the sentence that stands at the top of the card."""
    for one in example(view, finding):
        parts = [_part(part, view, texts, whole) for part in one.parts if part != finding.why]
        if parts:
            yield DrawnSection(one.heading, parts)


def _part(part: Part, view: RunView, texts: Texts, whole: bool) -> Drawn:
    if isinstance(part, Message):
        # The page marks the token by a colour, not by >> and <<.
        part = say("html.marked", **part.parameters) if part.id == "report.expected.text" else part
        return Drawn("said", in_html(part, texts.language))
    if isinstance(part, Verbatim):
        return Drawn("grid" if part.grid else "verbatim", _in_lines(part.text))
    if isinstance(part, Stream):
        said = f"{texts.said(part.label).strip()}: {part.ids}" if whole else ""
        return Drawn("stream", said, runs(part, view, MOST_TOKENS if whole else SHORT_TOKENS))
    cells = [[in_html(cell, texts.language) for cell in row] for row in part.rows]
    return Drawn("rows", head=[in_html(cell, texts.language) for cell in part.head], rows=cells)


def _gaps(view: RunView, finding: FindingView, texts: Texts) -> Markup | None:
    gaps = view.evidence.gap(finding.arm, finding.key)
    if gaps is None or not np.isfinite(gaps.gap).any():
        return None
    return Markup(
        svg.gap_line(
            texts("html.gaps"),
            texts("plot.x.position"),
            "nats",
            [float(gap) for gap in gaps.gap],
            tolerance=view.tolerance,
            mark=finding.position,
            alone=False,
        )
    )


FORMAT = Format(lambda view, wanted: [Document(html_report(view, wanted.texts))], for_readers=True)
