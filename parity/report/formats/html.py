"""The report as one HTML file: no request leaves it, it works offline and without scripts (except the filter).

Its content security policy allows nothing from outside and only the one script that parity wrote, named by its hash:
text that slipped through the escaping could not run. `templates/report.html` is the page; every value in it is made
visible and escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from parity._version import __version__
from parity.language import render
from parity.messages import Message
from parity.records.emulated import proves
from parity.report import facts, svg
from parity.report.escape import without_paths
from parity.report.format import Document, Format
from parity.report.formats.md import environment_lines
from parity.report.plots import plots
from parity.report.prose import in_html
from parity.report.texts import Texts
from parity.report.texts import sentence as say
from parity.store import CompletionRow
from parity.text import visible
from parity.view import FindingView, RunView, next_commands
from parity.view.experiments import proposed

MOST_TOKENS = 600
"""Tokens of a stream shown, around the place in question."""

LONGEST_PROMPT = 4000
"""Characters of a prompt shown."""

COLUMNS = ("arm", "completions", "identical", "near", "corrupt", "shortest", "acceptance", "speed")


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a stream. `mark`: "x" for the one in question, "f" the rest of the finding, "p" what differs."""

    text: str
    title: str
    mark: str


@dataclass(frozen=True, slots=True)
class Side:
    """One arm's stream around the place."""

    arm: str
    ended: str
    tokens: list[Token]
    cut_before: bool
    cut_after: bool
    ends_here: bool
    """The place is the end of the stream."""


@dataclass(frozen=True, slots=True)
class Logprob:
    """A row of what the reference says of the place."""

    token: str
    logprob: str
    gap: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Card:
    """What is drawn of a finding."""

    finding: FindingView
    badges: list[str]
    prompt: str | None
    sides: list[Side]
    logprobs: list[Logprob]
    gaps: Markup | None
    no_gaps: bool
    """Other completions have scores, this one has none."""


def html_report(view: RunView, texts: Texts | None = None) -> str:
    """The whole page."""
    texts = texts or Texts()
    script = _data("report.js")
    drawn = plots(view.evidence, texts, tolerance=view.tolerance, alone=False)

    def shown(lines: Iterator[Message | str]) -> list[Markup]:
        return [in_html(line, texts.language) for line in lines]

    return (
        _environment()
        .get_template("report.html")
        .render(
            t=texts,
            view=view,
            version=__version__,
            verdict=view.run.verdict or str(view.run.status),
            # Ours, not escaped: the style sheet, the script that the policy names by its hash, and drawings.
            style=Markup(_data("report.css")),
            script=Markup(script),
            plots=[Markup(one) for one in drawn.values()],
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            lead=shown(_lead(view)),
            inside=shown(facts.inside(view)),
            experiments=[
                (in_html(each.what, texts.language), visible(without_paths(each.text or " ".join(each.options))))
                for one in view.why
                for each in proposed(view, one)
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
            cards=[_card(view, finding, texts) for finding in view.findings],
            measured=shown(facts.measured(view)),
            inferred=shown(facts.inferred(view)),
            unchecked=shown(facts.unchecked(view)),
            settings={arm.name: environment_lines(arm) for arm in view.arms},
        )
        + "\n"
    )


@cache
def _environment() -> Environment:
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


def _data(name: str) -> str:
    return resources.files("parity.report").joinpath(f"data/{name}").read_text(encoding="utf-8")


def _lead(view: RunView) -> Iterator[Message | str]:
    """Why this verdict, what was planted, and by which rule a token counts as wrong."""
    yield from view.run.reasons
    yield from (facts.planted(arm.planted) for arm in view.suspected if arm.planted)
    yield from (proves(arm.name) for arm in view.arms if arm.emulated)
    if view.tolerance is not None and view.run.greedy:
        yield say("lead.rule", tolerance=f"{view.tolerance:g}")


def _card(view: RunView, finding: FindingView, texts: Texts) -> Card:
    badges = [finding.arm, str(finding.key)]
    if finding.position is not None:
        badges.append(f"{texts('column.token')} {finding.position}")
    if finding.gap is not None:
        badges.append(f"{finding.gap:.2f} nats")
    prompt = None
    if finding.asked is not None:
        written = finding.asked.prompt
        prompt = visible(view.text.decode(finding.asked.prompt_token_ids) if written is None else written)
    gaps = _gaps(view, finding, texts)
    return Card(
        finding,
        [*badges, finding.state],
        None if prompt is None else prompt[:LONGEST_PROMPT],
        [
            _side(view, stream, name, finding, is_candidate=stream is finding.candidate)
            for stream, name in ((finding.baseline, view.run.baseline), (finding.candidate, finding.arm))
            if stream is not None
        ],
        [
            Logprob(
                view.text.token(token),
                f"{value:.3f}",
                "" if gap is None else f"{gap:.3f}",
                token == finding.token,
            )
            for token, value, gap in finding.reference()
        ],
        gaps,
        gaps is None and bool(view.evidence.gaps),
    )


def _side(view: RunView, stream: CompletionRow, name: str, finding: FindingView, *, is_candidate: bool) -> Side:
    """The tokens around the place."""
    position, parted, ids = finding.position, finding.first_divergence, stream.token_ids
    middle = position if position is not None else parted or 0
    start = max(0, min(middle - MOST_TOKENS // 2, len(ids) - MOST_TOKENS))
    stop = min(len(ids), start + MOST_TOKENS)

    def mark(at: int) -> str:
        if position is not None and at == position:
            return "x"
        if is_candidate and position is not None and position < at < position + (finding.length or 1):
            return "f"
        return "p" if parted is not None and at >= parted else ""

    return Side(
        name,
        f"{stream.n_tokens}, {stream.finish_reason}",
        [Token(view.text.plain(int(ids[at])), f"{at}: {int(ids[at])}", mark(at)) for at in range(start, stop)],
        cut_before=start > 0,
        cut_after=stop < len(ids),
        ends_here=position is not None and position >= len(ids),
    )


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
