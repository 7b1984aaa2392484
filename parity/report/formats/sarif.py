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
from parity.files import is_file
from parity.records import Json, Key
from parity.records.kinds import Kind, kinds
from parity.report import facts
from parity.report.escape import json_text, without_paths
from parity.report.format import Document, Format, Wanted
from parity.report.texts import Texts
from parity.store import TriageState
from parity.text import visible
from parity.view import FindingView, RunView

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_log(view: RunView, wanted: Wanted | None = None) -> str:
    """The corrupt findings as a SARIF log; those triaged as benign or duplicate, or allowed, are suppressed."""
    wanted = wanted or Wanted(Texts())
    texts = wanted.texts
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
                "invocations": [_invocation(view)],
                # What is benign is none: code scanning would open an alert for it.
                "results": [_result(view, finding, lines, rules, texts, wanted) for finding in view.corrupt],
                "columnKind": "unicodeCodePoints",
                "properties": {
                    "verdict": view.run.verdict,
                    "benign": view.total_findings - len(view.corrupt),
                    **({"policy": wanted.verdict, "broken": list(wanted.broken)} if wanted.judgement else {}),
                    "reasons": [visible(str(one)) for one in view.run.reasons],
                    "findings_total": view.total_findings,
                    **({"emulated": names} if (names := [arm.name for arm in view.arms if arm.emulated]) else {}),
                },
            }
        ],
    }
    return json_text(log) + "\n"


def _invocation(view: RunView) -> dict[str, Json]:
    """Whether it ran and came to a conclusion, and why not."""
    said = [
        {
            "level": "error",
            "message": {"text": _lines_of(name, without_paths(str(why)))},
            "descriptor": {"id": "parity/failed"},
        }
        for name, why in facts.failures(view)
    ]
    if view.run.verdict == "INCONCLUSIVE":  # without results, and none of them says that nothing is wrong
        said += [
            {
                "level": "warning",
                "message": {"text": _message(f"INCONCLUSIVE: {without_paths(str(why))}")},
                "descriptor": {"id": "parity/inconclusive"},
            }
            for why in view.run.reasons
        ]
    found: dict[str, Json] = {
        "executionSuccessful": view.run.verdict not in (None, "ERROR"),
        "startTimeUtc": _time(view),
    }
    return {**found, "toolExecutionNotifications": said} if said else found


def _rule(kind: Kind, texts: Texts) -> dict[str, Json]:
    question = texts.said(kind.row.question)
    return {
        "fullDescription": {"text": f"{texts.kind(str(kind))}. {question}"},
        "help": {
            "text": f"{question} Defined in docs/{kind.row.anchor}. `parity tui` shows it, `parity report FINGERPRINT` "
            "writes it down.",
            "markdown": f"{question}\n\nDefined in `docs/{kind.row.anchor}`. `parity tui` shows it, "
            "`parity report FINGERPRINT` writes it down.",
        },
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
    wanted: Wanted,
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
        # GitHub takes the first for whether an alert is the one of before; else it would hash the line of a file.
        "partialFingerprints": {
            "primaryLocationLineHash": f"{finding.fingerprint}:1",
            "parity/v1": finding.fingerprint,
        },
        "properties": {
            "gap": finding.gap,
            "length": finding.length,
            "first_divergence": finding.first_divergence,
            "state": finding.state,
        },
    }
    if finding.kind in rules:
        result["ruleIndex"] = rules.index(Kind(finding.kind))
    passed_over = wanted.passed_over(finding)
    if finding.state in (TriageState.BENIGN, TriageState.DUPLICATE, TriageState.KNOWN) or passed_over is not None:
        note = passed_over or finding.note or finding.state
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
    if capture is None or not is_file(Path(capture)):
        return {}
    try:
        return {completion.key: completion.line for completion in read_capture(Path(capture), partial=True)}
    except ParityError:
        return {}


def _lines_of(name: str, text: str) -> str:
    """Of a failure, which ends with lines of a log; the name once."""
    named = text if text.startswith(name) else f"{name}: {text}"
    return "\n".join(map(_message, named.split("\n")))


def _message(text: str) -> str:
    """SARIF messages may hold links in square brackets, and braces are places for arguments."""
    shown = visible(text).replace("\\", "\\\\")
    return shown.replace("[", "\\[").replace("]", "\\]").replace("{", "{{").replace("}", "}}")


def _time(view: RunView) -> str:
    return view.run.created[:19].replace(" ", "T") + "Z"


FORMAT = Format(lambda view, wanted: [Document(sarif_log(view, wanted))])
