"""A result as a notebook shows it: the verdict, the arms, and the worst findings with the token in question marked."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from parity.report import facts
from parity.report.examples import example
from parity.report.prose import in_html
from parity.report.sections import Stream, runs
from parity.report.texts import Texts
from parity.text import visible
from parity.view import RunView

TOKENS = 60
"""Of a stream, around the place."""
_MARKS = {
    "x": "background:#ffd54a;color:#000;font-weight:bold",
    "f": "background:#fde7e4;color:#000",
    "p": "background:#dbe9ff;color:#000",
    "": "",
}


def as_html(view: RunView, texts: Texts | None = None) -> Markup:
    """A fragment without scripts and style sheets."""
    texts = texts or Texts()
    names = ("arm", "completions", "identical", "near", "corrupt", "shortest", "acceptance", "speed")
    parts = [
        Markup("<p><b>{}</b> {}</p>").format(
            view.run.verdict or "", Markup("; ").join(in_html(one, texts.language) for one in view.run.reasons)
        ),
        _table([texts(f"column.{name}") for name in names], ([arm.name, *facts.cells(arm)] for arm in view.arms)),
    ]
    for finding in view.examples:
        where = "" if finding.position is None else f", {texts('column.token')} {finding.position}"
        head = Markup("<p><b>{}</b> {}: {}</p>").format(
            texts.kind(finding.kind), f"{finding.arm}, {finding.key}{where}", texts.said(finding.why)
        )
        parts.append(head)
        for section in example(view, finding):
            for part in section.parts:
                if isinstance(part, Stream):
                    parts.append(_stream(part, view))
    whole = Markup("<div>{}</div>").format(Markup("").join(parts))
    return Markup(visible(whole, keep="\n\t"))  # of markup only text can have what is escaped there


def _stream(part: Stream, view: RunView) -> Markup:
    pieces = [
        Markup('<span style="{}">{}</span>').format(_MARKS[mark], text) if mark else Markup("{}").format(text)
        for mark, text in runs(part, view, TOKENS)
    ]
    return Markup('<pre style="white-space:pre-wrap"><b>{}</b> {}</pre>').format(part.row.arm, Markup("").join(pieces))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Markup:
    titles = Markup("").join(Markup("<th>{}</th>").format(one) for one in head)
    lines = [
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row))
        for row in rows
    ]
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(titles, Markup("").join(lines))
