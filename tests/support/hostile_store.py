"""A database in which every text from outside tries to be more than text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from plans import rough_plan

from parity.records import Capture, Completion, Finding, Header, Key, Kind, Severity, evidence_from_json
from parity.store import ArmComparison, ArmResult, NewRun, RunStatus, Store

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31m[red]bold[/red][link=x]\u202eflip\u200b\x9b\r\n\t\U000e0041é "
    "<script>alert(1)</script> ]]> <!-- ![x](https://evil.example/x.png) @torvalds https://evil.example `code` "
    "| {0} {{x}} $(touch PWNED) =1+1 \ufffe"
)


def hostile_database(path: Path) -> Path:
    """One run: its id, names, prompts, texts, reasons, notes and evidence are HOSTILE."""
    keys = [Key(HOSTILE, 0, 0)]
    plan = {
        "model": {"name": HOSTILE},
        "sampling": {"temperature": HOSTILE},
        "requests": [{"id": key.request, "prompt": HOSTILE, "prompt_token_ids": [1, 2]} for key in keys],
        "arms": [
            {"name": name, "backend": "cpu", "variant": "v", "engine": {HOSTILE: HOSTILE}} for name in (HOSTILE, "b")
        ],
        "baseline": HOSTILE,
    }
    tokens = np.array([5, 2**40, -7, 9], dtype=np.int64)
    with Store.open(path) as store:
        versions = {"vllm": HOSTILE, HOSTILE: HOSTILE}
        store.create_run(NewRun(HOSTILE, rough_plan(plan), HOSTILE, directory=HOSTILE, versions=versions))
        for name in (HOSTILE, "b"):
            environment = {"versions": versions, "devices": [HOSTILE], "vllm_collect_env": HOSTILE}
            header = Header(name, "cpu", "v", HOSTILE, environment=environment, engine={"dtype": HOSTILE})
            completions = {
                key: Completion(key, tokens, tokens + (name == "b"), HOSTILE, HOSTILE, HOSTILE) for key in keys
            }
            store.save_arm(HOSTILE, name, Capture(header, completions, {}, {}), HOSTILE, ArmResult({HOSTILE: HOSTILE}))
        told = {"why": HOSTILE, "donor_request": HOSTILE, "donor_part": HOSTILE, HOSTILE: HOSTILE}
        evidence = evidence_from_json(Kind.ROW_LEAK, "p", told)
        found = [
            Finding("b", HOSTILE, key.request, 0, 0, Kind.ROW_LEAK, Severity.CORRUPT, 1, 2, evidence) for key in keys
        ]
        compared = ArmComparison(
            "DIVERGED", [HOSTILE], {"row_leak": 1}, {}, dict.fromkeys(keys, "corrupt"), dict.fromkeys(keys, 1), found,
            notes=[HOSTILE],
        )  # fmt: skip
        store.save_comparison(HOSTILE, "b", compared)
        store.finish_run(HOSTILE, RunStatus.FINISHED, verdict="DIVERGED", reasons=[HOSTILE], message=HOSTILE)
    return path
