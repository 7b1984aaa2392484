"""`parity reduce` and `parity bisect` from end to end, with an engine of a few lines behind the real protocol."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from toy_process import Toy

from parity.plan import read_plan

ALWAYS = {"rate": 1.0, "spares": True}
RARE = {"rate": 0.02, "spares": True}
MAKE = ("--backends", "toy", "--suite", "mixed", "--max-tokens", "16")


def test_a_rare_failure_is_found_reduced_bisected_and_shown_again(parity: Toy, tmp_path: Path) -> None:
    toy = {**RARE, "needs": ["en-story"]}
    run = parity("run", *MAKE, "--rounds", "8", "--json", toy=toy)
    assert run.returncode == 1, run.stderr
    found = json.loads(run.stdout)
    reduced = tmp_path / "reduced.json"
    done = parity("reduce", "--json", "-o", str(reduced), toy=toy)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    plan = read_plan(reduced)
    assert "en-story" in {request.id for request in plan.requests}
    assert len(plan.requests) <= 4
    assert result["after"]["tokens"] <= result["before"]["tokens"] / 4
    assert result["reproduced"] in result["attempts"]
    assert result["confirmation"]["plan"]["probability"] >= 0.9
    assert [one["name"] for one in result["settings"]["settings"]] == ["speculation"]
    # Only what it needs is left of the failing arm.
    assert plan.arm("toy/mtp").engine["max_num_batched_tokens"] == plan.arm("toy/base").engine["max_num_batched_tokens"]
    # One engine for all shots, one reference, and those of the other settings and of the run at the end.
    assert result["engine_starts"] <= 6

    assert parity("run", "--plan", str(reduced), toy=toy).returncode == 1
    bisected = parity("bisect", "settings", "--run", found["run"], "--json", toy=toy)
    assert bisected.returncode == 0, bisected.stderr
    flip = json.loads(bisected.stdout)
    assert [one["name"] for one in flip["settings"]] == ["speculation"]
    assert {one["name"] for one in flip["differ"]} == {"speculation", "max_num_batched_tokens"}
    assert flip["suspect"]["name"] == "speculation on toy"


def test_the_reports_for_people(parity: Toy) -> None:
    assert parity("run", *MAKE, toy=ALWAYS).returncode == 1
    done = parity("reduce", toy=ALWAYS)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "requests 64 1" in text
    assert "12 of 12 shots taken after the search" in text
    assert "it seems to be deterministic" in text
    assert "settings it needs: speculation" in text
    assert "reproduced with fresh engines: run 2" in text
    text = " ".join(parity("bisect", "settings", "toy/mtp", "toy/base", toy=ALWAYS).stdout.split())
    assert "smallest set that flips the verdict: speculation (speculative_config not set → " in text
    assert "suspect: speculation on toy" in text


def test_a_finding_by_its_number_and_benign_ones_refused(parity: Toy) -> None:
    parity("run", *MAKE, toy=ALWAYS)
    shown = json.loads(parity("runs", "show", "--json", toy=ALWAYS).stdout)
    number = next(one["id"] for one in shown["findings"] if one["severity"] == "corrupt")
    done = parity("reduce", str(number), "--json", "--no-rerun", "--no-settings", toy=ALWAYS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finding"] == f"finding {number} of run {shown['run']}"
    for args, says in (
        (("999999",), "there is no finding 999999"),
        ((str(number), "--request", "x"), "drop --run, --arm and --request"),
        (("--request", "nobody"), "has no corrupt findings about nobody"),
        (("--arm", "toy/none"), "the plan has no arm 'toy/none'"),
        (("--arm", "toy/base"), "has no corrupt findings of toy/base"),
        (("--minutes", "nan"), "'nan' is not a number"),
        (("--plan", "/nowhere.json"), "cannot read /nowhere.json"),
    ):
        refused = parity("reduce", *args, toy=ALWAYS)
        assert refused.returncode == 2
        assert says in refused.stderr


def test_what_does_not_fail_again_is_inconclusive(parity: Toy) -> None:
    prompts = ("--prompts", str(_two_prompts(parity.root)))
    assert parity("run", "--backends", "toy", "--max-tokens", "16", *prompts, toy=ALWAYS).returncode == 1
    done = parity("reduce", "--json", toy={"rate": 0.0})
    assert done.returncode == 4
    assert json.loads(done.stdout)["plan"] is None
    said = " ".join(parity("reduce", toy={"rate": 0.0}).stdout.split())
    assert "shots failed, those of the whole plan included" in said
    refused = parity("bisect", "settings", toy={"rate": 0.0})
    assert refused.returncode == 2
    assert "does not fail again on any part" in refused.stderr


def test_a_failure_that_was_luck_is_not_claimed(parity: Toy, tmp_path: Path) -> None:
    """An engine that fails a few times and never again: the search believes it, the confirming shots do not."""
    prompts = ("--prompts", str(_two_prompts(parity.root)))
    assert parity("run", "--backends", "toy", "--max-tokens", "16", *prompts, toy=ALWAYS).returncode == 1
    toy = {**ALWAYS, "until": 64}
    out = tmp_path / "reduction"
    done = parity("reduce", "--no-settings", "--out", str(out), toy=toy)
    assert done.returncode == 4, done.stderr
    assert "it does not fail every time after all: searching again" in done.stderr
    assert "did not fail again in 27 new shots" in " ".join(done.stdout.split())
    assert not (out / "reduced.json").exists()


def test_killed_in_the_middle_it_goes_on(parity: Toy, tmp_path: Path) -> None:
    toy = {**RARE, "needs": ["en-story", "en-email"]}
    assert parity("run", *MAKE, "--rounds", "8", toy=toy).returncode == 1
    out = tmp_path / "reduction"
    process = parity.start("reduce", "--out", str(out), "--no-rerun", "--json", toy=toy)
    shots = out / "shots.jsonl"
    until = time.monotonic() + 60
    while not (shots.exists() and shots.read_bytes().count(b'"shot"') > 20) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = shots.read_bytes().count(b"\n")
    done = parity("reduce", "--out", str(out), "--no-rerun", "--json", toy=toy)
    assert done.returncode == 0, done.stderr
    assert "shots of earlier attempts" in done.stderr
    result = json.loads(done.stdout)
    assert result["shots"] > 20
    assert shots.read_bytes().count(b"\n") > kept
    # A third time: everything is known, no engine starts.
    starts = len(parity.starts)
    again = json.loads(parity("reduce", "--out", str(out), "--no-rerun", "--json", toy=toy).stdout)
    assert len(parity.starts) == starts
    assert (again["steps"], again["after"], again["shots"]) == (result["steps"], result["after"], result["shots"])
    fresh = parity("reduce", "--out", str(out), "--no-rerun", "--json", "--fresh", toy=toy)
    assert "earlier attempts" not in fresh.stderr
    assert len(parity.starts) > starts


def test_ctrl_c_keeps_the_shots_and_says_so(parity: Toy, tmp_path: Path) -> None:
    assert parity("run", *MAKE, "--rounds", "8", toy=RARE).returncode == 1
    out = tmp_path / "reduction"
    process = parity.start("reduce", "--out", str(out), "--no-rerun", toy={**RARE, "rate": 0.0})
    shots = out / "shots.jsonl"
    until = time.monotonic() + 60
    while not (shots.exists() and shots.read_bytes().count(b'"shot"') > 5) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err


def test_settings_that_the_engine_refuses_do_not_end_the_search(parity: Toy, tmp_path: Path) -> None:
    plan = _plan(parity, tmp_path)
    value = json.loads(plan.read_text())
    base = next(arm for arm in value["arms"] if arm["name"] == "toy/base")
    base["engine"]["max_num_seqs"] = 4
    plan.write_text(json.dumps(value))
    done = parity("bisect", "settings", "toy/mtp", "toy/base", "--plan", str(plan), "--json", toy=ALWAYS)
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(done.stdout)["settings"]] == ["speculation"]
    next(arm for arm in value["arms"] if arm["name"] == "toy/mtp")["engine"]["explodes"] = True
    plan.write_text(json.dumps(value))
    refused = parity("bisect", "settings", "toy/mtp", "toy/base", "--plan", str(plan), toy=ALWAYS)
    assert refused.returncode == 3
    assert "explodes is not an argument" in refused.stderr


def test_the_first_bad_version(parity: Toy, tmp_path: Path) -> None:
    plan = _plan(parity, tmp_path)
    toy = {**ALWAYS, "begins": "1.3.0"}
    command = ("bisect", "versions", "1.0.0", "2.0.0", "--plan", str(plan))
    done = parity(*command, "--json", toy=toy)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["last_good"], found["first_bad"], found["named"]) == ("1.2.0", "1.3.0", True)
    assert found["versions"] == ["1.0.0", "1.1.0", "1.2.0", "1.3.0", "2.0.0"]
    text = " ".join(parity(*command, toy=toy).stdout.split())
    assert "first bad version: 1.3.0 (the last good one is 1.2.0)" in text
    assert "each wrong with probability 0.05" in text

    out = tmp_path / "broken"
    around = parity(*command, "--out", str(out), "--json", toy=toy, TOY_BROKEN="1")
    assert around.returncode == 4
    assert json.loads(around.stdout)["untried"] == ["1.2.0"]
    shown = " ".join(parity(*command, "--out", str(out), toy=toy, TOY_BROKEN="1").stdout.split())
    assert "1.2.0 cannot be tried: toy@1.2.0/mtp does not start: 1.2.0 does not build here" in shown
    assert "first bad version: after 1.1.0, one of 1.2.0, 1.3.0" in shown
    mended = parity(*command, "--out", str(out), toy=toy)
    assert mended.returncode == 0
    assert "first bad version: 1.3.0" in mended.stdout


def test_the_version_that_mended_it(parity: Toy, tmp_path: Path) -> None:
    plan = _plan(parity, tmp_path)
    toy = {**ALWAYS, "ends": "1.3.0"}
    done = parity("bisect", "versions", "1.0.0", "2.0.0", "--plan", str(plan), toy=toy)
    assert done.returncode == 0, done.stderr
    assert "first good version: 1.3.0 (the last bad one is 1.2.0)" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("2.0.0", "1.0.0"), "2.0.0 is not older than 1.0.0"),
        (("1.0.0", "1.1.0"), "1.1.0 does not fail"),
        (("1.3.0", "2.0.0"), "1.3.0 fails already"),
    ],
)
def test_versions_that_make_no_sense(parity: Toy, tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    plan = _plan(parity, tmp_path)
    done = parity("bisect", "versions", *args, "--plan", str(plan), toy={**ALWAYS, "begins": "1.2.0"})
    assert done.returncode == 2
    assert says in done.stderr


def test_a_name_that_is_no_version_is_refused_before_any_engine_starts(parity: Toy, tmp_path: Path) -> None:
    plan = _plan(parity, tmp_path)
    starts = len(parity.starts)
    done = parity("bisect", "versions", "old", "2.0.0", "--plan", str(plan), toy=ALWAYS)
    assert done.returncode == 2
    assert "'old' is not a version" in done.stderr
    assert len(parity.starts) == starts


def _plan(parity: Toy, directory: Path) -> Path:
    path = directory / "plan.json"
    prompts = _two_prompts(parity.root)
    done = parity(
        "plan", "--backends", "toy", "--prompts", str(prompts), "--max-tokens", "16", "-o", str(path), toy=ALWAYS
    )
    assert done.returncode == 0, done.stderr
    return path


def _two_prompts(directory: Path) -> Path:
    path = directory / "prompts.txt"
    path.write_text("In the beginning God\nThe capital of France is\n")
    return path


def test_the_reduced_case_is_recorded_and_what_broke_in_it_is_said(parity: Toy, tmp_path: Path) -> None:
    assert parity("run", *MAKE, toy=ALWAYS).returncode == 1
    reduced = tmp_path / "reduced.json"
    done = parity("reduce", "--record", "--no-settings", "--no-rerun", toy=ALWAYS)
    assert done.returncode == 2
    assert "leave out --no-rerun" in done.stderr
    done = parity("reduce", "--record", "--sketch", "--no-settings", "--json", "-o", str(reduced), toy=ALWAYS)
    assert done.returncode == 0, done.stderr
    assert "nothing was sketched" in done.stderr  # this engine cannot be
    found = json.loads(done.stdout)
    recorded = found["recorded"]
    assert recorded["run"] == found["reproduced"]
    assert recorded["violations"] > 0
    assert {one["evidence"]["invariant"] for one in recorded["first"]} == {"kept"}
    assert [one["arm"] for one in recorded["why"]] == ["toy/mtp"]
    assert (read_plan(reduced).record, read_plan(reduced).sketch) == (True, "parts")


def test_a_watch_of_engines_records_each_probe_and_tells_of_a_violation(parity: Toy) -> None:
    watched = ("watch", *MAKE, "--probes", "2", "--interval", "0", "--record", "ring", "--json", "--score", "none")
    done = parity(*watched, toy={"rate": 0.0})
    probes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["verdict"] for one in probes] == ["PASS", "PASS"], done.stderr
    assert "row-steps broke any of" in json.dumps(probes[0])
    shown = parity("runs", "show", "--json", toy={"rate": 0.0})
    assert shown.returncode == 0, shown.stderr

    done = parity(*watched, toy=ALWAYS)
    assert done.returncode == 1
    for line in done.stdout.splitlines():
        probe = json.loads(line)
        assert probe["verdict"] == "DIVERGED"
        assert (
            "broke the engine's own bookkeeping, where the accepted count kept for the next step is what was sampled"
            in line
        )


def _checkout(at: Path) -> Path:
    package = at / "checkout" / "vllm_ascend"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return package.parent


def test_a_checkout_that_no_arm_would_run_is_refused_before_an_engine_starts(parity: Toy, tmp_path: Path) -> None:
    place = str(_checkout(tmp_path))
    done = parity("run", *MAKE, "--vllm-ascend", place, toy=ALWAYS)
    assert done.returncode == 2
    assert "no arm would run the checkout" in done.stderr
    assert "--backends cpu,ascend-emulated" in done.stderr
    assert parity("run", *MAKE, toy=ALWAYS).returncode == 1
    for command in (["reduce"], ["bisect", "settings"]):
        done = parity(*command, "--vllm-ascend", place, toy=ALWAYS)
        assert done.returncode == 2
        assert "no arm would run the checkout" in done.stderr


def test_what_a_checkout_did_is_not_asked_of_the_release(parity: Toy, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert parity("run", *MAKE, "--out", str(out), toy=ALWAYS).returncode == 1
    about = json.loads((out / "run.json").read_text())
    assert "checkout" not in about
    (out / "run.json").write_text(json.dumps({**about, "checkout": "/work tree/vllm-ascend"}))
    assert parity("trust", str(out), toy=ALWAYS).returncode == 0
    for command in (["reduce"], ["bisect", "settings"], ["run", "--resume", "--out", str(out)]):
        done = parity(*command, toy=ALWAYS)
        assert done.returncode == 2, done.stdout
        assert "ran a checkout of vllm-ascend" in done.stderr
        assert "--vllm-ascend '/work tree/vllm-ascend'" in done.stderr


def test_a_recording_as_the_baseline_is_refused_before_anything_starts(parity: Toy, tmp_path: Path) -> None:
    """As a watch of a server against its recording has it: the reference cannot be asked about a smaller case."""
    assert parity("run", *MAKE, "--out", str(tmp_path / "first"), toy=ALWAYS).returncode == 1
    golden, plan = f"golden={tmp_path}/first/toy-base.jsonl", str(tmp_path / "plan.json")
    arms = ("--replay", golden, "--baseline", "replay/golden", "--variants", "mtp")
    assert parity("plan", "--backends", "toy", *arms, "-o", plan, toy=ALWAYS).returncode == 0
    starts = len(parity.starts)
    for command in (("reduce",), ("bisect", "settings")):
        done = parity(*command, "--plan", plan, toy=ALWAYS)
        assert done.returncode == 2, done.stderr
        assert "replay/golden is a recording, and answers nothing new" in done.stderr
    assert len(parity.starts) == starts
