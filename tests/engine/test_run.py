"""An arm on real vLLM: what it captures, what it scores, and what is left when it is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_plan import BaseArm, make_plan
from plans import plan_of

from parity.capture import check_capture, read_capture, read_scores
from parity.errors import BackendError
from parity.run import ArmEvent, ArmSession, Backend, Phase, run_arm
from parity.run.process import WorkerProcess

pytestmark = pytest.mark.engine


def test_everything_is_captured_with_what_the_engine_resolved_to(base_arm: BaseArm) -> None:
    capture = read_capture(base_arm.capture)
    assert check_capture(base_arm.capture) == []
    assert len(capture.completions) == 4
    assert all(len(completion.token_ids) == 16 for completion in capture)
    engine = capture.header.engine
    assert engine["async_scheduling"] is False
    assert engine["enable_prefix_caching"] is False
    assert engine["cudagraph_mode"] == "NONE"
    assert engine["compilation_mode"] == "NONE"
    assert "bfloat16" in engine["dtype"]
    assert engine["asked"]["max_num_seqs"] == 64
    assert capture.header.environment["versions"]["vllm"].startswith("0.32.0")
    assert capture.header.environment["variables"]["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    counters = capture.counters
    assert counters is not None
    assert counters["tokens"] == counters["generation_tokens"] == 64
    assert counters["preemptions"] == 0
    assert 0 < counters["generate_seconds"] <= counters["ready_to_last_seconds"] + 0.01


def test_the_engines_own_talk_is_in_the_log_only(base_arm: BaseArm) -> None:
    assert "vllm" in (base_arm.directory / "base.log").read_text().lower()


def test_scores_agree_with_greedy_decoding(base_arm: BaseArm) -> None:
    scores = read_scores(base_arm.directory / "scores.jsonl")
    *items, again, _outside, _long = base_arm.asked
    assert len(scores) == 5
    assert len(base_arm.said) == 2, "the last two cannot be scored"
    for item in items:
        score = scores[item.key]
        assert score.ids.shape[0] == 16
        chosen = np.where(score.ids == np.asarray(item.token_ids)[:, None], score.values, -np.inf).max(axis=1)
        assert np.isfinite(chosen).all()  # the chosen token is always among them
        # Teacher-forced, greedy's own choice is the best token but for rounding.
        assert (np.nanmax(score.values, axis=1) - chosen).max() < 0.25
    assert np.array_equal(scores[again.key].values, scores[items[0].key].values)


def descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(entry.name), *descendants(int(entry.name))]
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_killed_in_the_middle_resumed_is_the_same(interpreter: Path, cpu: Backend, tmp_path: Path) -> None:
    """kill -9 of the worker inside a later round: resumed, it has what an uninterrupted run has."""
    import fcntl

    rounds = 24  # of four requests: more than its pipe, the reader and the queue hold, however late this side is
    plan: dict[str, Any] = make_plan(cpu, max_tokens=40, rounds=rounds)
    for number, request in enumerate(plan["requests"]):  # other acceptance: they end at other steps
        request["prompt_token_ids"] = request["prompt_token_ids"] * (number + 1)
    capture, log = tmp_path / "mtp.jsonl", tmp_path / "mtp.log"
    others = set(descendants(os.getpid()))  # the session that other tests share
    family: list[int] = []

    def kill(event: ArmEvent) -> None:
        if event.phase is Phase.STARTING and session.link._pool is not None:
            pipe = worker_of(session)._process.stdout
            assert pipe is not None
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        if event.phase is Phase.GENERATING and event.done >= 5 and not family:
            family.extend(set(descendants(os.getpid())) - others)
            os.kill(worker_of(session).pid, signal.SIGKILL)

    with (
        pytest.raises(BackendError, match="killed by SIGKILL"),
        run_arm(plan_of(plan), "cpu/mtp", capture, log, on_event=kill) as session,
    ):
        session.generate()
    assert not any(alive(pid) for pid in family)
    partial = read_capture(capture, partial=True)
    assert 5 <= len(partial.completions) < 4 * rounds
    with run_arm(plan_of(plan), "cpu/mtp", capture, log, resume=True) as session:
        session.generate()
        whole = tmp_path / "whole.jsonl"
        session.capture_path = whole  # the same engine once more, from the start
        session.generate()
    resumed, uninterrupted = read_capture(capture), read_capture(whole)
    assert resumed.counters is not None
    assert uninterrupted.counters is not None
    assert resumed.counters["replay_differences"] == 0
    assert resumed.counters["drafts"] == uninterrupted.counters["drafts"] > 0
    assert resumed.counters["accepted_tokens"] == uninterrupted.counters["accepted_tokens"] > 0
    assert resumed.completions.keys() == uninterrupted.completions.keys()
    for key, completion in resumed.completions.items():
        assert np.array_equal(completion.token_ids, uninterrupted.completions[key].token_ids), key


def worker_of(session: ArmSession) -> WorkerProcess:
    assert session.link._pool is not None
    return session.link._pool.workers[0]


def test_an_engine_that_refuses_its_settings_says_why(interpreter: Path, cpu: Backend, tmp_path: Path) -> None:
    plan = make_plan(cpu)
    plan["model"]["path"] = str(tmp_path / "no-such-checkpoint")
    began = time.monotonic()
    with (
        pytest.raises(BackendError, match="failed while starting the engine") as caught,
        run_arm(plan_of(plan), "cpu/base", tmp_path / "a.jsonl", tmp_path / "a.log") as session,
    ):
        session.generate()
    assert "no-such-checkpoint" in str(caught.value)
    assert time.monotonic() - began < 120
    assert not (tmp_path / "a.jsonl").exists()
