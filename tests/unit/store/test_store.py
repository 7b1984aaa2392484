"""Runs, arms, completions and findings: what goes in comes out, whole stages only."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_data import REQUESTS, make_capture, make_comparison, make_finding, make_plan, store_run

from parity.errors import ParityError
from parity.messages import verbatim
from parity.plan.digest import plan_hash
from parity.records import Key, Kind, Severity
from parity.records.gaps import KeptGaps
from parity.store import (
    ArmResult,
    FindingFilter,
    FindingRow,
    FindingSort,
    NewRun,
    RunStatus,
    Store,
    Triage,
    TriageState,
    fingerprint,
)
from parity.store.packing import pack_gaps, pack_tokens, unpack_gaps, unpack_tokens


def test_a_run_comes_back_as_it_went_in(store: Store) -> None:
    store_run(store, "r1", [make_finding(1, gap=2.5), make_finding(2, Kind.NEAR_TIE, position=None)])
    store.finish_run("r1", RunStatus.FINISHED, verdict="DIVERGED", reasons=[verbatim("bad")], duration=1.5)
    run = store.run("r1")
    assert (run.status, run.verdict, run.reasons, run.duration) == ("finished", "DIVERGED", (verbatim("bad"),), 1.5)
    assert run.plan == replace(make_plan(), requests=())
    base, mtp = store.arms("r1")
    assert (base.name, base.is_baseline, base.status) == ("cpu/base", True, "captured")
    assert (mtp.status, mtp.verdict, mtp.acceptance_length, mtp.counters) == (
        "compared",
        "DIVERGED",
        2.6,
        {"drafts": 10},
    )
    assert mtp.engine == {"seed": 0, "resolved": True}
    assert mtp.stats["nan"] is None
    assert [r.name for r in store.requests("r1")] == [f"p{i}" for i in range(REQUESTS)]
    completion = store.completion("r1", "cpu/mtp", Key("p3", 0, 0))
    assert completion is not None
    assert completion.token_ids.tolist() == [3, 4, 5, 6, 7]
    assert (completion.finish_reason, completion.stop_reason, completion.cls) == ("stop", "END", "identical")
    number = store.completion("r1", "cpu/mtp", Key("p4", 0, 0))
    assert number is not None
    assert number.stop_reason == 7
    assert store.completion("r1", "cpu/mtp", Key("p9", 0, 0)) is None
    assert store.count_classes("r1", "cpu/mtp") == {"identical": REQUESTS}
    worst, benign = store.page_findings("r1")
    assert (worst.request, worst.severity, worst.gap, str(worst.why)) == ("p1", "corrupt", 2.5, "because")
    assert (benign.request, benign.position, benign.state) == ("p2", None, TriageState.NEW)


def test_doing_a_stage_again_leaves_the_same_rows(store: Store) -> None:
    for _ in range(3):
        store_run(store, "r1", [make_finding(1)])
    assert store.count_runs() == 1
    assert store.count_findings("r1") == 1
    assert len(store.completions("r1", "cpu/mtp")) == REQUESTS


def test_a_stage_that_fails_midway_leaves_nothing_of_itself(store: Store) -> None:
    store_run(store, "r1", [make_finding(1)])
    broken = make_comparison([make_finding(2), make_finding(3, bad=object())])
    with pytest.raises(TypeError):
        store.save_comparison("r1", "cpu/mtp", broken)
    assert [f.request for f in store.page_findings("r1")] == ["p1"]
    assert store.arms("r1")[1].verdict == "DIVERGED"


def test_runs_are_found_by_the_beginning_of_their_id(store: Store) -> None:
    for name in ("2026-a", "2026-b"):
        store.create_run(NewRun(name, make_plan(), "c"))
    assert store.run("2026-a").id == "2026-a"
    assert store.run().id == "2026-b"
    with pytest.raises(ParityError, match="could be any of"):
        store.run("2026")
    for nothing in ("x", ""):
        with pytest.raises(ParityError, match="no run"):
            store.run(nothing)


def test_deleting_a_run_takes_its_rows_and_keeps_triage(store: Store) -> None:
    store_run(store, "r1", [make_finding(1)])
    store_run(store, "r2", [make_finding(1)])
    name = store.page_findings("r1")[0].fingerprint
    store.set_triage([name], Triage(TriageState.CONFIRMED))
    store.delete_run("r1")
    assert store.count_runs() == 1
    for table in ("completions", "findings", "requests", "arms"):
        rows = store._read(f"SELECT count(*) FROM {table}")[0][0]
        assert rows == {"completions": 2 * REQUESTS, "findings": 1, "requests": REQUESTS, "arms": 2}[table]
    assert store.triage(name).state is TriageState.CONFIRMED
    with pytest.raises(ParityError, match="no run"):
        store.delete_run("r1")


def test_fingerprints_hold_across_runs_of_the_same_plan_only() -> None:
    plan, other = make_plan(), make_plan(sampling={"temperature": 0.7})
    elsewhere = make_plan(model={"name": "tiny", "path": "/other/place", "fingerprint": {"weights": "ab"}})
    assert plan_hash(plan) == plan_hash(elsewhere)
    assert plan_hash(plan) != plan_hash(other)
    one = fingerprint(plan_hash(plan), make_finding(1))
    assert one == fingerprint(plan_hash(elsewhere), make_finding(1, gap=9.0))
    different = [make_finding(2), make_finding(1, Kind.OMISSION), make_finding(1, position=4)]
    assert len({one, *(fingerprint(plan_hash(plan), f) for f in different)}) == 4


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_token_ids_survive_packing(ids: list[int]) -> None:
    assert unpack_tokens(pack_tokens(np.array(ids, dtype=np.int64))).tolist() == ids


def test_every_table_is_strict(store: Store) -> None:
    for row in store._read("SELECT name, sql FROM sqlite_master WHERE type = 'table'"):
        if not row["name"].startswith("_sqlite"):
            assert "STRICT" in row["sql"], row["name"]
    assert store._read("PRAGMA journal_mode")[0][0] == "wal"
    assert store._read("PRAGMA foreign_keys")[0][0] == 1


# --------------------------------------------------------------------------- paging


def _key(sort: FindingSort, row: FindingRow) -> Any:
    value = getattr(row, sort.value)
    if sort is FindingSort.WORST:
        return -value
    if sort is FindingSort.ARM:
        return 0  # one candidate arm here
    return (value is not None, value)


@pytest.fixture
def many(store: Store) -> Store:
    draw = random.Random(5)
    findings = []
    for _ in range(300):
        kind = draw.choice([Kind.NEAR_TIE, Kind.GARBLED, Kind.OMISSION, Kind.ROW_LEAK])
        position = draw.choice([None, *range(6)])
        gap = {"gap": draw.choice([0.0, 1.5, 3.0])} if draw.random() < 0.7 else {}
        findings.append(make_finding(draw.randrange(REQUESTS), kind, position, **gap))
    store_run(store, "r1", findings)
    store_run(store, "r2", findings[:10])
    store.set_triage([store.page_findings("r1", offset=40, limit=1)[0].fingerprint], Triage(TriageState.BENIGN))
    return store


FILTERS = [
    FindingFilter(),
    FindingFilter(kinds=frozenset({"garbled", "omission"})),
    FindingFilter(severities=frozenset({"corrupt"}), states=frozenset({"new"})),
    FindingFilter(arms=frozenset({"cpu/mtp"}), text="NUMBER 3"),
    FindingFilter(text="p2"),
    FindingFilter(arms=frozenset({"no/such"})),
]


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", list(FindingSort))
def test_pages_are_slices_of_the_sorted_list(
    many: Store, sort: FindingSort, descending: bool, where: FindingFilter
) -> None:
    everything = many._findings_by_id(
        [r["id"] for r in many._read("SELECT id FROM findings WHERE run = 1 ORDER BY id")]
    )

    def passes(row: FindingRow) -> bool:
        return (
            (not where.arms or row.arm in where.arms)
            and (not where.kinds or row.kind in where.kinds)
            and (not where.severities or row.severity in where.severities)
            and (not where.states or row.state in where.states)
            and (not where.text or where.text.lower() in f"{row.request} prompt number {row.ordinal}")
        )

    expected = sorted(filter(passes, everything), key=lambda r: (_key(sort, r), r.id), reverse=descending)
    assert many.count_findings("r1", where) == len(expected)
    pages = [
        row
        for offset in range(0, len(expected) + 50, 50)
        for row in many.page_findings("r1", where, sort=sort, descending=descending, offset=offset, limit=50)
    ]
    assert [row.id for row in pages] == [row.id for row in expected]
    for at in range(0, len(expected), 37):
        found = many.index_of_finding("r1", expected[at].id, where, sort=sort, descending=descending)
        assert found == at
    hidden = [row for row in everything if not passes(row)][:1]
    assert all(many.index_of_finding("r1", row.id, where, sort=sort) is None for row in hidden)
    counts = {(c.kind, c.severity): c.findings for c in many.counts_by_kind("r1", where)}
    assert sum(counts.values()) == len(expected)
    assert all(n == sum((row.kind, row.severity) == pair for row in expected) for pair, n in counts.items())


@pytest.mark.parametrize("sort", list(FindingSort))
def test_a_page_is_read_from_a_covering_index(many: Store, sort: FindingSort) -> None:
    condition, values = many._condition("r1", FindingFilter(kinds=frozenset({"garbled"}), text="p"))
    plan = many._read(
        f"EXPLAIN QUERY PLAN SELECT id FROM findings INDEXED BY findings_by_{sort.value} WHERE {condition}"
        f" ORDER BY {sort.value} {'DESC' if sort is FindingSort.WORST else 'ASC'}, id ASC LIMIT 9 OFFSET 9",
        values,
    )
    lines = [row["detail"] for row in plan]
    assert any(f"COVERING INDEX findings_by_{sort.value}" in line for line in lines), lines
    assert not any("TEMP B-TREE FOR ORDER" in line for line in lines), lines


def test_findings_of_one_completion(many: Store) -> None:
    rows = many.findings_of_completion("r1", "cpu/mtp", Key("p2", 0, 0))
    assert rows
    assert {row.request for row in rows} == {"p2"}
    places = [-1 if row.position is None else row.position for row in rows]
    assert places == sorted(places)


# --------------------------------------------------------------------------- triage


def test_triage_holds_in_later_runs_of_the_same_plan(store: Store) -> None:
    store_run(store, "r1", [make_finding(1), make_finding(2)])
    name = store.page_findings("r1")[0].fingerprint
    said = Triage(TriageState.REPORTED, note="seen on two hosts", link="https://example.org/1")
    store.set_triage([name], said)
    store_run(store, "r2", [make_finding(2), make_finding(1)])
    assert [(f.request, f.state) for f in store.page_findings("r2")] == [("p1", "reported"), ("p2", "new")]
    assert store.triage(name) == said
    assert store.count_findings("r2", FindingFilter(states=frozenset({"reported"}))) == 1


def test_undo_goes_back_step_by_step_and_forgets_nothing(store: Store) -> None:
    store_run(store, "r1", [make_finding(i) for i in range(3)])
    names = [f.fingerprint for f in store.page_findings("r1")]
    store.set_triage(names, Triage(TriageState.CONFIRMED))
    store.set_triage(names[:1], Triage(TriageState.DUPLICATE, duplicate_of=names[1]))
    assert [f.state for f in store.page_findings("r1")] == ["duplicate", "confirmed", "confirmed"]
    (undone,) = store.undo_triage()
    assert undone.after == Triage(TriageState.CONFIRMED)
    assert [f.state for f in store.page_findings("r1")] == ["confirmed"] * 3
    assert len(store.undo_triage()) == 3
    assert [f.state for f in store.page_findings("r1")] == ["new"] * 3
    assert store.triage(names[0]) == Triage()
    assert store.undo_triage() == []
    assert len(store.triage_history()) == 8
    store.set_triage(names[2:], Triage(TriageState.FIXED))
    assert len(store.undo_triage()) == 1
    assert [change.undoes for change in store.triage_history(names[2], limit=2)] == [5, None]


def test_an_undo_that_was_stopped_goes_on_where_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.store.triage.AT_ONCE", 2)
    store_run(store, "r1", [make_finding(i) for i in range(7)])
    names = [f.fingerprint for f in store.page_findings("r1")]
    store.set_triage(names, Triage(TriageState.CONFIRMED))

    def states() -> list[str]:
        return sorted(str(f.state) for f in store.page_findings("r1"))

    assert len(store.undo_triage(going_on=lambda done: done < 4)) == 4
    assert states() == ["confirmed"] * 3 + ["new"] * 4
    assert len(store.undo_triage()) == 3
    assert states() == ["new"] * 7
    assert store.undo_triage() == []
    assert len(store.redo_triage(going_on=lambda done: False)) == 2
    assert states() == ["confirmed"] * 2 + ["new"] * 5


def test_a_label_is_kept_undone_and_found(store: Store) -> None:
    store_run(store, "r1", [make_finding(i) for i in range(3)])
    names = [row.fingerprint for row in store.page_findings("r1")]
    store.set_triage(names[:2], Triage(TriageState.CONFIRMED, label="Bonus token", note="k = 3 only"))
    assert [row.label for row in store.page_findings("r1")] == ["Bonus token", "Bonus token", ""]
    for text, found in (("bonus", 2), ("K = 3", 2), ("number 2", 1), ("nothing like it", 0)):
        assert store.count_findings("r1", FindingFilter(text=text)) == found
    store.undo_triage()
    assert store.triage(names[0]).label == ""
    assert store.count_findings("r1", FindingFilter(text="bonus")) == 0


def test_history_of_a_database_without_labels() -> None:
    stored = {"state": "benign", "note": "", "link": "", "duplicate_of": None}
    assert Triage.from_json(stored) == Triage(TriageState.BENIGN)


def test_only_known_states_are_stored(path: Path, store: Store) -> None:
    with sqlite3.connect(path) as raw, pytest.raises(sqlite3.IntegrityError):
        raw.execute("INSERT INTO triage (fingerprint, state, updated) VALUES ('f', 'whatever', 'now')")


def test_counts_are_by_kind_and_severity(store: Store) -> None:
    store_run(store, "r1", [make_finding(1), make_finding(2), make_finding(3, Kind.NEAR_TIE)])
    counts = [(c.kind, c.severity, c.findings) for c in store.counts_by_kind("r1")]
    assert counts == [("garbled", "corrupt", 2), ("near_tie", "benign", 1)]
    assert str(Severity.CORRUPT) == "corrupt"


def test_an_arm_that_the_run_does_not_have(store: Store) -> None:
    store.create_run(NewRun("r1", make_plan(), "c"))
    with pytest.raises(ParityError, match='no arm "cpu/eager"'):
        store.save_arm("r1", "cpu/eager", make_capture("cpu/eager"), "x", ArmResult())


@given(
    st.lists(
        st.tuples(st.floats(width=32, allow_infinity=False), st.booleans(), st.integers(-1, 2**31 - 1)), max_size=70
    )
)
def test_gaps_come_back_as_they_went_in(tokens: list[tuple[float, bool, int]]) -> None:
    gap, bounded, best = zip(*tokens, strict=True) if tokens else ((), (), ())
    gaps = KeptGaps(np.array(gap, np.float32), np.array(bounded, bool), np.array(best, np.int32))
    back = unpack_gaps(pack_gaps(gaps))
    for name in ("gap", "bounded", "best_id"):
        assert getattr(back, name).dtype == getattr(gaps, name).dtype
        assert np.array_equal(getattr(back, name), getattr(gaps, name), equal_nan=name == "gap")


@pytest.mark.parametrize("blob", [b"", b"\x02abc", b"\x01nonsense"])
def test_gaps_that_are_none_are_an_error(blob: bytes) -> None:
    with pytest.raises(ValueError, match="gaps"):
        unpack_gaps(blob)


def test_gaps_are_kept_with_the_completions_of_both_arms(store: Store) -> None:
    store_run(store, "r1", [])
    key = Key("p1", 0, 0)
    ours, theirs = (
        KeptGaps(np.array([0, gap], np.float32), np.array([False, True]), np.array([4, 9], np.int32))
        for gap in (2.5, 0.5)
    )
    for _ in range(2):  # a stage that is stored again leaves the same
        store.save_comparison(
            "r1", "cpu/mtp", replace(make_comparison([]), gaps={key: ours}, baseline_gaps={key: theirs})
        )
    found = store.token_gaps("r1", "cpu/mtp", key)
    assert found is not None
    assert (found.at(1), found.bounded.tolist(), found.best_id.tolist()) == (2.5, [False, True], [4, 9])
    of_baseline = store.token_gaps("r1", "cpu/base", key)
    assert of_baseline is not None
    assert of_baseline.at(1) == 0.5
    assert store.token_gaps("r1", "cpu/mtp", Key("p2", 0, 0)) is None
    store.delete_run("r1")
    assert store._read("SELECT count(*) FROM gaps")[0][0] == 0
