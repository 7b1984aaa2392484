"""`parity run --rehearse`: what would fail at the end of a night is tried first, and nothing of it is stored."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_process import Parity
from plans import fake_plan
from sketch_world import World, write_sketches

from parity.errors import ParityError
from parity.pipeline.memory import STILL_THERE, WAIT_SECONDS, Free, free_again, free_memory
from parity.pipeline.rehearse import rehearsed_arms, unknown_hosts
from parity.pipeline.rehearsed import recorded, sketched_tokens
from parity.plan import Arm
from parity.plan.hosts import Host
from parity.store import Store

RUN = ("run", "--backends", "fake", "--max-tokens", "24", "--suite", "smoke")


def stored_runs(parity: Parity) -> int:
    with Store.open(parity.home / "parity.db", create=False) as store:
        return len(store.runs())


def test_each_arm_starts_once_and_the_baseline_twice(parity: Parity) -> None:
    found = parity.json(*RUN, "--rehearse")
    assert parity.starts == ["fake/mtp", "fake/base", "fake/again"]
    mtp, base = found["arms"]
    plan = json.loads(parity("plan", *RUN[1:]).stdout)
    longest = max(len(request["prompt_token_ids"]) for request in plan["requests"])
    assert (mtp["arm"], mtp["scored_tokens"], mtp["second_start"]) == ("fake/mtp", None, None)
    assert (base["arm"], base["scored_tokens"]) == ("fake/base", longest + 24)
    assert 0 < mtp["tokens"] == base["tokens"] < 24
    assert base["score_seconds"] is not None
    assert found["at_least"] <= found["at_most"]
    assert stored_runs(parity) == 0
    assert not (parity.home / "runs").exists()
    assert list((parity.home / "rehearsals").iterdir()) == []


def test_of_a_run_with_servers_the_engines_alone_are_rehearsed() -> None:
    plan = replace(
        fake_plan(),
        arms=(Arm("server/prod", "server", "prod"), Arm("cpu/mtp", "cpu", "mtp"), Arm("cpu/base", "cpu", "base")),
        baseline="cpu/base",
    )
    assert [arm.name for arm in rehearsed_arms(plan)] == ["cpu/mtp", "cpu/base"]
    assert [arm.name for arm in rehearsed_arms(replace(plan, baseline="server/prod"))] == ["cpu/mtp", "cpu/base"]
    with pytest.raises(ParityError, match="no arm of the run starts an engine"):
        rehearsed_arms(replace(plan, arms=(Arm("server/a", "server", "a"), Arm("replay/b", "replay", "b")),
                               baseline="server/a"))  # fmt: skip


def test_the_table_names_every_arm_and_how_long_the_run_takes(parity: Parity) -> None:
    done = parity(*RUN, "--rehearse", "--score", "none")
    assert done.returncode == 0, done.stderr
    assert "fake/mtp" in done.stdout
    assert "2nd start s" in done.stdout
    assert "a whole run takes at least" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("fails", "arms"), [({"FAKE": "die at start"}, ["fake/mtp", "fake/base"]), ({"FAKE_ARM": "fake/mtp"}, ["fake/mtp"])]
)
def test_an_arm_that_fails_ends_it_as_a_run_would_and_the_others_are_tried(
    parity: Parity, fails: dict[str, str], arms: list[str]
) -> None:
    done = parity(*RUN, "--rehearse", **fails)
    assert done.returncode == 3
    assert f"the rehearsal failed in {', '.join(arms)}" in done.stderr
    assert "hint: the remedy" in done.stderr
    assert "--no-rehearse" in done.stderr
    assert {"fake/mtp", "fake/base"} <= set(parity.starts)
    (kept,) = (parity.home / "rehearsals").iterdir()
    assert "the last words" in (kept / "logs" / "fake-mtp.log").read_text()
    assert stored_runs(parity) == 0


def test_a_baseline_that_speculates_scores_on_its_second_start(parity: Parity) -> None:
    found = parity.json(*RUN, "--rehearse", "--baseline", "fake/mtp")
    assert parity.starts == ["fake/base", "fake/mtp", "fake/again"]
    assert found["arms"][-1]["scored_tokens"] is not None


def test_where_a_dear_backend_never_ran_it_is_rehearsed_first(parity: Parity) -> None:
    run = ("run", "--backends", "dear", "--max-tokens", "24", "--suite", "smoke")
    first = parity(*run)
    assert first.returncode == 0, first.stderr
    assert "dear never ran here before" in first.stderr
    assert first.stdout.startswith("PASS")
    assert parity.starts == ["dear/mtp", "dear/base", "dear/again", "dear/mtp", "dear/base"]
    second = parity(*run)
    assert second.returncode == 0, second.stderr
    assert "never ran here" not in second.stderr
    assert parity.starts[5:] == ["dear/mtp", "dear/base"]
    assert stored_runs(parity) == 2


def test_an_emulated_device_is_not_dear(tmp_path: Path) -> None:
    """Its rehearsal would start as many engines as the run does, and nobody waits for the hardware."""
    names = ("ascend", "ascend-emulated", "cpu")
    plan = replace(fake_plan(), arms=tuple(Arm(f"{name}/base", name, "base") for name in names))
    with Store.open(tmp_path / "parity.db") as store:
        assert unknown_hosts(plan, {name: Host(name, name) for name in names}, store) == ["ascend"]


def test_no_rehearse_leaves_it_out_and_a_failed_one_starts_no_run(parity: Parity) -> None:
    run = ("run", "--backends", "dear", "--max-tokens", "24", "--suite", "smoke")
    failed = parity(*run, FAKE_ARM="dear/mtp")
    assert failed.returncode == 3
    assert stored_runs(parity) == 0
    before = len(parity.starts)
    done = parity(*run, "--no-rehearse")
    assert done.returncode == 0, done.stderr
    assert parity.starts[before:] == ["dear/mtp", "dear/base"]


# ------------------------------------------------------------------ recorder and sketches


def test_recorder_and_sketches_are_tried_where_they_are_asked_for(parity: Parity) -> None:
    """This engine has neither, which a rehearsal says."""
    found = parity.json(*RUN, "--rehearse", "--record", "--sketch")
    for arm in found["arms"]:
        assert (arm["row_steps"], arm["sketched"]) == (0, 0)
        assert [one.split(":")[0] for one in arm["unwritten"]] == [
            "steps are not recorded",
            "activations are not sketched",
        ]
    (arm, _) = parity.json(*RUN, "--rehearse")["arms"]
    assert (arm["row_steps"], arm["sketched"], arm["unwritten"]) == (None, None, [])


def test_what_was_written_is_counted_and_an_end_is_said(tmp_path: Path) -> None:
    world = World(completions=3)
    capture = world.capture()
    written = write_sketches(tmp_path / "cpu-mtp.sketches", world.candidate())
    tokens = len(world.candidate())
    paths = (tmp_path / "cpu-mtp.jsonl",)
    assert sketched_tokens(paths, capture) == (tokens, ())
    stop = {"record": "sketches_stopped", "step": 9, "why": "RuntimeError: no such kernel"}
    data = written.read_bytes()
    written.write_bytes(data + json.dumps({**stop, "enough": True}).encode() + b"\n")
    assert sketched_tokens(paths, capture) == (tokens, ())
    written.write_bytes(data + json.dumps(stop).encode() + b"\n")
    count, (why,) = sketched_tokens(paths, capture)
    assert (count, str(why)) == (tokens, "activations are not sketched: RuntimeError: no such kernel")
    count, (_, why) = sketched_tokens((*paths, tmp_path / "scores.jsonl"), capture)
    assert (count, "no reason" in str(why)) == (tokens, True)
    steps = tmp_path / "cpu-mtp.steps"
    header = {"record": "steps_header", "schema": "parity.steps/1", "arm": "cpu/mtp"}
    lines = (header, {**stop, "record": "steps_stopped"})
    steps.write_text("".join(json.dumps(one) + "\n" for one in lines))
    count, (why,) = recorded(paths[0], capture)
    assert (count, str(why)) == (0, "steps are not recorded: RuntimeError: no such kernel")


# ------------------------------------------------------------------ memory

NVIDIA = "echo '1024, 81559'; echo '2048, 81559'"
# As `npu-smi info` draws it: usage of AI cores, memory and device memory of a chip.
NPU = """cat <<'TABLE'
| 0     910B3               | OK            | 90.2        43                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3398 / 65536         |
| 1     910B3               | OK            | 90.2        43                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          60000/ 65536         |
TABLE"""


@pytest.mark.parametrize(
    ("tool", "says", "expected"),
    [
        ("nvidia-smi", NVIDIA, Free(81559 - 2048, device=True)),
        ("npu-smi", NPU, Free(65536 - 60000, device=True)),
    ],
)
def test_free_memory_is_that_of_the_fullest_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, says: str, expected: Free
) -> None:
    script = tmp_path / tool
    script.write_text(f"#!/bin/sh\n{says}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert free_memory(Host("x", "fake", python=sys.executable)) == expected


def test_without_devices_it_is_the_machines_and_without_an_answer_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    here = free_memory(Host("x", "fake", python=sys.executable))
    assert here is not None
    assert not here.device
    assert here.megabytes > 0
    assert free_memory(Host("x", "fake", python="/nowhere/python")) is None


def test_it_is_waited_for_memory_that_comes_back_late_and_not_for_ever() -> None:
    before, late = Free(60_000, device=True), Free(20_000, device=True)
    answers, waited = iter([late, late, before]), []
    assert free_again(lambda: next(answers), before, waited.append) == before
    assert len(waited) == 2
    waited = []
    assert free_again(lambda: late, before, waited.append) == late
    assert sum(waited) == WAIT_SECONDS
    nearly = Free(round(before.megabytes * (1 - STILL_THERE / 2)), device=True)
    assert free_again(lambda: nearly, before, waited.append) == nearly
    assert sum(waited) == WAIT_SECONDS
    assert not Free(10, device=False).lacks(Free(1000, device=False))
