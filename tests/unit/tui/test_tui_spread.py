"""The capture's own text under tokens, where there is no tokenizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parity.records import Key
from parity.store import CompletionRow
from parity.tui.spread import spread, spread_both
from parity.view.alignment import align
from parity.view.completion import CompletionView

KEY = Key("p1", 0, 0)


def row(tokens: list[int], text: str | None) -> CompletionRow:
    return CompletionRow("cpu/mtp", "p1", 0, 0, len(tokens), None, None, None, None, text, np.array(tokens))


def view(left: list[int], right: list[int], left_text: str | None, right_text: str | None) -> CompletionView:
    run: Any = None
    made = CompletionView(run, "cpu/mtp", KEY, None, row(left, left_text), row(right, right_text), None, {})
    return replace(made, alignment=align(made.left, made.right, []))


@given(st.text(max_size=60), st.integers(0, 20))
def test_every_character_has_one_place(text: str, tokens: int) -> None:
    pieces = spread(text.replace("\n", "").encode("ascii", "ignore").decode().replace("\\", ""), tokens)
    assert len(pieces) == tokens


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_what_is_the_same_of_both_sides_is_the_same_text(left: list[int], right: list[int]) -> None:
    """Each token a letter: then an even share is the right one wherever both begin alike."""
    letters = "abcdefghij"
    texts = ["".join(letters[token] for token in side) for side in (left, right)]
    found = spread_both(view(left, right, *texts))
    assert found is not None
    for pieces, tokens, text in zip(found, (left, right), texts, strict=True):
        assert len(pieces) == len(tokens)
        assert "".join(piece.text for piece in pieces) == text
    same = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    for pieces, tokens in zip(found, (left, right), strict=True):
        for at in range(same - 1):
            assert pieces[at].text == letters[tokens[at]]


def test_without_text_there_is_none_to_show() -> None:
    assert spread_both(view([1, 2], [1, 3], None, "ab")) is None


def test_lines_end_where_the_text_has_them() -> None:
    found = spread_both(view([1, 2, 3], [1, 2, 4], "ab\ncd", "ab\ncx"))
    assert found is not None
    assert [piece.text for piece in found[1]] == ["ab", "↵c", "x"]
    assert found[1][1].breaks
