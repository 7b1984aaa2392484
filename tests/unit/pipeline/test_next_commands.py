"""Whoever reads INCONCLUSIVE gets a command, and running that command decides the run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_process import Parity

from parity.store import Store
from parity.view import of_store

RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "24")


def commands_of(said: dict[str, Any]) -> list[list[str]]:
    """The words of each command that is offered, the fake engine in place of one that this test has not."""
    assert said["verdict"] == "INCONCLUSIVE", said["reasons"]
    words = [shlex.split(one["command"]) for one in said["next"] if one["command"]]
    assert all(command[0] == "parity" for command in words)
    return [["fake" if word in ("transformers", "cpu") else word for word in command[1:]] for command in words]


def run(parity: Parity, words: Sequence[str], **env: str) -> dict[str, Any]:
    done = parity(*words, "--json", **env)
    assert done.returncode in (0, 1, 4), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("fault", "verdict"), [("", "PASS"), ("corrupt", "DIVERGED")])
def test_a_run_without_scores_is_scored_on_its_captures(parity: Parity, fault: str, verdict: str) -> None:
    said = run(parity, (*RUN, "--score", "none"), FAKE=fault)
    (command,) = commands_of(said)
    assert command == ["run", "--resume", "--out", said["directory"], "--score", "all"]
    after = run(parity, command, FAKE=fault)
    assert (after["verdict"], after["run"]) == (verdict, said["run"])
    assert after["next"] == []
    assert parity.starts == ["fake/mtp", "fake/base", "fake/base"]  # captured once, then the baseline alone to score


def test_the_command_stands_whole_on_a_line_of_its_own(parity: Parity) -> None:
    done = parity(*RUN, "--score", "none")
    shown = parity("runs", "show").stdout
    line = f"  parity run --resume --out {parity.run_directory} --score all"
    for text in (done.stdout, shown):
        assert line in text.split("\n")
        assert "remove that and run again" not in text
    for format_ in ("md", "html", "json"):
        report = parity("report", "--format", format_, "-o", "-").stdout
        assert "--score all" in report


@pytest.mark.parametrize(("fault", "verdict"), [("", "PASS"), ("corrupt", "DIVERGED")])
def test_two_files_without_a_plan_are_decided_by_an_arbiter(parity: Parity, fault: str, verdict: str) -> None:
    parity(*RUN, "--score", "none", FAKE=fault)
    files = [str(parity.run_directory / name) for name in ("fake-base.jsonl", "fake-mtp.jsonl")]
    said = parity.json("compare", *files)
    command, *_ = commands_of(said)
    assert {*files} <= {word.partition("=")[2] for word in command}
    after = run(parity, [*command, "--out", str(parity.home / "decided")])
    assert after["verdict"] == verdict, after["reasons"]
    if verdict == "DIVERGED":
        assert "supports replay/fake-base and not replay/fake-mtp in 1 completion" in after["reasons"][0]
    else:
        assert "finds both sides' tokens likely in 1 completion that differs" in after["reasons"][0]


def test_a_baseline_that_the_arbiter_rejects_is_named(parity: Parity) -> None:
    """The candidate of the run is the baseline of the comparison: the corrupt side comes first."""
    parity(*RUN, "--score", "none", FAKE="corrupt")
    files = [str(parity.run_directory / name) for name in ("fake-mtp.jsonl", "fake-base.jsonl")]
    command, *_ = commands_of(parity.json("compare", *files))
    after = run(parity, [*command, "--out", str(parity.home / "decided")])
    assert after["verdict"] == "DIVERGED"
    assert after["reasons"][0].startswith("it is the baseline that is at fault")
    assert after["suspect"]["name"] == "the baseline replay/fake-mtp"
    for format_ in ("md", "html"):
        report = parity("report", "--format", format_, "-o", "-").stdout
        assert "is accused, not" in report
        assert "it is the baseline that is at fault" in report
        assert "Nothing corrupt was found" not in report.split("How it was judged")[0]
        assert "no fault:" not in report
    shown = parity("report").stdout.split("How it was judged")[0]
    assert shown.startswith("# tokens that fake does not support in 1 completion with replay/fake-mtp")
    assert "#### Expected" not in shown  # a near-tie is no example of that
    assert "--arbiter fake" in shown
    assert "the sides swapped" in shown
    assert '<failure type="baseline"' in parity("report", "--format", "junit", "-o", "-").stdout
    assert "parity reduce" not in parity("runs", "show").stdout  # there is no finding to shrink
    (swap,) = [shlex.split(one["command"]) for one in after["next"]]
    faulty = run(parity, ["fake" if word == "transformers" else word for word in swap[1:]])
    assert faulty["verdict"] == "DIVERGED"
    assert [one["kind"] for one in faulty["arms"]["replay/replay-fake-mtp"]["findings"]] == ["unjustified"]


def test_a_report_on_an_open_run_does_not_say_that_nothing_is_wrong(parity: Parity) -> None:
    parity(*RUN, "--score", "none")
    report = parity("report", "--format", "md", "-o", "-").stdout
    assert report.startswith("# not decided: 1 completion differs and nothing says whether that is noise")
    assert "**Not decided**" in report
    assert "no fault" not in report
    assert "#### What would decide it" in report.split("How it was judged")[0]


def test_recordings_that_nobody_can_score_are_decided_by_an_arbiter_too(parity: Parity) -> None:
    parity(*RUN, "--score", "none")
    replayed = ("run", "--replay", str(parity.run_directory))
    said = run(parity, (*replayed, "--out", str(parity.home / "replayed")))
    (command,) = commands_of(said)
    assert command == ["run", "--resume", "--out", str(parity.home / "replayed"), "--arbiter", "fake"]
    assert run(parity, command)["verdict"] == "PASS"
    shown = " ".join(parity(*command).stdout.split())
    assert "nearly as likely to fake as its best one" in shown, shown  # who was asked: the recordings cannot say it


def test_what_a_resumed_run_was_asked_is_not_offered_again(parity: Parity) -> None:
    """Where scores and an arbiter left it open, the store knows that they were asked."""
    parity(*RUN, "--score", "none")
    known = ("run", "--resume", "--out", str(parity.run_directory))
    parity(*known, "--score", "all", "--arbiter", "fake", "--tolerance", "0.3")
    with Store.open(parity.home / "parity.db", create=False) as store:
        shown = of_store(store, parity.run_directory.name).run
    assert (shown.score, shown.arbiter, shown.tolerance) == ("all", "fake", 0.3)


def test_a_plan_can_be_run_again_with_other_rounds_and_sides(parity: Parity) -> None:
    parity(*RUN)
    plan = str(parity.run_directory / "plan.json")
    done = parity("run", "--plan", plan, "--rounds", "2", "--baseline", "fake/mtp", "--out", str(parity.home / "b"))
    assert done.returncode in (0, 1), done.stderr
    written = json.loads((parity.home / "b" / "plan.json").read_text())
    assert (written["rounds"], written["baseline"]) == (2, "fake/mtp")
    wrong = parity("run", "--plan", plan, "--baseline", "no/such")
    assert wrong.returncode == 2
    assert "none of the arms" in wrong.stderr


def test_longer_lists_are_scored_anew(parity: Parity) -> None:
    parity(*RUN)
    directory = parity.run_directory
    command = ("run", "--resume", "--out", str(directory), "--score", "all", "--score-top", "7")
    assert run(parity, command)["verdict"] == "PASS"
    assert json.loads((directory / "plan.json").read_text())["score"] == {"mode": "all", "top": 7}
    footer = json.loads((directory / "scores.jsonl").read_text().splitlines()[-1])
    assert footer["counters"]["top"] == 7


def test_a_path_that_was_not_exercised_runs_longer(parity: Parity) -> None:
    said = run(parity, RUN, FAKE="idle")
    (command,) = commands_of(said)
    assert command == ["96" if word == "24" else word for word in RUN]  # in place of the limit given, not beside it
    assert run(parity, [*command, "--out", str(parity.home / "longer")])["verdict"] == "PASS"  # an engine that drafts


def test_a_gone_directory_leaves_words(parity: Parity, tmp_path: Path) -> None:
    parity(*RUN, "--score", "none")
    parity.run_directory.rename(tmp_path / "moved")
    said = parity.json("runs", "show")
    (one,) = said["next"]
    assert one["command"] is None
    assert "--score all" in one["what"]
