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
from parity.report.case import Case, FindingCase
from parity.report.escape import json_text
from parity.report.format import Document, Format
from parity.report.texts import Texts
from parity.store import TriageState
from parity.text import visible

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_log(case: Case, texts: Texts | None = None, *, allowed: frozenset[str] = frozenset()) -> str:
    """The findings as a SARIF log; those triaged as benign or duplicate, or `allowed`, are suppressed."""
    texts = texts or Texts()
    rules = kinds()
    lines = {
        arm.name: _lines(arm.row.capture) for arm in case.arms if any(f.row.arm == arm.name for f in case.findings)
    }
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
                "automationDetails": {"id": f"parity/{visible(case.run.model)}/{case.run.id}"},
                "invocations": [
                    {"executionSuccessful": case.run.verdict not in (None, "ERROR"), "startTimeUtc": _time(case)}
                ],
                "results": [_result(case, finding, lines, rules, texts, allowed) for finding in case.findings],
                "columnKind": "unicodeCodePoints",
                "properties": {
                    "verdict": case.run.verdict,
                    "reasons": [visible(one) for one in case.run.reasons],
                    "findings_total": case.total_findings,
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
    case: Case,
    finding: FindingCase,
    lines: dict[str, dict[Key, int]],
    rules: list[Kind],
    texts: Texts,
    allowed: frozenset[str],
) -> dict[str, Json]:
    row = finding.row
    where = "" if row.position is None else f", token {row.position}"
    text = f"{texts.kind(row.kind)} in {row.arm}, request {row.key}{where}: {finding.why}"
    name = f"{row.arm}/{row.request}/{row.round}/{row.sample}" + ("" if row.position is None else f"/{row.position}")
    result: dict[str, Json] = {
        "ruleId": row.kind,
        "level": "error" if finding.is_corrupt else "note",
        "kind": "fail",
        "message": {"text": _message(text)},
        "locations": [
            {
                "physicalLocation": _place(case, finding, lines),
                "logicalLocations": [{"fullyQualifiedName": visible(name), "kind": "element"}],
            }
        ],
        "partialFingerprints": {"parity/v1": row.fingerprint},
        "properties": {
            "gap": row.gap,
            "length": row.length,
            "first_divergence": finding.first_divergence,
            "state": str(row.state),
        },
    }
    if row.kind in rules:
        result["ruleIndex"] = rules.index(Kind(row.kind))
    if row.state in (TriageState.BENIGN, TriageState.DUPLICATE) or row.fingerprint in allowed:
        note = finding.triage.note or str(row.state)
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": visible(note)}]
    return result


def _place(case: Case, finding: FindingCase, lines: dict[str, dict[Key, int]]) -> dict[str, Json]:
    arm = finding.row.arm
    path = case.arm(arm).row.capture
    name = Path(path).name if path else f"{arm.replace('/', '-')}.jsonl"
    place: dict[str, Json] = {"artifactLocation": {"uri": quote(visible(name))}}
    # Viewers that show results in files want a line; the header is there where nothing better is known.
    place["region"] = {"startLine": lines.get(arm, {}).get(finding.row.key) or 1}
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


def _time(case: Case) -> str:
    return case.run.created[:19].replace(" ", "T") + "Z"


FORMAT = Format(lambda case, wanted: [Document(sarif_log(case, wanted.texts, allowed=wanted.allowed))])
