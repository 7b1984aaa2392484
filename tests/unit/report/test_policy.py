"""A policy: what it reads, what it refuses, and what it makes of a run."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from parity.errors import ExitCode, ParityError
from parity.language import render
from parity.records import Verdict
from parity.report.policy import Counted, Policy, judge, parse_policy, read_policy

MARK = "0123456789abcdef0123"
OTHER = "ffffffffffffffffffff"


def counted(kind: str, number: int = 1, *, mark: str = OTHER, state: str = "new") -> list[Counted]:
    severity = "benign" if kind == "near_tie" else "corrupt"
    return [Counted("cpu/mtp", kind, severity, mark, state)] * number


def policy(**table: Any) -> Policy:
    return parse_policy(table, "parity.toml")


def test_reads_what_the_documentation_shows(tmp_path: Path) -> None:
    path = tmp_path / "parity.toml"
    path.write_text(
        """
[policy]
inconclusive = "pass"
allow_states = ["benign", "reported"]

[policy.budget]
near_tie = "10%"
unjustified = 1

[[policy.allow]]
fingerprint = "0123456789abcdef0123"
reason = "vllm#45100"
until = 2027-01-31
""",
        encoding="utf-8",
    )
    read = read_policy(path)
    assert read.inconclusive == "pass"
    assert read.states == {"benign", "reported"}
    assert {kind: str(budget.words) for kind, budget in read.budgets.items()} == {
        "near_tie": "10% of the completions",
        "unjustified": "1",
        "corrupt": "0",
    }
    assert read.allowed[0].until == date(2027, 1, 31)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"budgets": {}}, "has no setting 'budgets'"),
        ({"inconclusive": "maybe"}, 'inconclusive is "maybe"'),
        ({"allow_states": ["new"]}, "allow_states"),
        ({"allow_states": "benign"}, "allow_states"),
        ({"budget": 3}, "budget is no table"),
        ({"budget": {"garbld": 0}}, "has no kind 'garbld'"),
        ({"budget": {"garbled": -1}}, r"budget\.garbled is -1"),
        ({"budget": {"garbled": "101%"}}, r"budget\.garbled is"),
        ({"budget": {"garbled": True}}, r"budget\.garbled is"),
        ({"allow": {"fingerprint": MARK}}, "allow is no list"),
        ({"allow": [{"fingerprint": "abc", "reason": "x"}]}, r'allow\[0\]\.fingerprint is "abc"'),
        ({"allow": [{"fingerprint": MARK, "reason": " "}]}, r'allow\[0\]\.reason is " "'),
        ({"allow": [{"fingerprint": MARK, "reason": "x", "until": "soon"}]}, r'allow\[0\]\.until is "soon"'),
        (
            {"allow": [{"fingerprint": MARK, "reason": "x", "untill": 1}]},
            r"allow\[0\]\.untill is unknown \(known: fingerprint, reason, until\)",
        ),
    ],
)
def test_a_mistake_is_named(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParityError, match=problem) as caught:
        policy(**table)
    assert caught.value.hint


def test_a_file_without_a_policy_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "parity.toml"
    path.write_text("[plan]\nmax-tokens = 8\n", encoding="utf-8")
    with pytest.raises(ParityError, match=r"has no \[policy\]"):
        read_policy(path)


@pytest.mark.parametrize(
    ("budget", "found", "verdict"),
    [
        ({}, [], Verdict.PASS),
        ({}, counted("near_tie", 90), Verdict.PASS),
        ({}, counted("garbled"), Verdict.DIVERGED),
        ({"garbled": 2}, counted("garbled", 2), Verdict.PASS),
        ({"garbled": 2}, counted("garbled", 3), Verdict.DIVERGED),
        ({"garbled": 2}, counted("omission"), Verdict.DIVERGED),
        ({"corrupt": 3}, counted("garbled", 2) + counted("omission"), Verdict.PASS),
        ({"corrupt": 2}, counted("garbled", 2) + counted("omission"), Verdict.DIVERGED),
        ({"corrupt": 2, "garbled": 5}, counted("garbled", 5) + counted("omission", 2), Verdict.PASS),
        ({"near_tie": "10%"}, counted("near_tie", 10), Verdict.PASS),
        ({"near_tie": "10%"}, counted("near_tie", 11), Verdict.DIVERGED),
    ],
)
def test_budgets(budget: dict[str, Any], found: list[Counted], verdict: Verdict) -> None:
    corrupt = any(one.severity == "corrupt" for one in found)
    judged = judge(policy(budget=budget), found, verdict=Verdict.DIVERGED if corrupt else Verdict.PASS, completions=100)
    assert judged.verdict is verdict
    assert judged.exit_code == (ExitCode.PASS if verdict is Verdict.PASS else ExitCode.DIVERGED)
    assert bool(judged.broken) == (verdict is Verdict.DIVERGED)


def test_known_findings_count_for_nothing_until_their_day_has_passed() -> None:
    rules = policy(allow=[{"fingerprint": MARK, "reason": "vllm#45100", "until": date(2026, 11, 21)}])
    found = counted("garbled", mark=MARK)
    on_time = judge(rules, found, verdict="DIVERGED", completions=4, today=date(2026, 11, 21))
    assert (on_time.verdict, {mark: str(why) for mark, why in on_time.allowed.items()}) == (
        Verdict.PASS,
        {MARK: "vllm#45100"},
    )
    late = judge(rules, found, verdict="DIVERGED", completions=4, today=date(2026, 11, 22))
    assert late.verdict is Verdict.DIVERGED
    assert [str(line) for line in late.expired] == [f"{MARK} was allowed until 2026-11-21: vllm#45100"]
    assert any("allowed until" in str(line) for line in late.lines())


@pytest.mark.parametrize(("state", "verdict"), [("benign", "PASS"), ("duplicate", "PASS"), ("confirmed", "DIVERGED")])
def test_triage_decides_what_is_known(state: str, verdict: str) -> None:
    judged = judge(policy(), counted("garbled", state=state), verdict="DIVERGED", completions=4)
    assert judged.verdict == verdict


@pytest.mark.parametrize(
    ("run", "rules", "other", "code"),
    [
        ("INCONCLUSIVE", {}, False, ExitCode.INCONCLUSIVE),
        ("INCONCLUSIVE", {"inconclusive": "pass"}, False, ExitCode.PASS),
        ("DIVERGED", {}, True, ExitCode.INCONCLUSIVE),
        ("DIVERGED", {}, False, ExitCode.PASS),
        ("ERROR", {"inconclusive": "pass"}, False, ExitCode.BACKEND_FAILED),
    ],
)
def test_allowed_findings_do_not_turn_what_was_not_tested_into_a_pass(
    run: str, rules: dict[str, Any], other: bool, code: ExitCode
) -> None:
    found = counted("garbled", state="benign") if run == "DIVERGED" else []
    judged = judge(policy(**rules), found, verdict=run, completions=4, other_reasons=other)
    assert judged.exit_code is code


def test_the_lines_are_said_in_chinese() -> None:
    lines = judge(policy(budget={"near_tie": "10%"}), counted("near_tie", 11), verdict="PASS", completions=100).lines()
    assert [render(line, "zh") for line in lines] == [
        "策略：near_tie：100 条补全中有 11 条，最多允许 补全的 10%",
        "策略：DIVERGED",
    ]
