"""Runs for the interface to show: what vLLM really said (tests/planted_set.py), stored as a run is, files and all.

What the comparison found in them was written down (findings.json.gz), so that the tests of the interface do not
change with the comparison. `python tests/functional/real_run.py` writes it anew.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import planted_set

from parity.capture import dump_line, score_record, write_capture
from parity.pipeline.analyse import analyse, arm_result, for_store, plan_of_captures
from parity.pipeline.directory import RunDirectory
from parity.plan.tokenise import load_tokenizer
from parity.records import Capture, Completion, Finding, ScoreKey, SpecTrace, TopLogprobs
from parity.store import ArmComparison, NewRun, RunStatus, Store

MODEL = Path(__file__).resolve().parents[2] / "parity" / "models" / "tiny-qwen3-next-mtp"
RECORDED = Path(__file__).parent / "findings.json.gz"
NEEDLE = (("dup5", "p63"),)
"""The one corrupt completion among near-ties."""
MANY = (
    ("leak24+regenerated", "p48"),
    ("loop3", "p6"),
    ("garbled-random6", "p9"),
    ("drop5+regenerated", "p45"),
    ("invalid2048", "p49"),
    ("dup5", "p63"),
)


def damaged(wanted: tuple[tuple[str, str], ...]) -> tuple[Capture, dict[ScoreKey, TopLogprobs]]:
    """The candidate with these faults in these requests, and the scores of all its completions."""
    _, candidate, scores = planted_set.clean("A")
    completions, all_scores = dict(candidate.completions), dict(scores)
    for case in planted_set.cases("A"):
        if (case.fault, case.key.request) in wanted and case.where == "mid":
            completions[case.key] = case.candidate.completions[case.key]
            score_key = ScoreKey(planted_set.ARMS[1], *case.key)
            all_scores[score_key] = case.scores[score_key]
    assert len([key for key in completions if completions[key] is not candidate.completions[key]]) == len(wanted)
    return replace(candidate, completions={k: with_trace(c) for k, c in completions.items()}), all_scores


def with_trace(completion: Completion) -> Completion:
    """The set was stored without its acceptance traces: every step takes both drafts here."""
    steps = max(0, (len(completion.token_ids) - 1) // 3)
    return replace(completion, spec=SpecTrace(np.full(steps, 2), np.full(steps, 2)))


@cache
def _recorded() -> dict[str, Any]:
    with gzip.open(RECORDED) as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def recorded(candidate: Capture, wanted: tuple[tuple[str, str], ...]) -> ArmComparison:
    """What the comparison said of a candidate with these faults when it was written down."""
    faults = wanted if candidate.header.arm == planted_set.ARMS[1] else ()
    said = _recorded()[_name(faults)]
    findings = [Finding.from_json({**one, "arm": candidate.header.arm}) for one in said["findings"]]
    classes = {key: said["classes"][key.request] for key in candidate.completions}
    differs = {key: said["differs"].get(key.request) for key in candidate.completions}
    return ArmComparison(
        said["verdict"], said["reasons"], said["counts"], {"tolerance": 0.25}, classes, differs, findings
    )


def _name(wanted: tuple[tuple[str, str], ...]) -> str:
    return " ".join(f"{fault}:{request}" for fault, request in wanted) or "clean"


def record() -> None:
    """Compare, and write down what is found."""
    baseline, _, _ = planted_set.clean("A")
    said = {}
    for wanted in (NEEDLE, MANY, ()):
        candidate, scores = damaged(wanted)
        comparison = analyse(baseline, candidate, scores, tolerance=0.25, model=MODEL)
        stored = for_store(comparison)
        said[_name(wanted)] = {
            "verdict": stored.verdict,
            "reasons": list(stored.reasons),
            "counts": dict(stored.counts),
            "findings": [finding.to_json() for finding in stored.findings],
            "classes": {key.request: cls for key, cls in stored.classes.items()},
            "differs": {key.request: at for key, at in stored.first_divergence.items()},
        }
    blob = json.dumps(said, default=float).encode()
    RECORDED.write_bytes(gzip.compress(blob, mtime=0))


def store_run(home: Path, run_id: str, wanted: tuple[tuple[str, str], ...], *, second_arm: bool = False) -> Path:
    """Store a run in `home`/parity.db, its files in `home`/runs/ID. Returns the database."""
    baseline, _, _ = planted_set.clean("A")
    candidate, scores = damaged(wanted)
    candidates = [candidate]
    if second_arm:
        other, _ = damaged(())
        candidates.append(replace(other, header=replace(other.header, arm="cpu/mtp3", variant="mtp3")))
        scores |= {ScoreKey("cpu/mtp3", *key[1:]): value for key, value in damaged(())[1].items()}
    return save(home, run_id, baseline, [(one, recorded(one, wanted)) for one in candidates], scores)


def save(
    home: Path,
    run_id: str,
    baseline: Capture,
    compared: Sequence[tuple[Capture, ArmComparison]],
    scores: Mapping[ScoreKey, TopLogprobs],
) -> Path:
    """Store these captures and what was found in them, as `parity run` does."""
    captures = [baseline, *(candidate for candidate, _ in compared)]
    plan = plan_of_captures(baseline, captures[1:])
    tokenizer = load_tokenizer(MODEL)
    plan = replace(
        plan,
        model=replace(plan.model, name=MODEL.name, path=str(MODEL)),
        rounds=1,
        requests=tuple(
            replace(one, prompt=tokenizer.decode(list(one.prompt_token_ids), skip_special_tokens=False))
            for one in plan.requests
        ),
    )
    directory = RunDirectory(home / "runs" / run_id)
    directory.root.mkdir(parents=True)
    for capture in captures:
        write_capture(directory.capture(capture.header.arm), capture)
    with directory.scores.open("wb") as file:
        for key, value in scores.items():
            file.write(dump_line(score_record(key, value)))
    with Store.open(home / "parity.db") as store:
        command = "parity run --backends cpu --max-tokens 128"
        store.create_run(NewRun(run_id, plan, command, directory=str(directory.root)))
        for capture in captures:
            name = capture.header.arm
            store.save_arm(run_id, name, capture, str(directory.capture(name)), arm_result(capture))
        for capture, comparison in compared:
            store.save_comparison(run_id, capture.header.arm, comparison)
        store.finish_run(run_id, RunStatus.FINISHED, verdict="DIVERGED", reasons=["made for the tests"], duration=12.0)
    return home / "parity.db"


if __name__ == "__main__":
    record()
