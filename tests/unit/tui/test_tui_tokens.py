"""Tokens as text that can be shown one by one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parity.text import visible
from parity.tui.tokens import Decoder, spaced

MODEL = Path(__file__).parents[3] / "parity" / "models" / "tiny-qwen3-next-mtp"


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return Decoder(MODEL)


def ids(decoder: Decoder, text: str) -> np.ndarray:
    assert decoder._tokenizer is not None
    return np.array(decoder._tokenizer.encode(text), dtype=np.int64)


def test_text_comes_back_token_by_token(decoder: Decoder) -> None:
    text = "And the king said, 你好 naïve 🙂 done"
    assert "".join(piece.text for piece in decoder.pieces(ids(decoder, text))) == text


def test_newlines_break_lines_and_are_seen(decoder: Decoder) -> None:
    pieces = decoder.pieces(ids(decoder, "a\nb"))
    assert "".join(piece.text for piece in pieces) == "a↵b"
    assert [piece.breaks for piece in pieces].count(True) == 1


def test_half_a_character_is_shown_as_its_bytes(decoder: Decoder) -> None:
    whole = ids(decoder, "🙂")
    assert len(whole) > 1, "a character of several tokens"
    pieces = decoder.pieces(whole)
    assert pieces[0].text == "🙂"
    assert {piece.text for piece in pieces[1:]} == {""}
    alone = decoder.pieces(whole[:1])[0]
    assert alone.odd
    assert alone.text.startswith("\\x")


def test_special_tokens_and_ids_that_do_not_exist(decoder: Decoder) -> None:
    special = [one for one in range(2048) if decoder.piece(one).text.startswith("⟦")]
    assert special
    piece = decoder.piece(special[0])
    assert piece.odd
    assert piece.text.startswith("⟦")
    for wrong in (-1, 10**6, 2**40, -(2**40)):
        assert decoder.piece(wrong).odd
        assert str(wrong) in decoder.piece(wrong).text


@given(st.lists(st.integers(-5, 2100), max_size=40))
@example([97, -1])  # half a character before an id that does not exist
def test_no_tokens_whatever_can_control_a_terminal(tokens: list[int]) -> None:
    text = _decoder().text(np.array(tokens, dtype=np.int64))
    assert visible(text) == text


_cached: list[Decoder] = []


def _decoder() -> Decoder:
    if not _cached:
        _cached.append(Decoder(MODEL))
    return _cached[0]


def test_without_a_tokenizer_the_ids_are_shown(tmp_path: Path) -> None:
    for model in (None, tmp_path):
        decoder = Decoder(model)
        assert "not on this machine" in str(decoder.problem)
        assert decoder.text(np.array([5, 6])) == "[5][6]"


def test_a_damaged_tokenizer_is_said(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0"}), encoding="utf-8")
    decoder = Decoder(tmp_path)
    assert decoder.problem
    assert decoder.text(np.array([7])) == "[7]"


@pytest.mark.parametrize(
    ("text", "shown"), [(" the", "·the"), ("   ", "···"), ("a b ", "a b·"), ("", ""), ("  x", "··x")]
)
def test_outer_spaces_are_seen(text: str, shown: str) -> None:
    assert spaced(text) == shown
