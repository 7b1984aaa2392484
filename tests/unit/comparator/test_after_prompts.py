"""Texts that go on after their prompts, where that is not as alone: tokenizers of SentencePiece's kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from captures import EOS, capture, completion, header

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.inputs.pieces import in_pieces
from parity.records import Completion, Kind, Verdict

BYTES, WORDS = 10, 300
"""The first token of a byte, and the first of a word, which has a blank before it."""

NEWLINE, A, EMOJI = BYTES + 0x0A, BYTES + ord("A"), [BYTES + byte for byte in "😀".encode()]


class Sentences:
    """A blank at the very beginning is taken off; a row of bytes that is no text is unreadable as a whole."""

    def __call__(self, ids: Sequence[int], /) -> str:
        text, row = "", b""
        for one in [*ids, EOS]:
            if BYTES <= one < BYTES + 256:
                row += bytes([one - BYTES])
                continue
            text, row = text + _readable(row), b""
            text += f" w{one - WORDS}" if one >= WORDS else ""
        return text.removeprefix(" ")

    def with_special(self, ids: Sequence[int], /) -> str:
        return self(ids)

    def encode(self, text: str, /) -> list[int]:
        return [WORDS + int(word[1:]) for word in text.split()]


def _readable(row: bytes) -> str:
    try:
        return row.decode()
    except UnicodeDecodeError:
        return "\ufffd" * len(row)


WRITE, PROMPT = Sentences(), [WORDS, WORDS + 1]


def said(number: int, tokens: Sequence[int], text: str | None = None, **more: object) -> Completion:
    """Its text as vLLM writes it after the prompt, unless it is given."""
    made = in_pieces(WRITE, PROMPT, tokens) if text is None else text
    return completion(tokens, f"p{number}", prompt=PROMPT, text=made, **more)  # type: ignore[arg-type]


def beside_others(one: Completion, other: Completion | None = None) -> Comparison:
    """In a run in which few texts begin with a word."""
    rest = [said(n, [A, *range(WORDS + n, WORDS + n + 7)]) for n in range(1, 13)]
    rest += [said(n, range(WORDS + n, WORDS + n + 8)) for n in (13, 14)]
    arms = (header(name, max_tokens=8) for name in ("cpu/base", "cpu/other"))
    sides = zip(arms, (one, other or one), strict=True)
    return compare(*(capture(arm, each, *rest) for arm, each in sides), None, CompareOptions(detokenize=WRITE))


def test_a_text_that_begins_with_a_word_begins_with_its_blank() -> None:
    one = said(0, range(WORDS + 3, WORDS + 11))
    assert one.text == " w3 w4 w5 w6 w7 w8 w9 w10"
    other = replace(one, text=one.text + "!")
    assert beside_others(one).verdict is Verdict.PASS
    assert [found.kind for found in beside_others(one, other).corrupt] == [Kind.TEXT_MISMATCH]


def test_the_blank_that_one_text_lacks_is_missing() -> None:
    one = said(0, range(WORDS + 3, WORDS + 11))
    (found,) = beside_others(one, replace(one, text=str(one.text)[1:])).corrupt
    assert (found.kind, found.position) == (Kind.TEXT_MISMATCH, 0)


def test_arms_may_write_their_texts_in_two_ways() -> None:
    """As where transformers decodes the output alone."""
    each = [range(WORDS + n, WORDS + n + 8) for n in range(8)]
    base = capture(header("cpu/base", max_tokens=8), *(said(n, one) for n, one in enumerate(each)))
    other = capture(header("cpu/other", max_tokens=8), *(said(n, one, WRITE(one)) for n, one in enumerate(each)))
    for sides in ((base, other), (other, base)):
        assert compare(*sides, None, CompareOptions(detokenize=WRITE)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([WORDS, NEWLINE, *EMOJI[:2]], " w0\n"),
        ([WORDS, A, EMOJI[0], WORDS + 1, WORDS + 2], " w0Aw1 w2"),
        ([NEWLINE, *EMOJI, WORDS], "\n😀 w0"),
        ([*EMOJI[:3], WORDS], "\ufffd\ufffd\ufffd w0"),
    ],
    ids=["cut off", "never one", "whole", "unreadable"],
)
def test_what_was_said_before_bytes_stays(tokens: list[int], text: str) -> None:
    one = said(0, tokens, finish="length", max_tokens=len(tokens))
    assert one.text == text
    assert beside_others(one).verdict is Verdict.PASS
    wrong = beside_others(one, replace(one, text=text.replace("w0", "w")))
    assert [found.kind for found in wrong.corrupt] == [Kind.TEXT_MISMATCH]


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_stop_string_that_begins_with_the_blank(goes_on: bool) -> None:
    tokens = list(range(WORDS + 3, WORDS + (11 if goes_on else 4)))
    finish, stop = ("length", None) if goes_on else ("stop", " w3")
    one = said(0, tokens, None if goes_on else "", finish=finish, stop=stop)
    result = beside_others(replace(one, sampling={"stop": [" w3"]}))
    assert result.corrupt == []
    assert result.verdict is (Verdict.INCONCLUSIVE if goes_on else Verdict.PASS)
