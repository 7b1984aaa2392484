"""Runs for the interface to show: what vLLM really said (tests/planted_set.py), stored as a run is, files and all."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import planted_set

from parity.capture import dump_line, score_record, write_capture
from parity.pipeline import RunDirectory, analyse, arm_result, for_store, plan_of_captures
from parity.plan.tokenise import load_tokenizer
from parity.records import Capture, ScoreKey, SpecTrace, TopLogprobs
from parity.store import NewRun, RunStatus, Store

MODEL = Path(__file__).resolve().parents[2] / "parity" / "models" / "tiny-qwen3-next-mtp"
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


def with_trace(completion):  # type: ignore[no-untyped-def]
    """The set was stored without its acceptance traces: every step takes both drafts here."""
    steps = max(0, (len(completion.token_ids) - 1) // 3)
    return replace(completion, spec=SpecTrace(np.full(steps, 2), np.full(steps, 2)))


def store_run(
    home: Path, run_id: str, wanted: tuple[tuple[str, str], ...], *, second_arm: bool = False, plan_changes: object = ()
) -> Path:
    """Store a run in `home`/parity.db, its files in `home`/runs/ID. Returns the database."""
    baseline, _, _ = planted_set.clean("A")
    candidate, scores = damaged(wanted)
    candidates = [candidate]
    if second_arm:
        other, _ = damaged(())
        candidates.append(replace(other, header=replace(other.header, arm="cpu/mtp3", variant="mtp3")))
        scores |= {ScoreKey("cpu/mtp3", *key[1:]): value for key, value in damaged(())[1].items()}
    plan = plan_of_captures(baseline, candidates)
    plan["model"] = {"name": MODEL.name, "path": str(MODEL)}
    plan["rounds"] = 1
    tokenizer = load_tokenizer(MODEL)
    for request in plan["requests"]:
        ids = [int(i) for i in request["prompt_token_ids"]]
        request["prompt"] = tokenizer.decode(ids, skip_special_tokens=False)
    plan.update(dict(plan_changes))  # type: ignore[call-overload]
    directory = RunDirectory(home / "runs" / run_id)
    directory.root.mkdir(parents=True)
    for capture in (baseline, *candidates):
        write_capture(directory.capture(capture.header.arm), capture)
    with directory.scores.open("wb") as file:
        for key, value in scores.items():
            file.write(dump_line(score_record(key, value)))
    with Store.open(home / "parity.db") as store:
        command = "parity run --backends cpu --max-tokens 128"
        store.create_run(NewRun(run_id, plan, command, directory=str(directory.root)))
        for capture in (baseline, *candidates):
            name = capture.header.arm
            store.save_arm(run_id, name, capture, str(directory.capture(name)), arm_result(capture))
        for capture in candidates:
            comparison = analyse(baseline, capture, scores, tolerance=0.25, model=MODEL)
            store.save_comparison(run_id, capture.header.arm, for_store(comparison, baseline, capture))
        store.finish_run(run_id, RunStatus.FINISHED, verdict="DIVERGED", reasons=["made for the tests"], duration=12.0)
    return home / "parity.db"
