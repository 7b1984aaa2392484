"""The report as one HTML file: no request leaves it, it works offline and without scripts (except the filter).

Its content security policy allows nothing from outside and only the one script that parity wrote, named by
its hash: text that slipped through the escaping could not run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from importlib import resources

import numpy as np

from parity._version import __version__
from parity.records import TokenIds
from parity.report import facts, svg
from parity.report.escape import code, markup
from parity.report.format import Document, Format
from parity.report.formats.md import environment_lines
from parity.report.plots import plots
from parity.report.texts import Texts
from parity.store import CompletionRow
from parity.view import ArmView, Evidence, FindingView, RunView

MOST_TOKENS = 600
"""Tokens of a stream shown, around the place in question."""


def html_report(view: RunView, texts: Texts | None = None) -> str:
    """The whole page."""
    texts = texts or Texts()
    evidence = view.evidence
    script = _data("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    verdict = view.run.verdict or str(view.run.status)
    heading = texts("html.title", verdict=verdict, run=view.run.id)
    parts = [
        f'<!doctype html>\n<html lang="{texts.language}">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="generator" content="parity {markup(__version__)}">',
        f'<link rel="icon" href="data:,">\n<title>{markup(heading)}</title>',
        f"<style>\n{_data('report.css')}</style>\n</head>\n<body>",
        f'<h1><span class="{markup(verdict)}">{markup(verdict)}</span> {markup(view.run.model)}</h1>',
        *(f"<p>{markup(texts.said(reason))}</p>" for reason in view.run.reasons),
        *(f"<p>{_plain(sentence)}</p>" for sentence in _about(view, texts)),
        f'<p class="quiet">{texts("column.run")} {markup(view.run.id)}, {markup(view.run.created)}</p>',
        _arms(view, texts),
        _plots(view, evidence, texts),
        f"<h2>{texts('heading.findings')}</h2>",
        _filter(texts),
        *_left_out(view, texts),
        *(_card(view, finding, evidence, texts) for finding in view.findings),
        _list(texts("heading.measured"), facts.measured(view, texts)),
        _list(texts("heading.inferred"), facts.inferred(view, texts)),
        _list(texts("heading.unchecked"), facts.unchecked(view, texts)),
        f"<h2>{texts('heading.settings')}</h2>",
        *(_settings(arm) for arm in view.arms),
        f"<script>{script}</script>\n</body>\n</html>",
    ]
    return "\n".join(parts) + "\n"


def _data(name: str) -> str:
    return resources.files("parity.report").joinpath(f"data/{name}").read_text(encoding="utf-8")


def _about(view: RunView, texts: Texts) -> Iterator[str]:
    """What was planted, and by which rule a token is held for wrong; Markdown."""
    for arm in view.suspected:
        if arm.planted:
            yield texts("lead.planted", fault=code(arm.planted)).replace("**", "")
    if view.tolerance is not None and not view.run.sampling.get("temperature"):
        yield texts("lead.rule", tolerance=f"{view.tolerance:g}")


def _arms(view: RunView, texts: Texts) -> str:
    names = ("arm", "completions", "identical", "near", "corrupt", "shortest", "acceptance", "speed")
    head = "".join(f'<th class="{"n" if at else ""}">{texts(f"column.{name}")}</th>' for at, name in enumerate(names))
    rows = []
    for arm in view.arms:
        judged = not arm.is_baseline
        role = texts("baseline") if not judged else texts("control") if arm.is_control else ""
        accepted = "-" if arm.acceptance_rate is None else f"{arm.acceptance_rate:.1%}"
        cells = [
            str(arm.completions),
            *(str(arm.count(name)) if judged else "-" for name in ("identical", "near_tie", "corrupt")),
            str(min(arm.lengths, default="-")),
            accepted,
            f"{arm.tokens_per_second:,.1f}" if arm.tokens_per_second else "-",
        ]
        quiet = f' <span class="quiet">{role}</span>' if role else ""
        first = f"<td>{markup(arm.name)}{quiet}</td>"
        rows.append(f"<tr>{first}{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _plots(view: RunView, evidence: Evidence, texts: Texts) -> str:
    drawn = plots(evidence, texts, tolerance=view.tolerance, alone=False)
    return f'<div class="plots">{"".join(drawn.values())}</div>' if drawn else ""


def _filter(texts: Texts) -> str:
    return (
        f'<div class="filter"><input type="search" id="filter" placeholder="{texts("html.filter")}" '
        f'aria-label="{texts("html.filter")}"><label><input type="checkbox" id="corrupt"> {texts("html.corrupt")}'
        f'</label><span class="quiet"><span id="count"></span> {texts("html.shown")}</span></div>'
        f"<noscript><p>{texts('html.noscript')}</p></noscript>"
    )


def _left_out(view: RunView, texts: Texts) -> Iterator[str]:
    left = view.total_findings - len(view.findings)
    if left > 0:
        yield f'<p class="quiet">{texts("html.left_out", count=left, total=view.total_findings)}</p>'


def _card(view: RunView, finding: FindingView, evidence: Evidence, texts: Texts) -> str:
    severity = "corrupt" if finding.is_corrupt else "benign"
    badges = [markup(finding.arm), markup(finding.key)]
    if finding.position is not None:
        badges.append(f"{texts('column.token')} {finding.position}")
    if finding.gap is not None:
        badges.append(f"{finding.gap:.2f} nats")
    badges.append(markup(str(finding.state)))
    parts = [
        f'<article class="{severity}" id="finding-{finding.id}"><header>',
        f'<h3 class="badge kind">{markup(finding.kind)}</h3><span>{markup(texts.kind(finding.kind))}</span>',
        *(f'<span class="badge">{badge}</span>' for badge in badges),
        "</header>",
        f"<p>{markup(texts.said(finding.why))}</p>",
    ]
    if finding.asked is not None:
        prompt = finding.asked.prompt
        shown = markup(prompt) if prompt is not None else markup(view.text.decode(finding.asked.prompt_token_ids))
        parts.append(f'<p class="quiet">{texts("prompt")} {shown[:4000]}</p>')
    parted = finding.first_divergence
    sides = [
        _stream(view, stream, name, finding, parted, is_candidate=at == 1)
        for at, (stream, name) in enumerate(((finding.baseline, view.run.baseline), (finding.candidate, finding.arm)))
        if stream is not None
    ]
    if sides:
        parts.append(f'<div class="sides">{"".join(sides)}</div>')
    parts += [_opinions(view, finding, texts), _gaps(view, finding, evidence, texts), "</article>"]
    return "\n".join(part for part in parts if part)


def _stream(
    view: RunView, stream: CompletionRow, name: str, finding: FindingView, parted: int | None, *, is_candidate: bool
) -> str:
    """The tokens around the place: `x` is the token in question, `f` the rest of the finding, `p` what differs."""
    position, length = finding.position, finding.length or 1
    middle = position if position is not None else parted or 0
    start = max(0, min(middle - MOST_TOKENS // 2, len(stream.token_ids) - MOST_TOKENS))
    stop = min(len(stream.token_ids), start + MOST_TOKENS)
    shown = [] if start == 0 else ["… "]
    texts_of = _token_texts(view, stream.token_ids[start:stop])
    for at, text in zip(range(start, stop), texts_of, strict=True):
        names = []
        if position is not None and at == position:
            names.append("x")
        elif is_candidate and position is not None and position < at < position + length:
            names.append("f")
        elif parted is not None and at >= parted:
            names.append("p")
        about = f'title="{at}: {int(stream.token_ids[at])}"'
        shown.append(
            f'<i class="{" ".join(names)}" {about}>{markup(text)}</i>' if names else f"<i {about}>{markup(text)}</i>"
        )
    if stop < len(stream.token_ids):
        shown.append(" …")
    elif position is not None and position >= len(stream.token_ids):
        shown.append('<i class="x">(end)</i>')
    reason = f"{stream.n_tokens}, {stream.finish_reason}"
    return f'<div class="stream"><span class="name">{markup(name)} ({markup(reason)})</span>{"".join(shown)}</div>'


def _token_texts(view: RunView, ids: TokenIds) -> list[str]:
    """Each token's own text without quotes; its id in brackets where it has none."""
    return [view.text.plain(int(token)) for token in ids]


