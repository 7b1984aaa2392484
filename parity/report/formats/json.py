"""A report as JSON, `parity.report/1`; `schema/report-1.schema.json` is its published schema."""

from __future__ import annotations

from importlib import resources
from typing import Any

import orjson

from parity._version import __version__
from parity.records import Json
from parity.records.emulated import proves
from parity.report import facts
from parity.report.escape import json_text, public
from parity.report.format import Document, Format
from parity.report.prose import in_markdown
from parity.report.texts import Texts
from parity.store import CompletionRow
from parity.view import ArmView, FindingView, RunView, next_commands
from parity.view.experiments import proposed
from parity.view.why_said import said

SCHEMA = "parity.report/1"
SCHEMA_FILE = "schema/report-1.schema.json"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every report of this sort keeps to."""
    loaded: dict[str, Any] = orjson.loads(resources.files("parity.report").joinpath(SCHEMA_FILE).read_bytes())
    return loaded


def json_report(view: RunView, texts: Texts | None = None) -> str:
    """The case as a JSON document in ASCII. Absolute paths are cut to their last part."""
    return json_text(report_value(view, texts or Texts())) + "\n"


def report_value(view: RunView, texts: Texts) -> dict[str, Json]:
    return {
        "schema": SCHEMA,
        "parity": __version__,
        "run": {
            "id": view.run.id,
            "source": view.run.source,
            "created": view.run.created,
            "status": str(view.run.status),
            "verdict": view.run.verdict,
            "message": None if view.run.message is None else public(str(view.run.message)),
            "reasons": [str(reason) for reason in view.run.reasons],
            "model": view.run.model,
            "baseline": view.run.baseline,
            "command": public(view.run.command),
            "plan_hash": view.run.plan_hash,
            "requests": len(view.requests),
            "sampling": dict(view.run.sampling),
        },
        "projects": view.projects,
        "suspect": None if view.suspect is None else {"name": str(view.suspect.name), "why": str(view.suspect.why)},
        "tolerance": view.tolerance,
        "arms": [_arm(arm) for arm in view.arms],
        "findings": [_finding(finding, texts) for finding in view.findings],
        "findings_total": view.total_findings,
        "inside": {
            "why": [
                {
                    **one.to_json(),
                    "said": [str(line) for line in said(one)],
                    "experiments": [public(each.to_json()) for each in some],
                }
                for one, some in zip(view.why, proposed(view, view.why), strict=True)
            ],
            "violations": [str(facts.violation(one)) for one in view.violations],
        },
        "measured": [in_markdown(line, texts.language) for line in facts.measured(view)],
        "inferred": [in_markdown(line, texts.language) for line in facts.inferred(view)],
        "not_checked": [in_markdown(line, texts.language) for line in facts.unchecked(view)],
        "notes": [str(note) for note in view.notes],
        "next": [public(one.to_json()) for one in next_commands(view)],
        "messages": {
            "reasons": [reason.to_json() for reason in view.run.reasons],
            "notes": [note.to_json() for note in view.notes],
        },
    }


def _arm(arm: ArmView) -> dict[str, Json]:
    return {
        "name": arm.name,
        "backend": arm.backend,
        "variant": arm.variant,
        "role": "baseline" if arm.is_baseline else "control" if arm.is_control else "candidate",
        "project": arm.project,
        **({"emulated": str(proves(arm.name))} if arm.emulated else {}),
        "status": arm.status,
        "message": None if arm.message is None else public(str(arm.message)),
        "verdict": arm.verdict,
        "reasons": [str(reason) for reason in arm.reasons],
        "completions": arm.completions,
        "classes": {} if arm.is_baseline else dict(arm.classes),
        "corrupt": dict(arm.corrupt),
        "shortest": min(arm.lengths, default=None),
        "longest": max(arm.lengths, default=None),
        "tokens_per_second": arm.tokens_per_second,
        "acceptance_rate": arm.acceptance_rate,
        "acceptance_length": arm.acceptance_length,
        "versions": arm.versions,
        "engine": public(arm.settings),
        "environment": public(dict(arm.environment)),
        "stats": dict(arm.stats),
    }


def _finding(finding: FindingView, texts: Texts) -> dict[str, Json]:
    return {
        "id": finding.id,
        "fingerprint": finding.fingerprint,
        "arm": finding.arm,
        "request": finding.request,
        "round": finding.key.round,
        "sample": finding.key.sample,
        "kind": finding.kind,
        "kind_in_words": texts.kind(finding.kind),
        "severity": finding.severity,
        "position": finding.position,
        "length": finding.length,
        "gap": finding.gap,
        "state": finding.state,
        "note": finding.note,
        "first_divergence": finding.first_divergence,
        "evidence": finding.evidence.to_json(),
        "prompt": finding.asked.prompt if finding.asked else None,
        "prompt_token_ids": finding.asked.prompt_token_ids.tolist() if finding.asked else None,
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


FORMAT = Format(lambda view, wanted: [Document(json_report(view, wanted.texts))])
