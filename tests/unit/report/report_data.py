"""Views made by hand, without a store: any text can stand in any place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from parity.messages import verbatim
from parity.records import Key, evidence_from_json
from parity.store import CompletionRow, RequestRow
from parity.store.endings import Tally
from parity.view import ArmView, Figures, FindingView, Run, RunView

BASE, MTP = "cpu/base", "cpu/mtp"
EXPECTED = np.array([5, 6, 7, 8, 9, 10], dtype=np.int64)
ACTUAL = np.array([5, 6, 99, 98, 9, 10], dtype=np.int64)
KEYS = (Key("p0", 0, 0), Key("p1", 0, 0))


def run_of(text: str = "tiny-qwen3-next-mtp", **changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": "20261121-000000-abcd",
        "source": "run",
        "created": "2026-11-21T00:00:00.000+00:00",
        "status": "finished",
        "verdict": "DIVERGED",
        "reasons": (verbatim(f"1 of 2 completions are corrupt: {text}"),),
        "message": None,
        "model": text,
        "model_path": Path("/nowhere/model"),
        "baseline": BASE,
        "command": f"parity run --prompts /srv/someone/secret/prompts.txt {text}",
        "plan_hash": "ab" * 32,
        "directory": None,
        "duration": 60.0,
        "rounds": 1,
        "samples": 1,
        "sampling": {"temperature": 0.0, "max_tokens": 6, "n": 1, "skip_special_tokens": True},
        "churn": {},
        **changes,
    }
    return Run(**values)


def arm_case(name: str, text: str = "x", *, corrupt: bool | None = None, **changes: Any) -> ArmView:
    backend, _, variant = name.partition("/")
    baseline = name == BASE
    bad = not baseline if corrupt is None else corrupt
    speculative = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
    classes = {"": 2} if baseline else {"identical": 1, "corrupt": 1} if bad else {"identical": 2}
    values: dict[str, Any] = {
        "name": name,
        "backend": backend,
        "variant": variant,
        "is_baseline": baseline,
        "control": None,
        "status": "captured" if baseline else "compared",
        "message": None,
        "capture": None,
        "config": f"k=0, note={text}",
        "planned": {"dtype": "bfloat16", "max_num_seqs": 4}
        | ({} if baseline else {"disable_log_stats": False, **speculative}),
        "variables": {"A": text} | ({} if baseline else {"PARITY_FAULT": "loop"}),
        "engine": {"asked": {"max_num_seqs": 4}, "async_scheduling": False, "note": text},
        "environment": {
            "python": "3.11.7",
            "platform": text,
            "versions": {"vllm": "0.32.0", "torch": "2.13.0"},
            "variables": {"LD_PRELOAD": "/srv/someone/lib/libomp.so", "HF_TOKEN": "hf_secret", "NOTE": text},
        },
        "verdict": None if baseline else "DIVERGED" if bad else "PASS",
        "reasons": (),
        "notes": (verbatim(text),),
        "figures": Figures(
            tolerance=0.25,
            not_excluded=0.5,
            floor_gap=0.03,
            floor_tokens=12,
            drafted=10,
            accepted=7,
            kinds=(("garbled", 1),) if bad else (),
        ),
        "stats": {},
        "tally": tuple(Tally(0, 6, "length", cls, count) for cls, count in classes.items()),
        "corrupt": {"garbled": 1} if bad else {},
        "counters": {},
        "tokens_per_second": 1234.5,
        "acceptance_rate": None if baseline else 0.7,
        "acceptance_length": None if baseline else 2.4,
        **changes,
    }
    return ArmView(**values)


def finding_case(text: str = "x", *, arm: str = MTP, request: str | None = None, **changes: Any) -> FindingView:
    name = request or (f"p0 {text}" if text != "x" else "p0")

    def stream(arm: str, ids: Any) -> CompletionRow:
        return CompletionRow(arm, name, 0, 0, len(ids), text[:8] or "length", text, "corrupt", 2, text, ids)

    values: dict[str, Any] = {
        "id": 7,
        "fingerprint": "0123456789abcdef0123",
        "arm": arm,
        "key": Key(name, 0, 0),
        "kind": "garbled",
        "severity": "corrupt",
        "position": 2,
        "length": 2,
        "gap": 7.5,
        "evidence": {
            "why": f"2 of 2 tokens are not supported by the reference {text}",
            "gap": 7.5,
            "tolerance": 0.25,
            "candidate_token": 99,
            "logprobs": {"reference": [[7, -0.1], [8, -2.0], [99, -7.6]], "candidate": None, "baseline": None},
        },
        "state": "new",
        "note": text,
        "asked": RequestRow(0, name, text, np.array([1, 2, 3], dtype=np.int64)),
        "baseline": stream(BASE, EXPECTED),
        "candidate": stream(arm, ACTUAL),
        **changes,
    }
    values["evidence"] = evidence_from_json(values["kind"], values["key"].request, values["evidence"])
    return FindingView(**values)


def make_case(text: str = "x", **changes: Any) -> RunView:
    """A run with one corrupt finding; `text` stands wherever somebody else's text may stand."""
    finding = changes.pop("finding", finding_case(text))
    classes = changes.pop("classes", {KEYS[0]: "corrupt", KEYS[1]: "identical"})
    values: dict[str, Any] = {
        "run": run_of() if text == "x" else run_of(text),
        "arms": [arm_case(BASE, text), arm_case(MTP, text)],
        "findings": [finding] if finding is not None else [],
        "total_findings": 1 if finding is not None else 0,
        "chosen": finding,
        "asked_for_finding": False,
        "requests": [
            RequestRow(0, finding.request if finding else "p0", text, np.array([1, 2, 3], dtype=np.int64)),
            RequestRow(1, "p1", "second", np.array([4, 5], dtype=np.int64)),
        ],
        "read_classes": lambda arm: classes,
        **changes,
    }
    return RunView(**values)