def _opinions(view: RunView, finding: FindingView, texts: Texts) -> str:
    pairs = finding.logprobs("reference")
    if not pairs:
        return ""
    chosen = finding.token
    rows = "".join(
        f"<tr><td>{markup(view.text.token(int(token)))}</td><td class=n>{value:.3f}</td>"
        f"<td class=n>{_gap(finding, token)}</td>"
        f"<td>{texts('role.chosen') if token == chosen else ''}</td></tr>"
        for token, value in pairs
    )
    head = "".join(f"<th>{texts(f'column.{name}')}</th>" for name in ("token", "logprob", "gap", "role"))
    listed = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<details><summary>{texts("heading.evidence")}</summary><div class="wide">{listed}</div></details>'


def _gap(finding: FindingView, token: int) -> str:
    return f"{finding.gap:.3f}" if token == finding.token and finding.gap is not None else ""


def _gaps(view: RunView, finding: FindingView, evidence: Evidence, texts: Texts) -> str:
    gaps = evidence.gap(finding.arm, finding.key)
    if gaps is None or not np.isfinite(gaps.gap).any():
        return f'<p class="quiet">{texts("html.nogaps")}</p>' if evidence.gaps else ""
    return svg.gap_line(
        texts("html.gaps"),
        texts("plot.x.position"),
        "nats",
        [float(gap) for gap in gaps.gap],
        tolerance=view.tolerance,
        mark=finding.position,
        alone=False,
    )


def _list(heading: str, lines: Iterator[str]) -> str:
    items = "".join(f"<li>{_plain(line)}</li>" for line in lines)
    return f"<h2>{heading}</h2><ul>{items}</ul>" if items else ""


def _plain(markdown: str) -> str:
    """A sentence of `facts`, which is Markdown, as HTML: code spans stay, escapes and comments go."""
    text = markdown.replace("<!-- -->", "").replace("&amp;", "&")
    pieces: list[str] = []
    for at, piece in enumerate(re.split(r"(`+)(.+?)\1(?!`)", text)):
        if at % 3 == 0:
            pieces.append(markup(re.sub(r"\\([\\`*_{}\[\]<>|~$])", r"\1", piece)))
        elif at % 3 == 2:
            pieces.append(f"<code>{markup(piece.replace(chr(92) + '|', '|').strip())}</code>")
    return "".join(pieces)


def _settings(arm: ArmView) -> str:
    lines = "\n".join(markup(line) for line in environment_lines(arm))
    return f"<details><summary>{markup(arm.name)}</summary><pre>{lines}</pre></details>"


FORMAT = Format(lambda view, wanted: [Document(html_report(view, wanted.texts))], for_readers=True)
