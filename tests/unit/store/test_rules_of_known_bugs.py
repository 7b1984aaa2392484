"""Known bugs as rules: applied to what is stored and to what comes, whatever its plan is; findings across runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_data import make_finding, make_plan, store_run

from parity.records import Finding, Kind
from parity.store import FindingRow, Rule, RunFilter, RunSort, Store, Triage, TriageState
from parity.store.browse import Browser
from parity.store.lookup import triaged

LINK = "https://github.com/vllm-project/vllm/issues/45100"


def leak(request: int, position: int, part: str = "prompt") -> Finding:
    return make_finding(
        request,
        Kind.ROW_LEAK,
        position,
        donor_request="p5",
        donor_part=part,
        donor_start=position + 40,
        donor_end=position + 42,
        expected_by_chance=0.0,
        requests_with_this_span=1,
    )


@pytest.fixture
def browser(path: Path) -> Iterator[Browser]:
    with Browser.open(path) as opened:
        yield opened


def states(store: Store, run: str) -> dict[tuple[str, int | None], str]:
    return {(row.request, row.position): str(row.state) for row in store.page_findings(run)}


def only(store: Store, run: str) -> FindingRow:
    (row,) = store.page_findings(run)
    return row


def test_a_rule_takes_what_is_stored_and_what_comes_with_other_prompts_and_places(store: Store) -> None:
    store_run(store, "a", [leak(1, 3), leak(2, 9, "output"), make_finding(3, position=4)])
    rule = Rule("row_leak", LINK, {"donor": "prompt"})
    assert store.add_rule(rule) == 1
    assert states(store, "a") == {("p1", 3): "known", ("p2", 9): "new", ("p3", 4): "new"}
    fewer = make_plan()
    store_run(store, "b", [leak(4, 17), leak(4, 90, "output")], requests=fewer.to_json()["requests"][2:])
    assert states(store, "b") == {("p4", 17): "known", ("p4", 90): "new"}
    ((use),) = store.rules()
    assert (use.rule.link, use.findings, use.runs, use.newest) == (LINK, 2, 2, "b")
    (known,) = [row for row in store.page_findings("b") if row.state is TriageState.KNOWN]
    assert store.triage(known.fingerprint) == Triage(TriageState.KNOWN, link=LINK)
    assert known.fingerprint in triaged(store, frozenset({TriageState.KNOWN})), "CI's policy sees it"


@pytest.mark.parametrize(
    ("rule", "takes"),
    [
        (Rule("row_leak"), True),
        (Rule("garbled"), False),
        (Rule("row_leak", model="tiny"), True),
        (Rule("row_leak", model="large"), False),
        (Rule("row_leak", conditions=("speculation",)), False),
        (Rule("row_leak", conditions=("several_rows",)), True),
        (Rule("row_leak", versions={"vllm": "0.12.0"}), False),
        (Rule("row_leak", signs={"donor": "prompt", "offset": "+40"}), True),
        (Rule("row_leak", signs={"donor": "prompt", "offset": "+41"}), False),
    ],
)
def test_each_condition_is_asked_for(store: Store, rule: Rule, takes: bool) -> None:
    store_run(store, "a", [leak(1, 3)])
    assert store.add_rule(rule) == int(takes)
    store_run(store, "b", [leak(1, 3)])
    assert (only(store, "b").state is TriageState.KNOWN) is takes, "later runs as those that are there"


def test_a_decision_goes_before_a_rule_and_undoing_it_brings_the_rule_back(store: Store) -> None:
    store_run(store, "a", [leak(1, 3)])
    name = only(store, "a").fingerprint
    store.set_triage([name], Triage(TriageState.CONFIRMED))
    store.add_rule(Rule("row_leak", LINK))
    assert only(store, "a").state is TriageState.CONFIRMED
    store.undo_triage()
    assert only(store, "a").state is TriageState.KNOWN
    store.amend([name], label="w26")
    assert store.triage(name) == Triage(TriageState.KNOWN, link=LINK, label="w26"), "a label leaves it known"
    store.undo_triage()
    store.amend([name], state=TriageState.NEW)
    assert only(store, "a").state is TriageState.NEW, "somebody says that it is another bug"
    store_run(store, "b", [leak(1, 3)])
    assert only(store, "b").state is TriageState.NEW


def test_a_rule_taken_back_leaves_new_what_no_other_fits(store: Store) -> None:
    store_run(store, "a", [leak(1, 3), leak(2, 9, "output")])
    store.add_rule(Rule("row_leak", "wide"))
    store.add_rule(Rule("row_leak", LINK, {"donor": "prompt"}))
    (narrow, wide) = store.rules()
    assert (narrow.findings, wide.findings) == (0, 2), "what one rule has, another does not take"
    assert store.remove_rule(wide.rule.id) == 2
    assert states(store, "a") == {("p1", 3): "known", ("p2", 9): "new"}
    assert [use.rule.link for use in store.rules()] == [LINK]


def test_the_same_rule_again_is_one_with_the_newer_link(store: Store) -> None:
    store_run(store, "a", [leak(1, 3)])
    store.add_rule(Rule("row_leak", "old"))
    assert store.add_rule(Rule("row_leak", LINK)) == 0
    (use,) = store.rules()
    assert (use.rule.link, use.findings) == (LINK, 1)


def test_taking_can_be_stopped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.store.triage.AT_ONCE", 2)
    store_run(store, "a", [leak(i, 3) for i in range(1, 7)])
    assert store.add_rule(Rule("row_leak"), going_on=lambda done: done < 4) == 4
    assert sorted(states(store, "a").values()) == ["known"] * 4 + ["new"] * 2


def test_a_database_of_before_gets_the_tables(path: Path, store: Store) -> None:
    store_run(store, "a", [leak(1, 3)])
    store.close()
    with sqlite3.connect(path) as raw:
        for statement in (
            "DROP INDEX findings_open",
            "DROP INDEX findings_by_rule",
            "ALTER TABLE findings DROP COLUMN rule",
            "ALTER TABLE runs DROP COLUMN name",
            "ALTER TABLE runs DROP COLUMN tags",
            "DROP TABLE rules",
            "DELETE FROM _sqlite_migrations WHERE name = 'm007_rules_of_known_bugs'",
        ):
            raw.execute(statement)
    raw.close()
    with Store.open(path) as again:
        assert again.add_rule(Rule("row_leak", LINK)) == 1
        assert again.run("a").name == ""


# ------------------------------------------------------------------ across runs


def test_where_a_finding_occurred_before_and_where_it_did_not(browser: Browser) -> None:
    requests = make_plan().to_json()["requests"]
    store_run(browser, "a", [leak(4, 3)])
    store_run(browser, "b", [leak(2, 3)])
    store_run(browser, "c", [leak(4, 12)], requests=requests[1:])
    store_run(browser, "d", [leak(4, 3)], requests=[{**one, "prompt_token_ids": [9, 9]} for one in requests])
    row = next(row for row in browser.page_findings("c"))
    found = [(one.run, one.position) for one in browser.occurrences(row)]
    assert found == [("c", 12), ("b", None), ("a", 3)], "d asked another prompt by that name"


def test_the_inbox_holds_what_nobody_decided_about(browser: Browser) -> None:
    store_run(browser, "a", [leak(1, 3), make_finding(2, position=5), make_finding(3, Kind.NEAR_TIE)])
    store_run(browser, "b", [leak(1, 3), make_finding(2, position=5), make_finding(4, position=6)])
    browser.add_rule(Rule("row_leak"))
    browser.set_triage(
        [row.fingerprint for row in browser.page_findings("a") if row.request == "p2"], Triage(TriageState.BENIGN)
    )
    (one,) = browser.findings(browser.inbox(limit=10))
    assert (one.run, one.request) == ("b", "p4")


def test_runs_by_what_they_are_called_and_in_any_order(store: Store) -> None:
    store_run(store, "a", [leak(1, 3), make_finding(2)])
    store_run(store, "b", [leak(1, 3)])
    store_run(store, "c", [make_finding(3, Kind.NEAR_TIE)])
    store.name_run("a", name="w26 nightly", tags=["nightly", "w26 nightly"])
    store.add_rule(Rule("row_leak"))

    def ids(where: RunFilter | None = None, **more: object) -> list[str]:
        return [run.id for run in store.runs(where=where, **more)]  # type: ignore[arg-type]

    assert store.run("a").tags == ("nightly", "w26")
    assert ids(RunFilter("W26 NIGHT")) == ["a"]
    assert ids(RunFilter(tags=frozenset({"w26"}))) == ["a"]
    assert ids(RunFilter(tags=frozenset({"w2"}))) == []
    assert ids(sort=RunSort.NEW) == ["a", "c", "b"]
    assert ids(sort=RunSort.FOUND) == ["a", "b", "c"]
    assert ids(sort=RunSort.NAME, descending=False)[-1] == "a"
    assert ("tag", "nightly", 1) in store.run_values()
    assert store.states_of(["a", "b", "c"]) == {
        "a": {("cpu/mtp", "known"): 1, ("cpu/mtp", "new"): 1},
        "b": {("cpu/mtp", "known"): 1},
    }
    assert store.count_runs(RunFilter(models=frozenset({"tiny"}))) == 3
