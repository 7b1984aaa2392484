"""A GitHub step summary: what `$GITHUB_STEP_SUMMARY` wants, short, in Markdown, below the 1 MiB it may have."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parity.report import facts
from parity.report.escape import code, inline, table
from parity.report.examples import example
from parity.report.format import Document, Format
from parity.report.formats.md import arms_table
from parity.report.prose import in_markdown
from parity.report.texts import Texts
from parity.view import FindingView, RunView

ROWS = 50
LARGEST = 1_000_000
"""Bytes; GitHub refuses a summary above 1 MiB."""
_SIGNS = {"PASS": "✅", "DIVERGED": "❌", "INCONCLUSIVE": "⚠", "ERROR": "💥"}


def step_summary(
    view: RunView, texts: Texts | None = None, *, allowed: Collection[str] = (), broken: Sequence[str] = ()
) -> str:
    """The run for a CI page. Findings whose fingerprint is in `allowed` are counted, not listed."""
    texts = texts or Texts()
    verdict = view.run.verdict or str(view.run.status)
    parts = [f"## parity: {_SIGNS.get(verdict, '')} {inline(verdict)}"]
    parts += [in_markdown(reason, texts.language) for reason in view.run.reasons]
    if broken:
        parts.append("\n".join(f"- {inline(line)}" for line in broken))
    parts.append(arms_table(view, texts))
    shown = [finding for finding in view.corrupt if finding.fingerprint not in allowed]
    if shown:
        parts.append(f"### {texts('heading.findings')}\n\n{_table(shown[:ROWS], texts)}")
        parts += list(example(view, shown[0], texts))
    ignored = len(view.corrupt) - len(shown)
    if ignored:
        parts.append(texts("github.allowed", count=ignored))
    if len(shown) > ROWS:
        parts.append(texts("github.more", count=len(shown) - ROWS, run=view.run.id))
    limits = "\n".join(f"- {in_markdown(line, texts.language)}" for line in facts.unchecked(view))
    parts.append(f"<details>\n<summary>{texts('heading.unchecked')}</summary>\n\n{limits}\n\n</details>")
    return _fitting(parts)


def _table(findings: Sequence[FindingView], texts: Texts) -> str:
    rows = [
        [
            code(finding.kind),
            code(finding.arm),
            code(finding.key),
            "-" if finding.position is None else str(finding.position),
            "-" if finding.gap is None else f"{finding.gap:.2f}",
            inline(texts.said(finding.why)[:300]),
        ]
        for finding in findings
    ]
    return table([texts(f"column.{name}") for name in ("kind", "arm", "request", "position", "gap", "why")], rows)


def _fitting(parts: Sequence[str]) -> str:
    kept: list[str] = []
    size = 0
    for part in parts:
        size += len(part.encode()) + 2
        if size > LARGEST:
            break
        kept.append(part)
    return "\n\n".join(kept) + "\n"


FORMAT = Format(
    lambda view, wanted: [Document(step_summary(view, wanted.texts, allowed=wanted.allowed, broken=wanted.broken))],
    for_readers=True,
)
