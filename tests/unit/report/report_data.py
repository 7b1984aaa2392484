"""Cases made of rows, without a store: any text can stand in any place."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.records import Key
from parity.report.case import ArmCase, Case, FindingCase
from parity.store import ArmRow, CompletionRow, FindingRow, RequestRow, RunRow, RunStatus, Triage, TriageState

BASE, MTP = "cpu/base", "cpu/mtp"
EXPECTED = np.array([5, 6, 7, 8, 9, 10], dtype=np.int64)
ACTUAL = np.array([5, 6, 99, 98, 9, 10], dtype=np.int64)


def run_row(text: str = "tiny-qwen3-next-mtp", **changes: Any) -> RunRow:
    values: dict[str, Any] = {
        "id": "20261121-000000-abcd",
        "source": "run",
        "created": "2026-11-21T00:00:00.000+00:00",
        "finished": "2026-11-21T00:01:00.000+00:00",
        "status": RunStatus.FINISHED,
        "verdict": "DIVERGED",
        "reasons": (f"1 of 2 completions are corrupt: {text}",),
        "message": None,
        "model": text,
        "baseline": BASE,
        "plan": {
            "model": {"name": text, "path": "/nowhere/model"},
            "rounds": 1,
            "sampling": {"temperature": 0.0, "max_tokens": 6, "n": 1, "skip_special_tokens": True},
            "arms": [
                {"name": BASE, "engine": {"dtype": "bfloat16", "max_num_seqs": 4}, "env": {"A": text}},
                {
                    "name": MTP,
                    "engine": {
                        "dtype": "bfloat16",
                        "max_num_seqs": 4,
                        "disable_log_stats": False,
                        "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
                    },
                    "env": {"A": text, "PARITY_FAULT": "loop"},
                },
            ],
        },
        "plan_hash": "ab" * 32,
        "command": f"parity run --prompts /srv/someone/secret/prompts.txt {text}",
        "versions": {"parity": "0.1.0"},
        "directory": None,
        "duration": 60.0,
        **changes,
    }
    return RunRow(**values)


def arm_row(name: str, text: str = "x", **changes: Any) -> ArmRow:
    backend, _, variant = name.partition("/")
    baseline = changes.pop("is_baseline", name == BASE)
    values: dict[str, Any] = {
        "id": 1,
        "run": "20261121-000000-abcd",
        "name": name,
        "backend": backend,
        "variant": variant,
        "is_baseline": baseline,
        "status": "captured" if baseline else "compared",
        "message": None,
        "capture": None,
        "engine": {"asked": {"max_num_seqs": 4}, "async_scheduling": False, "note": text},
        "environment": {
            "python": "3.11.7",
            "platform": text,
            "versions": {"vllm": "0.32.0", "torch": "2.13.0"},
            "variables": {"LD_PRELOAD": "/srv/someone/lib/libomp.so", "HF_TOKEN": "hf_secret", "NOTE": text},
        },
        "counters": None,
        "verdict": None if baseline else "DIVERGED",
        "reasons": (),
        "counts": {},
        "stats": {
            "tolerance": 0.25,
            "fault_rate_not_excluded": 0.5,
            "floor": {"tokens": 12, "largest_gap": 0.03},
            "exercised": {"draft_tokens": 10, "accepted_tokens": 7},
        },
        "tokens_per_second": 1234.5,
        "acceptance_rate": None if baseline else 0.7,
        "acceptance_length": None if baseline else 2.4,
        **changes,
    }
    return ArmRow(**values)


def arm_case(name: str, text: str = "x", *, corrupt: bool | None = None, **changes: Any) -> ArmCase:
    bad = name != BASE if corrupt is None else corrupt
    classes = {"": 2} if name == BASE else {"identical": 1, "corrupt": 1} if bad else {"identical": 2}
    changes = {**({} if bad or name == BASE else {"verdict": "PASS"}), **changes}
    return ArmCase(
        arm_row(name, text, **changes),
        classes,
        {"garbled": 1} if bad else {},
        2,
        {Key("p0", 0, 0): 6, Key("p1", 0, 0): 6},
    )


def finding_case(text: str = "x", *, arm: str = MTP, **changes: Any) -> FindingCase:
    values: dict[str, Any] = {
        "id": 7,
        "run": "20261121-000000-abcd",
        "arm": arm,
        "ordinal": 0,
        "request": f"p0 {text}" if text != "x" else "p0",
        "round": 0,
        "sample": 0,
        "kind": "garbled",
        "severity": "corrupt",
        "position": 2,
        "length": 2,
        "gap": 7.5,
        "state": TriageState.NEW,
        "evidence": {
            "why": f"2 of 2 tokens are not supported by the reference {text}",
            "gap": 7.5,
            "tolerance": 0.25,
            "candidate_token": 99,
            "logprobs": {"reference": [[7, -0.1], [8, -2.0], [99, -7.6]], "candidate": None, "baseline": None},
        },
        "fingerprint": "0123456789abcdef0123",
    }
    known = {key: changes.pop(key) for key in list(changes) if key in FindingRow.__dataclass_fields__}
    row = FindingRow(**{**values, **known})

    def stream(name: str, ids: Any) -> CompletionRow:
        return CompletionRow(name, row.request, 0, 0, len(ids), text[:8] or "length", text, "corrupt", 2, text, ids)

    return FindingCase(
        row,
        changes.pop("triage", Triage(note=text)),
        RequestRow(0, row.request, text, np.array([1, 2, 3], dtype=np.int64)),
        stream(BASE, EXPECTED),
        stream(arm, ACTUAL),
    )


def make_case(text: str = "x", **changes: Any) -> Case:
    """A run with one corrupt finding; `text` stands wherever somebody else's text may stand."""
    finding = changes.pop("finding", finding_case(text))
    values: dict[str, Any] = {
        "run": run_row() if text == "x" else run_row(text),
        "arms": [arm_case(BASE, text), arm_case(MTP, text)],
        "findings": [finding] if finding is not None else [],
        "total_findings": 1 if finding is not None else 0,
        "chosen": finding,
        "asked_for_finding": False,
        "requests": [
            RequestRow(0, finding.row.request if finding else "p0", text, np.array([1, 2, 3], dtype=np.int64)),
            RequestRow(1, "p1", "second", np.array([4, 5], dtype=np.int64)),
        ],
        "siblings": (),
        "notes": (text,),
        **changes,
    }
    return Case(**values)
