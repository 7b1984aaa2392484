"""An arm that fails in an experiment: the others are run and compared, it stands beside them with its reason."""

from __future__ import annotations

import json
import shlex
from typing import Any

from cli_process import Parity

from parity.store import Store

EXPERIMENT = (
    "run",
    "--backends",
    "fake",
    "--max-tokens",
    "24",
    "--suite",
    "smoke",
    "--vary",
    "k=0,2",
    "--vary",
    "seqs=4,8",
)
BASELINE, BROKEN = "fake/k=0+seqs=4", "fake/k=2+seqs=4"
OTHERS = ["fake/k=0+seqs=8", "fake/k=2+seqs=8"]


def arms(parity: Parity) -> dict[str, tuple[str, str | None, str | None]]:
    with Store.open(parity.home / "parity.db", create=False) as store:
        (run,) = store.runs()
        return {arm.name: (arm.status, arm.verdict, arm.message) for arm in store.arms(run.id)}


def test_the_others_are_run_compared_and_shown(parity: Parity) -> None:
    done = parity(*EXPERIMENT, FAKE_ARM=BROKEN)
    assert done.returncode == 3, done.stderr
    assert sorted(parity.starts) == sorted([BROKEN, *OTHERS, BASELINE])
    assert done.stdout.startswith(f"ERROR  {BROKEN} failed: the worker ended while starting")
    assert f"{BROKEN}: the worker ended while starting" in done.stdout  # below the table of the arms
    (run,) = parity.json("runs", "list")
    flat = " ".join(done.stdout.split())
    assert f"mend it, then `parity run --resume {run['run']}`" in flat
    assert f"--resume asks the same again, so change it in `{shlex.join(['parity', *EXPERIMENT])}`" in flat
    assert f"{BROKEN} failed, the other arms go on: the worker ended while starting" in done.stderr
    assert "the last words" in done.stderr  # the end of its log
    assert "hint: the remedy" in done.stderr
    stored = arms(parity)
    assert {name: stored[name][:2] for name in OTHERS} == dict.fromkeys(OTHERS, ("compared", "PASS"))
    assert stored[BROKEN][:2] == ("failed", None)
    assert "the worker ended while starting" in str(stored[BROKEN][2])
    assert (run["status"], run["verdict"]) == ("failed", "ERROR")
    rows = {row["arm"]: row for row in json.loads(parity("table", "--format", "json").stdout)["rows"]}
    assert rows[BROKEN]["completions"] == 0
    assert [note for note in rows[BROKEN]["notes"] if "ended while starting" in note]
    assert not any("\n" in note for note in rows[BROKEN]["notes"])


def test_its_json_says_both(parity: Parity) -> None:
    done = parity(*EXPERIMENT, "--json", FAKE_ARM=BROKEN)
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert outcome["verdict"] == "ERROR"
    assert outcome["reasons"][0].startswith(f"{BROKEN} failed: ")
    assert list(outcome["failed"]) == [BROKEN]
    assert {name: arm["verdict"] for name, arm in outcome["arms"].items()} == dict.fromkeys(OTHERS, "PASS")


def test_resuming_tries_the_failed_arm_again_and_nothing_else(parity: Parity) -> None:
    whole = Parity(parity.home.with_name("whole"), parity.site, parity.starts_file)
    assert whole(*EXPERIMENT).returncode == 0
    parity(*EXPERIMENT, FAKE_ARM=BROKEN)
    assert not (parity.run_directory / "result.json").exists()
    before = len(parity.starts)
    again = parity("run", "--resume", FAKE_ARM=BROKEN)
    assert again.returncode == 3, again.stderr
    assert parity.starts[before:] == [BROKEN]
    done = parity("run", "--resume")
    assert done.returncode == 0, done.stderr
    assert parity.starts[before + 1 :] == [BROKEN, BASELINE]  # the baseline's engine scores what is new
    results = [json.loads((each.run_directory / "result.json").read_text()) for each in (parity, whole)]
    for result in results:
        for name in ("run", "directory"):
            result.pop(name)
    assert results[0] == results[1]
    assert arms(parity) == arms(whole)
    (run,) = parity.json("runs", "list")
    assert (run["status"], run["verdict"]) == ("finished", "PASS")


def test_nothing_is_compared_without_the_baseline(parity: Parity) -> None:
    done = parity(*EXPERIMENT, FAKE_ARM=BASELINE)
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert f"error: {BASELINE}: the worker ended while starting" in done.stderr
    stored = arms(parity)
    assert {name: status for name, (status, _, _) in stored.items()} == {
        BASELINE: "failed", BROKEN: "captured", **dict.fromkeys(OTHERS, "captured"),
    }  # fmt: skip
    done = parity("run", "--resume")
    assert done.returncode == 0, done.stderr
    assert parity.starts.count(BASELINE) == 2
    assert len(parity.starts) == 5


def test_all_candidates_fail_and_the_baseline_is_not_started(parity: Parity) -> None:
    done = parity(*EXPERIMENT, FAKE="die at start")
    assert done.returncode == 3, done.stderr
    assert parity.starts == ["fake/k=0+seqs=8", "fake/k=2+seqs=4", "fake/k=2+seqs=8"]
    assert "error: all 3 candidates failed; the last: fake/k=2+seqs=8: the worker ended" in done.stderr
    assert "hint: the remedy" in done.stderr
    assert done.stdout == ""
    assert not (parity.run_directory / "result.json").exists()
