"""`--policy` and `--against` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import capture, completion, written
from click.testing import CliRunner, Result

from parity.cli.main import cli
from parity.records import ScoreKey, TopLogprobs
from parity.store import Store, Triage, TriageState

BASE = [5, 6, 7, 8, 9, 10, 11, 12]
GARBLED = [5, 6, 99, 98, 97, 96, 95, 94]
TIE = [5, 6, 77, 8, 9, 10, 11, 12]


def recorded(path: Path, arm: str, tokens: list[int], *, scores: bool = False) -> Path:
    given = {}
    if scores:  # at position 2, 7 and 77 are a near-tie; tokens from 90 on are never likely
        ids = np.array([[token, 77 if token != 77 else 7, 50] for token in tokens])
        ids[2, 2] = 50 if 7 in ids[2] else 7
        best = [-0.5 if token < 90 else -9.0 for token in tokens]
        values = np.array([[best[at], -0.6 if at == 2 else -5.0, -6.0] for at in range(len(tokens))])
        values[2, 2] = -6.0 if ids[2, 2] == 50 else -0.5
        given[ScoreKey(arm, "p0", 0, 0)] = TopLogprobs(ids, values)
    return written(path, capture(arm, completion(tokens), scores=given, max_tokens=len(BASE)))


def parity(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit), result.output
    return result


@pytest.fixture
def golden(tmp_path: Path) -> tuple[str, Path]:
    """A stored run whose cpu/base said BASE, with scores in its capture, and its database."""
    first = recorded(tmp_path / "base.jsonl", "cpu/base", BASE, scores=True)
    second = recorded(tmp_path / "plain.jsonl", "cpu/plain", BASE)
    db = tmp_path / "parity.db"
    result = parity("compare", first, second, "--db", db, "--json")
    return json.loads(result.stdout)["run"], db


@pytest.mark.parametrize(("tokens", "code"), [(BASE, 0), (TIE, 0), (GARBLED, 1)])
def test_a_new_capture_is_held_against_a_golden_run(
    golden: tuple[str, Path], tmp_path: Path, tokens: list[int], code: int
) -> None:
    """The golden run's scores judge the first divergent token, so a near-tie needs no engine."""
    run, db = golden
    new = recorded(tmp_path / "new.jsonl", "cpu/base", tokens)
    result = parity("compare", "--against", run[:-2], new, "--db", db, "--json")
    assert result.exit_code == code, result.output
    value = json.loads(result.stdout)
    assert (value["baseline"], value["candidate"]) == ("golden@cpu/base", "cpu/base")
    reported = parity("report", "--db", db, "--format", "json")
    stored = json.loads(reported.stdout)
    assert f"the newest run: {stored['run']['id']} of" in reported.stderr
    assert stored["run"]["id"] == value["run"]
    assert [one["fingerprint"] for one in stored["findings"]] == [one["fingerprint"] for one in value["findings"]]
    kinds = {(): 0, ("near_tie",): 0}.get(tuple(value["counts"]), 1)
    assert kinds == code


def test_the_arm_of_the_golden_run_can_be_named(golden: tuple[str, Path], tmp_path: Path) -> None:
    run, db = golden
    new = recorded(tmp_path / "new.jsonl", "cuda/base", BASE)
    value = json.loads(parity("compare", "--against", run, new, "--db", db, "--arm", "cpu/plain", "--json").stdout)
    assert value["baseline"] == "golden@cpu/plain"
    result = parity("compare", "--against", run, new, "--db", db, "--arm", "cpu/none")
    assert (result.exit_code, "has no arm 'cpu/none'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["base.jsonl"], "name two captures"),
        (["base.jsonl", "plain.jsonl", "--against", "x"], "takes the place of the first"),
        (["base.jsonl", "plain.jsonl", "--arm", "x"], "it goes with --against"),
        (["--against", "nothing-like-it", "plain.jsonl", "--db", "parity.db"], "there is no run"),
        (["--against", "goldne", "plain.jsonl", "--db", "new.db"], "goldne is neither the directory of a run"),
    ],
)
def test_mistakes_of_against(
    golden: tuple[str, Path], tmp_path: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = parity("compare", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def policy_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "parity.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_budgets_decide_the_exit_code(tmp_path: Path) -> None:
    base = recorded(tmp_path / "base.jsonl", "cpu/base", BASE, scores=True)
    bad = recorded(tmp_path / "mtp.jsonl", "cpu/other", GARBLED, scores=True)
    db = ("--db", tmp_path / "none.db")
    found = parity("compare", base, bad, "--json", *db)
    kinds: dict[str, Any] = json.loads(found.stdout)["counts"]
    budget = "[policy.budget]\n" + "".join(f"{kind} = {count}\n" for kind, count in kinds.items())
    strict = parity("compare", base, bad, "--policy", policy_file(tmp_path, "[policy]\ninconclusive='fail'\n"), *db)
    assert strict.exit_code == 1
    assert "policy: DIVERGED" in strict.stderr
    loose = parity("compare", base, bad, "--policy", policy_file(tmp_path, budget), *db, "--json")
    assert loose.exit_code == 0, loose.output
    assert json.loads(loose.stdout)["policy"]["verdict"] == "PASS"
    assert json.loads(loose.stdout)["verdict"] == "DIVERGED"  # what was found does not change


def test_a_positive_control_that_was_named_is_judged_in_every_format(golden: tuple[str, Path], tmp_path: Path) -> None:
    """The command ended with 1, and the summary of what it stored said PASS."""
    new, (run, db) = recorded(tmp_path / "new.jsonl", "cpu/mtp-control-loop", GARBLED), golden
    policy = tmp_path / "parity.toml"
    policy.write_text("[policy]\n[policy.budget]\ncorrupt = 0\n", encoding="utf-8")
    against = ("--against", run, "--arm", "cpu/base")
    assert parity("compare", *against, new, "--db", db, "--policy", policy).exit_code == 1
    reported = parity("report", "--db", db, "--policy", policy, "--format", "github").stdout
    assert "DIVERGED" in reported.splitlines()[0]


def test_what_was_triaged_as_benign_is_allowed(tmp_path: Path) -> None:
    base = recorded(tmp_path / "base.jsonl", "cpu/base", BASE, scores=True)
    bad = recorded(tmp_path / "mtp.jsonl", "cpu/other", GARBLED, scores=True)
    rules = policy_file(tmp_path, "[policy]\ninconclusive='pass'\n")
    db = tmp_path / "parity.db"
    assert parity("compare", base, bad, "--db", db, "--policy", rules).exit_code == 1
    with Store.open(db) as store:
        marks = [row.fingerprint for row in store.page_findings(store.run().id)]
        store.set_triage(marks, Triage(TriageState.BENIGN, note="known"))
    again = parity("compare", base, bad, "--db", db, "--policy", rules)
    assert again.exit_code == 0, again.output
    assert "1 known finding allowed" in again.stderr
    report = parity("report", "--db", db, "--format", "junit", "--policy", rules)
    assert 'failures="0"' in report.stdout
    assert "<skipped" in report.stdout


def test_a_mistake_in_the_policy_is_found_before_anything_runs(tmp_path: Path) -> None:
    rules = policy_file(tmp_path, "[policy]\nbudgets = {}\n")
    result = parity("compare", "nowhere.jsonl", "neither.jsonl", "--policy", rules)
    assert result.exit_code == 2
    assert "has no setting 'budgets'" in result.stderr
