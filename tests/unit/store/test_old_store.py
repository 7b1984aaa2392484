"""A database that an earlier parity wrote (tests/data/old_store.db.gz: a run, a comparison, a run that failed)."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from parity.plan import Request
from parity.plan.digest import plan_hash
from parity.records import RUN, Key, Kind
from parity.records.first_faults import FOLLOWS
from parity.records.weight import weight_of
from parity.store import Store, TriageState

OLD = Path(__file__).parents[2] / "data" / "old_store.db.gz"

SAID = {"temperature": 0.0, "max_tokens": 128, "n": 1, "repetition_penalty": 1.0}
"""The sampling parameters of the captures compared, as their headers say them."""


@pytest.fixture
def old(path: Path) -> Path:
    path.parent.mkdir()
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    return path


def test_it_opens_and_shows_what_it_held(old: Path) -> None:
    with Store.open(old) as store:
        failed, compared, run = store.runs()
        assert (run.id, run.verdict, run.source) == ("20261101-120000-aaaa", "DIVERGED", "run")
        assert (compared.source, failed.status) == ("compare", "failed")
        assert [str(reason) for reason in run.reasons] == ["1 of 4 completions are corrupt: omission"]
        assert str(store.arms(failed.id)[1].message) == "cpu/mtp: the worker ended while generating (exit code 1)"
        worst = store.page_findings(run.id)[0]
        assert (worst.kind, worst.severity, worst.state) == ("omission", "corrupt", TriageState.CONFIRMED)
        assert store.triage(worst.fingerprint).note == "seen"
        assert store.count_classes(run.id, "cpu/mtp") == {"corrupt": 1, "identical": 2, "near_tie": 1}


def test_its_findings_are_weighed(old: Path) -> None:
    with Store.open(old) as store:
        rows = store.page_findings("20261101-120000-aaaa", limit=-1)
        assert len(rows) > 1
        for row in rows:
            assert row.weight == weight_of(Kind(row.kind), row.severity, row.length, row.facts)
        assert [row.weight for row in rows] == sorted((row.weight for row in rows), reverse=True)


def test_its_plans_are_the_plans_they_were(old: Path) -> None:
    """Typed, and of the same hash: triage of then holds for what is run again."""
    with Store.open(old) as store:
        for row in store.runs():
            asked = store.requests(row.id)
            requests = tuple(Request(one.name, one.prompt, tuple(one.prompt_token_ids.tolist())) for one in asked)
            whole = replace(row.plan, requests=requests)
            assert plan_hash(whole, sampling=SAID if row.source == "compare" else None) == row.plan_hash
            assert [arm.name for arm in row.plan.arms] == ["cpu/base", "cpu/mtp"]
        _, compared, run = store.runs()
        assert (run.plan.model.path, run.plan.rounds, run.plan.sampling.max_tokens) == ("/models/tiny", 2, 64)
        assert (compared.plan.rounds, compared.score_files) == (0, ("/data/scores.jsonl",))


def test_it_has_no_gaps_for_what_was_compared_then(old: Path) -> None:
    with Store.open(old) as store:
        worst = store.page_findings("20261101-120000-aaaa")[0]
        assert store.token_gaps("20261101-120000-aaaa", "cpu/mtp", worst.key) is None
        assert store.token_gaps("20261101-120000-aaaa", "cpu/mtp", Key("none", 0, 0)) is None


def test_what_follows_a_first_fault_is_found_out_on_opening(old: Path) -> None:
    """As a parity of today writes it: the one at the first token leads."""
    places = {}
    with Store.open(old) as store:
        for run in store.runs():
            for row in store.page_findings(run.id, limit=-1):
                if row.severity == "corrupt" and row.request != RUN:
                    places.setdefault((run.id, row.arm, row.key), []).append((row.position, row.followed))
    assert places
    for of_one in places.values():
        first, *others = sorted(of_one)
        assert first[1] == len(others)
        assert {followed for _, followed in others} <= {FOLLOWS}
