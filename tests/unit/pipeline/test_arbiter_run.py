"""A run with an arbiter: it scores both sides of what differs, once, and its word stands beside the verdict."""

from __future__ import annotations

import json

from cli_process import Parity

from parity.capture import read_scores
from parity.store import Store

RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "24")


def test_the_arbiter_supports_the_baseline_where_the_candidate_is_corrupt(parity: Parity) -> None:
    done = parity(*RUN, "--arbiter", "fake", "--json", FAKE="corrupt")
    assert done.returncode == 1, done.stderr
    assert parity.starts == ["fake/mtp", "fake/base", "fake/arbiter"]
    result = json.loads(done.stdout)
    comparison = result["arms"]["fake/mtp"]
    said = comparison["stats"]["arbiter"]
    assert said["arm"] == "fake"
    assert said["baseline"] == 1  # the corrupt one
    assert said["both"] == 1  # the near-tie: noise
    assert any(reason.startswith("arbiter fake, of 2 completions that differ") for reason in result["reasons"])
    corrupt = [finding for finding in comparison["findings"] if finding["severity"] == "corrupt"]
    assert {finding["evidence"]["arbiter"]["supports"] for finding in corrupt} == {"baseline"}
    scored = read_scores(parity.run_directory / "arbiter.jsonl")
    assert {key.arm for key in scored} == {"fake/base", "fake/mtp"}
    assert len(scored) == 4  # both sides of two pairs, nothing of the pairs that agree
    with Store.open(parity.home / "parity.db", create=False) as store:
        run = store.runs()[0]
        assert any("arbiter fake" in str(reason) for reason in run.reasons)


def test_it_can_be_asked_when_the_run_is_over_and_is_asked_once(parity: Parity) -> None:
    assert parity(*RUN, FAKE="corrupt").returncode == 1
    run = parity.run_directory.name
    assert parity.starts == ["fake/mtp", "fake/base"]
    for _ in range(2):
        done = parity("run", "--resume", run, "--arbiter", "fake", FAKE="corrupt")
        assert done.returncode == 1
        assert "supports the baseline in 1" in " ".join(done.stdout.split())
    assert parity.starts == ["fake/mtp", "fake/base", "fake/arbiter"]
    plan = json.loads((parity.run_directory / "plan.json").read_text())
    assert plan["arbiter"]["name"] == "fake/arbiter"


def test_where_nothing_differs_no_arbiter_is_started(parity: Parity) -> None:
    prompts = parity.home.parent / "one.txt"
    prompts.write_text("Hello\n")
    done = parity("run", "--backends", "fake", "--prompts", str(prompts), "--max-tokens", "24", "--arbiter", "fake")
    assert done.returncode == 0, done.stderr
    assert "fake/arbiter" not in parity.starts
    assert not (parity.run_directory / "arbiter.jsonl").exists()


def test_a_backend_that_cannot_score_is_refused(parity: Parity) -> None:
    done = parity(*RUN, "--arbiter", "replay")
    assert done.returncode == 2
    assert "'replay' cannot be the arbiter" in done.stderr
