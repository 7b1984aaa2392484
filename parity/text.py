"""Text from models and far hosts, made safe to show: nothing in it can move a cursor or hide itself."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_NAMED: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}

# C0 and C1 controls (escape sequences begin with one), bidirectional controls (which reorder what is
# shown, CVE-2021-42574), zero-width and other invisible formatting, lone surrogates, private use,
# line and paragraph separators, Unicode tags.
_RANGES: Final = (
    "\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\ufff0-\ufffb"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
)
_UNSAFE: Final = re.compile(f"[\x00-\x0a{_RANGES}]")


def visible(text: str, *, keep: str = "") -> str:
    """`text` with every control, escape and bidirectional or invisible character written as an escape.

    `keep` lists characters to leave as they are, such as "\\n" for text shown over several lines.
    """

    def escape(match: re.Match[str]) -> str:
        char = match.group()
        if char in keep:
            return char
        if char in _NAMED:
            return _NAMED[char]
        code = ord(char)
        if code < 0x100:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return _UNSAFE.sub(escape, text)


def in_escapes(document: str) -> str:
    """A JSON document in which what `visible` would escape stands as JSON's own escapes: the same value."""

    def escape(match: re.Match[str]) -> str:
        units = match.group().encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

    # "\n" stands between values; inside a string JSON has escaped it already.
    return re.sub(f"[\x00-\x09{_RANGES}]", escape, document)


def cell_width(text: str) -> int:
    """Columns that `text` takes on a terminal: two for wide characters, none for combining ones."""
    width = 0
    for char in text:
        if unicodedata.combining(char):
            continue
        width += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return width


def clip(text: str, columns: int, *, from_end: bool = False) -> str:
    """`text` cut to `columns` columns, with an ellipsis where something was cut."""
    if cell_width(text) <= columns:
        return text
    kept: list[str] = []
    room = columns - 1
    for char in reversed(text) if from_end else text:
        room -= cell_width(char)
        if room < 0:
            break
        kept.append(char)
    return "…" + "".join(reversed(kept)) if from_end else "".join(kept) + "…"


_NEVER_FIRST: Final = frozenset("，。、；：！？）」』】》〉”’…,.;:!?)]}")
"""Punctuation that no line begins with, where a line is broken between wide characters."""
_NEVER_LAST: Final = frozenset("（「『【《〈“‘([{`")


def wrap(text: str, columns: int, *, first: str = "", other: str = "") -> list[str]:
    """Lines of at most `columns` columns, broken at spaces and between wide characters, whatever fits.

    `first` and `other` are put before the first line and the others. A word that is wider than a line has a line of
    its own, unbroken: a path or a command that is cut in two cannot be copied.
    """
    lines: list[str] = []
    line, width = first, cell_width(first)
    empty = True
    for space, piece in _pieces(text):
        size = cell_width(piece)
        gap = 0 if empty else len(space)
        if not empty and width + gap + size > columns:
            lines.append(line)
            line, width, gap = other, cell_width(other), 0
        line += space[:gap] + piece
        width += gap + size
        empty = False
    return [*lines, line] if not empty or not lines else lines


def _pieces(text: str) -> list[tuple[str, str]]:
    """(space before it, what must stay together) in order."""
    pieces: list[tuple[str, str]] = []
    for found in re.finditer(r"(\s*)(\S+)", text):
        space, word, start = " " * len(found[1]), found[2], 0
        for at in range(1, len(word)):
            wide = unicodedata.east_asian_width(word[at]) in "WF" or unicodedata.east_asian_width(word[at - 1]) in "WF"
            if wide and word[at] not in _NEVER_FIRST and word[at - 1] not in _NEVER_LAST:
                pieces.append((space, word[start:at]))
                space, start = "", at
        pieces.append((space, word[start:]))
    return pieces
