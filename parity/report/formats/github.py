"""A GitHub step summary: what `$GITHUB_STEP_SUMMARY` wants, short, in Markdown, below the 1 MiB it may have."""

from __future__ import annotations

from collections.abc import Sequence

from parity.report import facts
from parity.report.background import of_what_is_open, what_next
from parity.report.escape import block, code, inline, table, without_paths
from parity.report.examples import example
from parity.report.format import Document, Format, Wanted
from parity.report.formats.md import arms_table
from parity.report.prose import in_markdown
from parity.report.sections import sections_in_markdown
from parity.report.texts import Texts
from parity.view import FindingView, RunView

ROWS = 50
LARGEST = 1_000_000
"""Bytes; GitHub refuses a summary above 1 MiB."""
_SIGNS = {"PASS": "✅", "DIVERGED": "❌", "INCONCLUSIVE": "⚠", "ERROR": "💥"}


def step_summary(view: RunView, wanted: Wanted | None = None) -> str:
    """The run for a CI page. The headline is the policy's verdict where there is one; what it allows is counted with
    its reasons, not listed."""
    wanted = wanted or Wanted(Texts())
    texts = wanted.texts
    own = view.run.verdict or str(view.run.status)
    verdict = wanted.verdict or own
    parts = [f"## parity: {_SIGNS.get(verdict, '')} {inline(verdict)}"]
    if wanted.verdict is not None:
        parts.append(texts("github.policy", policy=inline(verdict), run=inline(own)))
    if wanted.broken:
        parts.append("\n".join(f"- {inline(line)}" for line in wanted.broken))
    parts += [in_markdown(reason, texts.language) for reason in view.run.reasons]
    parts += failures(view, texts)
    parts.append(arms_table(view, texts))
    shown = [finding for finding in view.corrupt if finding.fingerprint not in wanted.allowed]
    if shown:
        parts.append(f"### {texts('heading.findings')}\n\n{_table(shown[:ROWS], texts)}")
        parts += sections_in_markdown(example(view, shown[0]), view, texts)
    if of_what_is_open(view):
        parts += what_next(view, texts)
    if len(shown) > ROWS:
        parts.append(texts("github.more", count=len(shown) - ROWS, run=view.run.id))
    if wanted.reasons:
        reasons = [f"- {code(mark)}: {inline(why)}" for mark, why in list(wanted.reasons.items())[:ROWS]]
        parts.append("\n".join([texts("github.allowed", count=len(wanted.reasons)), "", *reasons]))
    limits = "\n".join(f"- {in_markdown(line, texts.language)}" for line in facts.unchecked(view))
    parts.append(f"<details>\n<summary>{texts('heading.unchecked')}</summary>\n\n{limits}\n\n</details>")
    return _fitting(parts)


def failures(view: RunView, texts: Texts) -> list[str]:
    """Why the run, or an arm of it, failed."""
    return [f"{code(name)}:\n\n{block(without_paths(texts.said(said)))}" for name, said in facts.failures(view)]


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


FORMAT = Format(lambda view, wanted: [Document(step_summary(view, wanted))], for_readers=True)
