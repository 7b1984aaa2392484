"""Workflow commands of GitHub Actions: lines on stdout that become annotations of the run.

GitHub shows ten of each level for a step, so the policy's verdict comes first and the findings worst first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parity.report import facts
from parity.report.escape import without_paths
from parity.report.format import Document, Format, Wanted
from parity.text import visible
from parity.view import RunView

SHOWN = 9
"""Findings; one line more says what the run came to."""
LEVELS = {"PASS": "notice", "INCONCLUSIVE": "warning"}
"""By verdict; the others are errors."""
LONGEST = 1_000
"""Characters of a message."""


def workflow_commands(view: RunView, wanted: Wanted) -> str:
    """A line for the verdict, for each failure, and for each finding that is not allowed."""
    return "".join(f"{line}\n" for line in _lines(view, wanted))


def _lines(view: RunView, wanted: Wanted) -> Iterator[str]:
    texts = wanted.texts
    verdict = wanted.verdict or view.run.verdict or str(view.run.status)
    reasons: Sequence[str] = wanted.broken or [texts.said(one) for one in view.run.reasons]
    level = LEVELS.get(verdict, "error")
    if not reasons and (lost := facts.failed(view)) is not None:
        reasons = [texts.said(lost[1])]
    why = "; ".join(reasons) if verdict != "PASS" else ""
    yield command(level, f"parity: {verdict}", why or str(view.question))
    for name, said in facts.failures(view):
        yield command("error", f"parity: {name}", without_paths(texts.said(said)))
    shown = [one for one in view.corrupt if one.fingerprint not in wanted.allowed]
    for one in shown[:SHOWN] if verdict != "PASS" else []:
        where = "" if one.position is None else f", token {one.position}"
        text = f"{one.arm}, {one.key}{where}: {texts.said(one.why)} (fingerprint {one.fingerprint})"
        yield command("error", f"parity: {texts.kind(one.kind)}", text)


def command(level: str, title: str, text: str) -> str:
    """As the runner reads it (`actions/toolkit`, `command.ts`): no text can end the line or begin another command."""
    head = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={head}::{_escaped(text[:LONGEST])}"


def _escaped(text: str) -> str:
    shown = visible(text, keep="\n")
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


FORMAT = Format(lambda view, wanted: [Document(workflow_commands(view, wanted))], for_readers=True)
