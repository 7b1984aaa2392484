"""`make bench`: its table of commands, and the history that the documentation shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import large_captures  # noqa: E402
import suite  # noqa: E402
from figures import BENCHMARKS, Benchmark, Figure  # noqa: E402
from peers import Peer, missing  # noqa: E402

from parity.capture import read_capture, read_scores  # noqa: E402
from parity.comparator import compare  # noqa: E402
from parity.records import Verdict  # noqa: E402

TWICE = Figure("twice", r"twice ([\d.,]+)", "s", goal=3)
RATE = Figure("rate", r"rate ([\d.,]+)", more=True)


def line(name: str = "one", machine: str = "m", **figures: float) -> dict[str, object]:
    return {
        "name": name,
        "machine": machine,
        "when": "2026-01-02T03:04:05",
        "commit": "c",
        "load": 1.0,
        "figures": figures,
    }


@pytest.mark.parametrize("one", BENCHMARKS, ids=lambda one: one.name)
def test_each_row_names_a_benchmark_and_numbers(one: Benchmark) -> None:
    assert (ROOT / "benchmarks" / one.command.split()[0]).is_file()
    assert all(re.compile(figure.pattern).groups == 1 for figure in one.figures)
    assert len({figure.label for figure in one.figures}) == len(one.figures) > 0


def test_the_names_of_benchmarks_are_theirs_alone() -> None:
    assert len({one.name for one in BENCHMARKS}) == len(BENCHMARKS)


def test_figures_are_found_in_what_is_printed() -> None:
    assert suite.found(TWICE, "once 1\ntwice 1,234.5 s") == 1234.5
    assert suite.found(RATE, "once 1") is None


def test_a_peer_that_is_missing_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    absent, there = Peer("no_such_module.at_all", "rule", "pip install it==1"), Peer("json", "loads", "")
    assert missing([absent, there]) == ["no_such_module is not installed, so it is not measured: pip install it==1"]
    figures = (RATE, Figure("theirs", r"theirs ([\d.,]+)", "s", peer=absent))
    monkeypatch.setattr(suite, "BENCHMARKS", (Benchmark("one", "one.py", "what", figures),))
    assert "| theirs | not measured: `pip install it==1` | | | |" in suite.table([line(rate=1)])


def test_what_came_before_is_of_the_same_benchmark_and_machine() -> None:
    lines = [line(twice=1), line("two", twice=2), line(machine="n", twice=3), line(twice=4), line(twice=5)]
    assert suite.before(lines[3], lines) == {"twice": 1}
    assert suite.before(lines[4], lines) == {"twice": 4}
    assert suite.before(lines[0], lines) == {}


@pytest.mark.parametrize(("figure", "now", "then", "worse"), [
    (TWICE, 1.2, 1.0, True), (TWICE, 1.05, 1.0, False), (TWICE, 0.5, 1.0, False),
    (RATE, 0.8, 1.0, True), (RATE, 0.95, 1.0, False), (RATE, 2.0, 1.0, False),
])  # fmt: skip
def test_worse_is_a_tenth_in_the_bad_direction(figure: Figure, now: float, then: float, worse: bool) -> None:
    assert suite.is_worse(figure, now, then) is worse


def test_large_captures_are_ones_that_parity_judges(tmp_path: Path) -> None:
    files, scores = large_captures.make(tmp_path, 100, 32, text=False, logprobs=True, scored=True)
    baseline, candidate = map(read_capture, files)
    found = compare(baseline, candidate, read_scores(scores))
    assert (found.verdict, found.stats.near_tie, found.stats.corrupt) == (Verdict.DIVERGED, 7, 3)
    assert found.stats.numerics is not None
    assert found.stats.numerics.failed == ()


def test_the_documentation_shows_the_history() -> None:
    lines = suite.history()
    assert {one["name"] for one in lines} <= {one.name for one in BENCHMARKS}
    assert suite.table(lines) in suite.PAGE.read_text("utf-8"), "run make bench ARGS=--table"
