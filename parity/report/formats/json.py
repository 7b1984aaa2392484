"""A report as JSON, `parity.report/1`; `schema/report-1.schema.json` is its published schema."""

from __future__ import annotations

from importlib import resources
from typing import Any

import orjson

from parity._version import __version__
from parity.records import Json
from parity.report import facts
from parity.report.case import ArmCase, Case, FindingCase
from parity.report.escape import json_text, public
from parity.report.format import Document, Format
from parity.report.texts import Texts
from parity.store import CompletionRow

SCHEMA = "parity.report/1"
SCHEMA_FILE = "schema/report-1.schema.json"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every report of this sort keeps to."""
    loaded: dict[str, Any] = orjson.loads(resources.files("parity.report").joinpath(SCHEMA_FILE).read_bytes())
    return loaded


def json_report(case: Case, texts: Texts | None = None) -> str:
    """The case as a JSON document in ASCII. Absolute paths are cut to their last part."""
    return json_text(report_value(case, texts or Texts())) + "\n"


def report_value(case: Case, texts: Texts) -> dict[str, Json]:
    return {
        "schema": SCHEMA,
        "parity": __version__,
        "run": {
            "id": case.run.id,
            "source": case.run.source,
            "created": case.run.created,
            "status": str(case.run.status),
            "verdict": case.run.verdict,
            "reasons": list(case.run.reasons),
            "model": case.run.model,
            "baseline": case.run.baseline,
            "command": public(case.run.command),
            "plan_hash": case.run.plan_hash,
            "requests": len(case.requests),
            "sampling": dict(case.sampling),
        },
        "projects": case.projects,
        "suspect": None if case.suspect is None else {"name": case.suspect.name, "why": case.suspect.why},
        "tolerance": case.tolerance,
        "arms": [_arm(arm) for arm in case.arms],
        "findings": [_finding(finding, texts) for finding in case.findings],
        "findings_total": case.total_findings,
        "measured": list(facts.measured(case, texts)),
        "inferred": list(facts.inferred(case, texts)),
        "not_checked": list(facts.unchecked(case, texts)),
        "notes": list(case.notes),
    }


def _arm(arm: ArmCase) -> dict[str, Json]:
    row = arm.row
    return {
        "name": arm.name,
        "backend": row.backend,
        "variant": row.variant,
        "role": "baseline" if row.is_baseline else "control" if arm.is_control else "candidate",
        "project": arm.project,
        "status": row.status,
        "message": public(row.message),
        "verdict": row.verdict,
        "reasons": list(row.reasons),
        "completions": arm.completions,
        "classes": {} if row.is_baseline else dict(arm.classes),
        "corrupt": dict(arm.corrupt),
        "shortest": min(arm.lengths, default=None),
        "longest": max(arm.lengths, default=None),
        "tokens_per_second": row.tokens_per_second,
        "acceptance_rate": row.acceptance_rate,
        "acceptance_length": row.acceptance_length,
        "versions": arm.versions,
        "engine": public(facts.settings(arm)),
        "environment": public(dict(row.environment)),
        "stats": dict(row.stats),
    }


def _finding(finding: FindingCase, texts: Texts) -> dict[str, Json]:
    row = finding.row
    return {
        "id": row.id,
        "fingerprint": row.fingerprint,
        "arm": row.arm,
        "request": row.request,
        "round": row.round,
        "sample": row.sample,
        "kind": row.kind,
        "kind_in_words": texts.kind(row.kind),
        "severity": row.severity,
        "position": row.position,
        "length": row.length,
        "gap": row.gap,
        "state": str(row.state),
        "note": finding.triage.note,
        "first_divergence": finding.first_divergence,
        "evidence": dict(row.evidence),
        "prompt": finding.request.prompt if finding.request else None,
        "prompt_token_ids": finding.request.prompt_token_ids.tolist() if finding.request else None,
        "baseline": _stream(finding.baseline),
        "candidate": _stream(finding.candidate),
    }


def _stream(stream: CompletionRow | None) -> dict[str, Json] | None:
    if stream is None:
        return None
    return {
        "token_ids": stream.token_ids.tolist(),
        "text": stream.text,
        "finish_reason": stream.finish_reason,
        "stop_reason": stream.stop_reason,
    }


FORMAT = Format(lambda case, wanted: [Document(json_report(case, wanted.texts))])
