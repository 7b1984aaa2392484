"""A GitHub step summary: what `$GITHUB_STEP_SUMMARY` wants, short, in Markdown, below the 1 MiB it may have."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parity.report import facts
from parity.report.case import Case, FindingCase
from parity.report.escape import code, inline, table
from parity.report.format import Document, Format
from parity.report.formats.md import arms_table, example
from parity.report.texts import Texts

ROWS = 50
LARGEST = 1_000_000
"""Bytes; GitHub refuses a summary above 1 MiB."""
_SIGNS = {"PASS": "✅", "DIVERGED": "❌", "INCONCLUSIVE": "⚠", "ERROR": "💥"}


def step_summary(
    case: Case, texts: Texts | None = None, *, allowed: Collection[str] = (), broken: Sequence[str] = ()
) -> str:
    """The run for a CI page. Findings whose fingerprint is in `allowed` are counted, not listed."""
    texts = texts or Texts()
    verdict = case.run.verdict or str(case.run.status)
    parts = [f"## parity: {_SIGNS.get(verdict, '')} {inline(verdict)}"]
    parts += [inline(texts.said(reason)) for reason in case.run.reasons]
    if broken:
        parts.append("\n".join(f"- {inline(line)}" for line in broken))
    parts.append(arms_table(case, texts))
    shown = [finding for finding in case.corrupt_findings() if finding.row.fingerprint not in allowed]
    if shown:
        parts.append(f"### {texts('heading.findings')}\n\n{_table(shown[:ROWS], texts)}")
        parts += list(example(case, shown[0], texts))
    ignored = len(case.corrupt_findings()) - len(shown)
    if ignored:
        parts.append(texts("github.allowed", count=ignored))
    if len(shown) > ROWS:
        parts.append(texts("github.more", count=len(shown) - ROWS, run=case.run.id))
    limits = "\n".join(f"- {line}" for line in facts.unchecked(case, texts))
    parts.append(f"<details>\n<summary>{texts('heading.unchecked')}</summary>\n\n{limits}\n\n</details>")
    return _fitting(parts)


def _table(findings: Sequence[FindingCase], texts: Texts) -> str:
    rows = [
        [
            code(finding.row.kind),
            code(finding.row.arm),
            code(finding.row.key),
            "-" if finding.row.position is None else str(finding.row.position),
            "-" if finding.row.gap is None else f"{finding.row.gap:.2f}",
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
    lambda case, wanted: [Document(step_summary(case, wanted.texts, allowed=wanted.allowed, broken=wanted.broken))],
    for_readers=True,
)
