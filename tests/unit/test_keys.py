"""Keys in columns are those that were added, and stand where they were added."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.capture import keys as keys_module
from parity.capture.keys import Keys
from parity.records import Key, rounds_and_samples, rounds_of
from parity.records.lazy import Numbered

keys = st.lists(st.builds(Key, st.sampled_from(["", "a", "b", "ü", "long name"]), st.integers(0, 2), st.integers(0, 2)))
"""Some stand there twice."""


def of(added: list[Key], *, held: bool = False) -> Keys:
    found = Keys(held=held)
    for one in added:
        found.append(one)
    return found


@pytest.mark.parametrize(("packed", "ordered"), [(1, 1), (3, 2), (1 << 10, 1 << 17)])
@given(keys, keys, st.booleans(), st.data())
def test_keys_as_a_list_has_them(
    packed: int, ordered: int, added: list[Key], more: list[Key], held: bool, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys_module, "_AT_ONCE", packed)
        patch.setattr(keys_module, "_SORTED_AT_ONCE", ordered)
        found, every = of(added, held=held), [*added, *more]
        assert list(found) == added
        begin = data.draw(st.integers(0, len(more)))
        for some in (more[:begin], more[begin:]):
            found.extend(Keys.unpacked(*of(some).pack()))
        assert list(found) == [found[row] for row in range(len(found))] == every
        assert found == every
        assert found == of(every)
        begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(every))] * 2)))
        assert list(found.part(begin, end)) == every[begin:end]
        assert list(found.begin(end)) == every[:end]
        names = list(dict.fromkeys(one.request for one in every))
        assert found.numbers.tolist() == [names.index(one.request) for one in every]
        assert found.firsts.tolist() == [[one.request for one in every].index(name) for name in names]
        assert [found.number(name) for name in (*names, "none")] == [*range(len(names)), None]
        later = [row for row, one in enumerate(every) if one in every[:row]]
        assert found.repeated() == ((every.index(every[later[0]]), later[0]) if later else None)
        for one in every:
            row = found.row(one)
            assert row is not None
            assert every[row] == one
        assert found.row(Key("a", 9, 9)) is None
        assert found.row("a") is None
        assert list(rounds_of(found)) == list(rounds_of(every)) == [one.round for one in every]
        assert rounds_and_samples(found) == rounds_and_samples(every)


@given(st.sets(st.integers(0, 20)), st.data())
def test_numbers_of_some_keys(rows: set[int], data: st.DataObject) -> None:
    order = of([Key(f"p{row}", 0, 0) for row in range(21)])
    expected = {order[row]: data.draw(st.integers(0, 9)) for row in sorted(rows)}
    found = Numbered(order, np.array(sorted(rows), dtype=np.int64), np.array([*expected.values()], dtype=np.int64))
    assert dict(found) == expected
    assert len(found) == len(expected)
    assert [found.get(key) for key in order] == [expected.get(key) for key in order]
    assert found.get(Key("other", 0, 0)) is None


@given(st.integers(1, 12), st.lists(st.integers(0, 13), max_size=40), st.booleans())
def test_keys_are_found_in_whatever_order_they_are_looked_up(count: int, asked: list[int], held: bool) -> None:
    every = [Key(f"p{number}", number % 3, 0) for number in range(14)]
    found = of(every[:count], held=held)
    assert [found.row(every[one]) for one in asked] == [one if one < count else None for one in asked]
