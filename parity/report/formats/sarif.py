"""SARIF 2.1.0: findings as results of a static analysis, for viewers and code scanning that read it.

The artifact of a result is the capture file of the arm, the region the line of the completion in it (where
the file is at hand); the logical location names arm, request and token.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from parity._version import __version__
from parity.capture import read_capture
from parity.errors import ParityError
from parity.records import Json, Key
from parity.records.kinds import Kind, kinds
from parity.report.escape import json_text
from parity.report.format import Document, Format
from parity.report.texts import Texts
from parity.store import TriageState
from parity.text import visible
from parity.view import FindingView, RunView

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_log(view: RunView, texts: Texts | None = None, *, allowed: frozenset[str] = frozenset()) -> str:
    """The findings as a SARIF log; those triaged as benign or duplicate, or `allowed`, are suppressed."""
    texts = texts or Texts()
    rules = kinds()
    lines = {arm.name: _lines(arm.capture) for arm in view.arms if any(f.arm == arm.name for f in view.findings)}
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "parity",
                        "version": __version__,
                        "rules": [_rule(kind, texts) for kind in rules],
                    }
                },
                "automationDetails": {"id": f"parity/{visible(view.run.model)}/{view.run.id}"},
                "invocations": [
                    {"executionSuccessful": view.run.verdict not in (None, "ERROR"), "startTimeUtc": _time(view)}
                ],
                "results": [_result(view, finding, lines, rules, texts, allowed) for finding in view.findings],
                "columnKind": "unicodeCodePoints",
                "properties": {
                    "verdict": view.run.verdict,
                    "reasons": [visible(str(one)) for one in view.run.reasons],
                    "findings_total": view.total_findings,
                    **({"emulated": names} if (names := [arm.name for arm in view.arms if arm.emulated]) else {}),
                },
            }
        ],
    }
    return json_text(log) + "\n"


def _rule(kind: Kind, texts: Texts) -> dict[str, Json]:
    return {
        "id": str(kind),
        "name": "".join(part.capitalize() for part in str(kind).split("_")),
        "shortDescription": {"text": texts.kind(str(kind))},
        "defaultConfiguration": {"level": kind.row.level},
    }


def _result(
    view: RunView,
    finding: FindingView,
    lines: dict[str, dict[Key, int]],
    rules: list[Kind],
    texts: Texts,
    allowed: frozenset[str],
) -> dict[str, Json]:
    where = "" if finding.position is None else f", token {finding.position}"
    text = f"{texts.kind(finding.kind)} in {finding.arm}, request {finding.key}{where}: {finding.why}"
    name = f"{finding.arm}/{finding.request}/{finding.key.round}/{finding.key.sample}" + (
        "" if finding.position is None else f"/{finding.position}"
    )
    result: dict[str, Json] = {
        "ruleId": finding.kind,
        "level": "error" if finding.is_corrupt else "note",
        "kind": "fail",
        "message": {"text": _message(text)},
        "locations": [
            {
                "physicalLocation": _place(view, finding, lines),
                "logicalLocations": [{"fullyQualifiedName": visible(name), "kind": "element"}],
            }
        ],
        "partialFingerprints": {"parity/v1": finding.fingerprint},
        "properties": {
            "gap": finding.gap,
            "length": finding.length,
            "first_divergence": finding.first_divergence,
            "state": finding.state,
        },
    }
    if finding.kind in rules:
        result["ruleIndex"] = rules.index(Kind(finding.kind))
    if finding.state in (TriageState.BENIGN, TriageState.DUPLICATE) or finding.fingerprint in allowed:
        note = finding.note or finding.state
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": visible(note)}]
    return result


def _place(view: RunView, finding: FindingView, lines: dict[str, dict[Key, int]]) -> dict[str, Json]:
    arm = finding.arm
    path = view.arm(arm).capture
    name = Path(path).name if path else f"{arm.replace('/', '-')}.jsonl"
    place: dict[str, Json] = {"artifactLocation": {"uri": quote(visible(name))}}
    # Viewers that show results in files want a line; the header is there where nothing better is known.
    place["region"] = {"startLine": lines.get(arm, {}).get(finding.key) or 1}
    return place


def _lines(capture: str | None) -> dict[Key, int]:
    """Line of each completion in a capture that is still there and readable; SARIF does without otherwise."""
    if capture is None or not Path(capture).is_file():
        return {}
    try:
        return {completion.key: completion.line for completion in read_capture(Path(capture), partial=True)}
    except ParityError:
        return {}


def _message(text: str) -> str:
    """SARIF messages may hold links in square brackets, and braces are places for arguments."""
    shown = visible(text).replace("\\", "\\\\")
    return shown.replace("[", "\\[").replace("]", "\\]").replace("{", "{{").replace("}", "}}")


def _time(view: RunView) -> str:
    return view.run.created[:19].replace(" ", "T") + "Z"


FORMAT = Format(lambda view, wanted: [Document(sarif_log(view, wanted.texts, allowed=wanted.allowed))])
