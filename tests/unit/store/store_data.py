"""A small plan, captures and findings to put into stores."""

from __future__ import annotations

from typing import Any

from captures import capture, completion
from plans import rough_plan

from parity.messages import verbatim
from parity.plan import Plan
from parity.records import Capture, Finding, Key, Kind, Severity, evidence_from_json
from parity.store import ArmComparison, ArmResult, NewRun, Store

REQUESTS = 7


def make_plan(**changes: Any) -> Plan:
    value: dict[str, Any] = {
        "model": {"name": "tiny", "path": "/models/tiny", "fingerprint": {"weights": "ab"}},
        "rounds": 1,
        "sampling": {"temperature": 0.0},
        "requests": [
            {"id": f"p{i}", "prompt": f"Prompt number {i}", "prompt_token_ids": [1, 2, i]} for i in range(REQUESTS)
        ],
        "arms": [
            {"name": "cpu/base", "backend": "cpu", "variant": "base", "engine": {"seed": 0}},
            {"name": "cpu/mtp", "backend": "cpu", "variant": "mtp", "engine": {"seed": 0}},
        ],
        "baseline": "cpu/base",
        **changes,
    }
    return rough_plan(value)


def make_capture(arm: str, *, size: int = 5) -> Capture:
    completions = (
        completion(
            range(i, i + size),
            f"p{i}",
            prompt=(1, 2, i),
            text=f"text {i}",
            finish="stop" if i == 3 else "length",
            stop={3: "END", 4: 7}.get(i),
        )
        for i in range(REQUESTS)
    )
    return capture(arm, *completions, counters={"drafts": 10}, model="tiny", engine={"seed": 0, "resolved": True})


def make_finding(request: int, kind: Kind = Kind.GARBLED, position: int | None = 3, **more: Any) -> Finding:
    severity = Severity.BENIGN if kind is Kind.NEAR_TIE else Severity.CORRUPT
    evidence = evidence_from_json(kind, f"p{request}", {"why": "because", **more})
    return Finding("cpu/mtp", "cpu/base", f"p{request}", 0, 0, kind, severity, position, 2, evidence)


def make_comparison(findings: list[Finding]) -> ArmComparison:
    return ArmComparison(
        "DIVERGED" if findings else "PASS",
        [verbatim("a reason")],
        {str(f.kind): 1 for f in findings},
        {"completions": REQUESTS, "fault_rate_not_excluded": 0.1, "nan": float("nan")},
        {Key(f"p{i}", 0, 0): "identical" for i in range(REQUESTS)},
        {Key("p1", 0, 0): 3},
        findings,
    )


def store_run(store: Store, run_id: str, findings: list[Finding], **plan: Any) -> None:
    store.create_run(NewRun(run_id, make_plan(**plan), "parity run", directory="/runs/x"))
    for arm in ("cpu/base", "cpu/mtp"):
        store.save_arm(run_id, arm, make_capture(arm), f"/runs/x/{arm}", ArmResult({"drafts": 10}, 100.0, 0.8, 2.6))
    store.save_comparison(run_id, "cpu/mtp", make_comparison(findings))
