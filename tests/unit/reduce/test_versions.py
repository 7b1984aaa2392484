"""The first bad version of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import Simulated, case_of, plan

from parity.errors import BackendError, ParityError
from parity.reduce.case import Case, Setup
from parity.reduce.notebook import Notebook
from parity.reduce.oracle import Oracle
from parity.reduce.sequential import Question, certain
from parity.reduce.versions import FirstBad, VersionSearch, at_version, between, version_key

VERSIONS = ["0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0"]


def bisect(
    engine: Simulated, directory: Path, question: Question | None = None, versions: list[str] = VERSIONS, **how: bool
) -> FirstBad:
    made = plan(requests=2)
    with Notebook(directory / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, clock=engine.clock)
        search = VersionSearch(
            oracle, case_of(made), made.arm("fake/mtp"), made.arm("fake/base"), question or certain(), **how
        )
        return search.run(versions)


def of(setup: Setup) -> str:
    return setup.candidate.backend.partition("@")[2]


def begins(version: str):  # type: ignore[no-untyped-def]
    return lambda case, setup: version_key(of(setup)) >= version_key(version)


@pytest.mark.parametrize("first", VERSIONS[1:])
@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0])
def test_the_first_bad_version_is_named(first: str, rate: float, tmp_path: Path) -> None:
    engine = Simulated(rate, begins(first), seed=4)
    question = certain() if rate == 1 else Question(0.02, 0.12, alpha=0.01, beta=0.01)
    found = bisect(engine, tmp_path, question)
    assert found.named
    assert found.bad == first
    assert found.good == VERSIONS[VERSIONS.index(first) - 1]
    assert len(found.steps) <= 5  # the ends, and log2 of what lies between


@pytest.mark.parametrize("first", VERSIONS[1:])
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_the_version_that_mended_it_is_named(first: str, rate: float, tmp_path: Path) -> None:
    engine = Simulated(rate, lambda case, setup: not begins(first)(case, setup), seed=4)
    question = certain() if rate == 1 else Question(0.02, 0.12, alpha=0.01, beta=0.01)
    found = bisect(engine, tmp_path, question)
    assert found.named
    assert found.mended
    assert (found.bad, found.good) == (VERSIONS[VERSIONS.index(first) - 1], first)
    told = found.to_json()
    assert (told["last_bad"], told["first_good"]) == (found.bad, first)
    assert "first_bad" not in told


def test_a_mend_among_versions_that_cannot_be_tried_is_a_span(tmp_path: Path) -> None:
    engine = Simulated(
        1.0, lambda case, setup: not begins("0.31.0")(case, setup), refuses=lambda setup: of(setup) == "0.30.0"
    )
    found = bisect(engine, tmp_path)
    assert (found.bad, found.good, found.untried) == ("0.29.0", "0.31.0", ["0.30.0"])
    assert not found.named


def test_versions_that_cannot_be_tried_are_gone_around(tmp_path: Path) -> None:
    engine = Simulated(1.0, begins("0.31.0"), refuses=lambda setup: of(setup) == "0.30.0")
    found = bisect(engine, tmp_path / "around")
    assert (found.good, found.bad, found.untried) == ("0.29.0", "0.31.0", ["0.30.0"])
    assert not found.named
    engine = Simulated(1.0, begins("0.29.0"), refuses=lambda setup: of(setup) == "0.30.0")
    assert bisect(engine, tmp_path / "beside").bad == "0.29.0"
    assert bisect(engine, tmp_path / "beside").named


@pytest.mark.parametrize(
    ("first", "refused", "says"),
    [
        ("0.27.0", "", "0.27.1 fails already"),
        ("0.33.0", "", "0.32.0 does not fail"),
        ("0.28.0", "0.27.1", "0.28.0 fails already"),
        ("0.32.0", "0.32.0", "0.31.0 does not fail"),
    ],
)
def test_ends_that_are_not_what_they_should_be_are_said(first: str, refused: str, says: str, tmp_path: Path) -> None:
    engine = Simulated(1.0, begins(first), refuses=lambda setup: of(setup) == refused)
    with pytest.raises(ParityError, match=says):
        bisect(engine, tmp_path)


def test_ends_that_cannot_be_tried_give_way_to_their_neighbours(tmp_path: Path) -> None:
    engine = Simulated(1.0, begins("0.30.0"), refuses=lambda setup: of(setup) in ("0.27.1", "0.32.0"))
    found = bisect(engine, tmp_path)
    assert (found.good, found.bad, found.named) == ("0.29.0", "0.30.0", True)
    with pytest.raises(BackendError, match="does not like it"):
        bisect(Simulated(1.0, refuses=lambda setup: True), tmp_path / "none")


def test_the_baseline_moves_with_the_version_unless_it_is_fixed(tmp_path: Path) -> None:
    moving, fixed = Simulated(1.0, begins("0.30.0")), Simulated(1.0, begins("0.30.0"))
    bisect(moving, tmp_path / "moving")
    bisect(fixed, tmp_path / "fixed", fixed_baseline=True)
    assert all(setup.reference.backend == setup.candidate.backend for _, setup in moving.shots)
    assert {setup.reference.backend for _, setup in fixed.shots} == {"fake"}


def test_it_goes_on_after_an_interruption(tmp_path: Path) -> None:
    class Dies(Simulated):
        def shot(self, case: Case, setup: Setup, number: int):  # type: ignore[no-untyped-def]
            if of(setup) == "0.30.0" and not self.kind.startswith("again"):
                raise KeyboardInterrupt
            return super().shot(case, setup, number)

    with pytest.raises(KeyboardInterrupt):
        bisect(Dies(1.0, begins("0.31.0")), tmp_path)
    again = Dies(1.0, begins("0.31.0"), kind="again")
    assert bisect(again, tmp_path).bad == "0.31.0"
    assert {of(setup) for _, setup in again.shots} == {"0.30.0", "0.31.0"}


def test_an_arm_keeps_its_settings_on_another_version() -> None:
    arm = plan().arm("fake/mtp")
    moved = at_version(at_version(arm, "0.31.0"), "0.29.0")
    assert (moved.name, moved.backend, moved.variant) == ("fake@0.29.0/mtp", "fake@0.29.0", "mtp")
    assert (moved.engine, moved.env) == (arm.engine, arm.env)


def test_versions_between() -> None:
    assert between(["0.32.0", "0.9.2", "0.28.0", "0.31.0", "0.27.1"], "0.27.1", "0.32.0") == [
        "0.27.1",
        "0.28.0",
        "0.31.0",
        "0.32.0",
    ]
    assert between([], "0.27.1", "0.32.0") == ["0.27.1", "0.32.0"]
    with pytest.raises(ParityError, match=r"0\.32\.0 is not older than 0\.27\.1"):
        between(VERSIONS, "0.32.0", "0.27.1")


def test_the_order_of_versions() -> None:
    ordered = ["0.9.2", "0.12.0", "0.12.0.post2", "0.32.0rc1", "0.32.0", "0.32.1.dev3", "0.32.1", "1.0"]
    mixed = [ordered[index] for index in (7, 2, 5, 0, 6, 3, 1, 4)]
    assert sorted(mixed, key=version_key) == ordered


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_text_has_a_place_in_the_order(text: str) -> None:
    assert version_key(text) <= version_key(text)
