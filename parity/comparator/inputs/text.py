"""When two texts of one token stream are the same."""

from __future__ import annotations

import re
import unicodedata

INT32_MAX = 2**31 - 1
"""The largest token id that a tokenizer takes."""


def same_text(text: str, expected: str) -> bool:
    """Are two texts of one token stream the same, but for what detokenisers differ in?

    Bytes that make no character become one replacement character or several, and at the end none. Composed and
    decomposed characters (Unicode NFC, NFD) are equal.
    """
    if text == expected:
        return True
    plain = [_UNREADABLE.sub("\ufffd", one).rstrip("\ufffd") for one in (text, expected)]
    return plain[0] == plain[1] or unicodedata.normalize("NFC", plain[0]) == unicodedata.normalize("NFC", plain[1])


def first_difference(text: str, other: str) -> int:
    """The first character that differs, or the shorter length."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(text), len(other)))


_UNREADABLE = re.compile("\ufffd+")
