"""What follows the first fault of a completion is known of every finding, and can be left out of any page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from store_data import make_finding, store_run

from parity.comparator.population.first_faults import first_faults
from parity.records import RUN, Finding, Kind
from parity.records.first_faults import FOLLOWS
from parity.store import FindingFilter, FindingSort, Store
from parity.store.browse import Browser

FOUND = [
    make_finding(0, Kind.GARBLED, 9),
    make_finding(0, Kind.ROW_LEAK, 3),
    make_finding(0, Kind.NEAR_TIE, 1),
    make_finding(0, Kind.EARLY_STOP, 12),
    make_finding(1, Kind.EARLY_STOP, 5),
    make_finding(1, Kind.ROW_LEAK, 5),
    make_finding(2, Kind.UNJUSTIFIED, 7),
    replace(make_finding(3, Kind.REPETITION, None), request=RUN),
    replace(make_finding(4, Kind.UNJUSTIFIED, None), request=RUN),
]


@pytest.fixture
def store(path: Path) -> Browser:
    with Store.open(path) as made:
        store_run(made, "r1", FOUND)
    return Browser.open(path)


def test_each_row_says_what_follows(store: Browser) -> None:
    said = {(row.request, row.kind): row.followed for row in store.page_findings("r1", limit=-1)}
    assert said == {
        ("p0", "row_leak"): 2,
        ("p0", "garbled"): FOLLOWS,
        ("p0", "early_stop"): FOLLOWS,
        ("p0", "near_tie"): 0,
        ("p1", "row_leak"): 1,
        ("p1", "early_stop"): FOLLOWS,
        ("p2", "unjustified"): 0,
        (RUN, "repetition"): 0,
        (RUN, "unjustified"): 0,
    }


def test_first_faults_are_those_that_follow_nothing(store: Browser) -> None:
    rows = [row for row in store.page_findings("r1", limit=-1) if row.severity == "corrupt" and not row.follows]
    counted = {kind: sum(row.kind == kind for row in rows) for kind in {row.kind for row in rows}}
    assert counted == first_faults(FOUND)


@pytest.mark.parametrize("sort", FindingSort)
def test_any_page_can_do_without(store: Browser, sort: FindingSort) -> None:
    where = FindingFilter(follow_ups=False)
    every = store.page_findings("r1", sort=sort, limit=-1)
    assert store.page_findings("r1", where, sort=sort, limit=-1) == [row for row in every if not row.follows]
    assert store.count_findings("r1", where) == len(every) - 3
    worst = store.page_findings("r1", where, limit=1)[0]
    assert store.index_of_finding("r1", worst.id, where) == 0
    text = structs.replace(where, text="number 0")
    assert {row.kind for row in store.page_findings("r1", text, limit=-1)} == {"row_leak", "near_tie"}


def test_counts_by_filter_know_it(store: Browser) -> None:
    facets = store.facets("r1")
    assert sum(one.findings for one in facets) == len(FOUND)
    assert {one.kind: one.findings for one in facets if one.follows} == {"garbled": 1, "early_stop": 2}


def test_pages_are_read_from_the_index(store: Browser) -> None:
    condition, values = store._condition("r1", FindingFilter(follow_ups=False))
    for sort in FindingSort:
        plan = store._read(
            f"EXPLAIN QUERY PLAN SELECT id FROM findings INDEXED BY findings_by_{sort.value} WHERE {condition}", values
        )
        assert any("COVERING INDEX" in row["detail"] for row in plan), sort


def test_a_kind_of_another_version_stands_last(path: Path) -> None:
    unknown: Finding = replace(make_finding(0, Kind.UNJUSTIFIED, 3), kind=Kind("not_yet_known"))
    with Store.open(path) as made:
        store_run(made, "r1", [unknown, make_finding(0, Kind.ROW_LEAK, 3)])
        assert {row.kind: row.followed for row in made.page_findings("r1", limit=-1)} == {
            "row_leak": 1,
            "not_yet_known": FOLLOWS,
        }
