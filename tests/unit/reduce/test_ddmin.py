"""Delta debugging finds what fails, keeps the order, and asks no more than it must."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from parity.reduce.ddmin import ddmin


@settings(deadline=None)
@given(st.integers(1, 80).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_what_is_needed_together_is_what_is_left(case: tuple[int, set[int]]) -> None:
    size, needed = case
    asked: list[tuple[int, ...]] = []

    def fails(part: list[int]) -> bool:
        asked.append(tuple(part))
        return needed <= set(part)

    assert ddmin(range(size), fails) == sorted(needed)
    assert len(asked) == len(set(asked))
    assert () not in asked
    # Zeller and Hildebrandt's bound for the worst case.
    assert len(asked) <= size * size + 3 * size


@settings(deadline=None)
@given(st.integers(2, 60), st.sets(st.sets(st.integers(0, 59), min_size=1).map(frozenset), min_size=1, max_size=4))
def test_the_result_is_one_minimal_for_any_of_several_causes(size: int, causes: set[frozenset[int]]) -> None:
    causes = {frozenset(i % size for i in cause) for cause in causes}

    def fails(part: list[int]) -> bool:
        return any(cause <= set(part) for cause in causes)

    left = ddmin(range(size), fails)
    assert fails(left)
    assert not any(fails([item for item in left if item != gone]) for gone in left) or len(left) == 1


def test_a_single_cause_is_found_in_about_two_questions_a_halving() -> None:
    asked = 0

    def fails(part: list[int]) -> bool:
        nonlocal asked
        asked += 1
        return 37 in part

    assert ddmin(range(64), fails) == [37]
    assert asked <= 12


def test_lists_of_nothing_and_of_one_are_left_alone() -> None:
    def never(part: list[int]) -> bool:
        raise AssertionError(part)

    assert ddmin([], never) == []
    assert ddmin([5], never) == [5]
