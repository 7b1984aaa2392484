"""Requests by number: in the order in which they first stand, however often each does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parity.comparator.detect.numbered import Numbered
from parity.records import Key

NAMES = st.lists(st.sampled_from("abcdef"), max_size=8)


@given(NAMES, NAMES)
def test_each_stream_belongs_to_its_request(of_keys: list[str], of_more: list[str]) -> None:
    numbered = Numbered(*([Key(name, 0, at) for at, name in enumerate(names)] for names in (of_keys, of_more)))
    order = list(dict.fromkeys(of_keys + of_more))
    assert [numbered.name(number) for number in range(len(numbered))] == order
    assert [numbered.number(name) for name in "abcdefg"] == [order.index(n) if n in order else -1 for n in "abcdefg"]
    own, more = numbered.of_streams()
    assert [order[number] for number in own.tolist()] == of_keys
    assert [order[number] for number in more.tolist()] == of_more
