"""Two drawn rows with each other's tokens: the baseline's engine, still up, is asked whose they are."""

from __future__ import annotations

import json
import shlex
from typing import Any

from cli_process import Parity

RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "24", "--temperature", "1.0", "--json")
SWAPPED = {"president": "capital", "capital": "president"}
"""The second and the third request of the suite."""


def run(parity: Parity, *words: str) -> dict[str, Any]:
    done = parity(*words, FAKE="swapped")
    assert done.returncode in (0, 1, 4), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def donors(said: dict[str, Any], arm: str = "fake/mtp") -> dict[str, str]:
    """Request to the donor that a row leak names; any other corrupt finding fails."""
    found = [one for one in said["arms"][arm]["findings"] if one["severity"] == "corrupt" and one["request"] != "*"]
    assert {one["kind"] for one in found} <= {"row_leak"}, found
    return {one["request"]: one["evidence"]["donor_request"] for one in found}


def test_the_donor_is_named_in_the_same_engine_start(parity: Parity) -> None:
    said = run(parity, *RUN)
    assert said["verdict"] == "DIVERGED"
    assert donors(said) == SWAPPED
    assert parity.starts == ["fake/mtp", "fake/base"]
    (leak, _) = (one for one in said["arms"]["fake/mtp"]["findings"] if one["kind"] == "row_leak")
    assert (leak["position"], leak["length"]) == (0, 24)
    assert leak["evidence"]["donor_part"] == "continuation"
    assert (leak["evidence"]["donor_round"], leak["evidence"]["donor_sample"]) == (0, 0)
    assert leak["evidence"]["expected_by_chance"] < 0.001
    assert said["next"] == []


def test_resuming_asks_nothing_again(parity: Parity) -> None:
    before = run(parity, *RUN)
    asked = (parity.run_directory / "crossings.jsonl").read_bytes()
    after = run(parity, "run", "--resume", parity.run_directory.name, "--json")
    assert donors(after) == donors(before)
    assert (parity.run_directory / "crossings.jsonl").read_bytes() == asked
    assert len(parity.starts) == 2


def test_a_run_of_an_earlier_parity_is_asked_when_it_is_resumed(parity: Parity) -> None:
    run(parity, *RUN)
    for name in ("crossings.json", "crossings.jsonl", "result.json"):
        (parity.run_directory / name).unlink()
    assert donors(run(parity, "run", "--resume", parity.run_directory.name, "--json")) == SWAPPED
    assert parity.starts == ["fake/mtp", "fake/base", "fake/base"]


def test_captures_alone_get_the_command_that_names_the_donor(parity: Parity) -> None:
    run(parity, *RUN)
    names = ("fake-base.jsonl", "fake-mtp.jsonl", "scores.jsonl")
    base, mtp, scores = (str(parity.run_directory / name) for name in names)
    said = run(parity, "compare", base, mtp, "--scores", scores, "--json")
    assert said["verdict"] == "DIVERGED"
    (following,) = said["next"]
    assert following["step"] == "donors"
    words = ["fake" if word in ("transformers", "cpu") else word for word in shlex.split(following["command"])]
    after = run(parity, *words[1:], "--json", "--out", str(parity.home / "decided"))
    assert donors(after, "replay/fake-mtp") == SWAPPED


def test_greedy_runs_ask_nothing(parity: Parity) -> None:
    done = parity("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "24", FAKE="corrupt")
    assert done.returncode == 1
    assert not list(parity.run_directory.glob("crossings*"))
