"""Regular expressions as no engine reads them more narrowly: a text that is refused here is refused by all.

xgrammar takes `\\d`, `\\s` and `\\w` for ASCII, llguidance and Python for Unicode: so `\\W` and `[^\\w]` are wider in
the one and `\\w` in the others. Python and xgrammar know no classes within classes, and llguidance does.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

_ASCII: Final = {"w": "a-zA-Z0-9_", "d": "0-9", "s": r" \t\n\r\f\v"}
_PARTS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_NESTED: Final = re.compile(r"\[|&&|--|~~")


def widened(pattern: str) -> str:
    """The expression with the wider one of both meanings of each character class."""
    return "".join(_wider(part.group()) for part in _PARTS.finditer(pattern))


def is_ambiguous(pattern: str) -> bool:
    """Has it a class that is one thing to one engine and another to the next?"""
    return any(len(part.group()) > 2 and _NESTED.search(part.group()[1:]) for part in _PARTS.finditer(pattern))


def compiled(pattern: str) -> re.Pattern[str] | None:
    """By Python, `.` for any character; None for another dialect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of `[[`, which is no class within a class yet
        try:
            return re.compile(pattern, re.DOTALL)
        except (re.error, RecursionError):
            return None


def _wider(part: str) -> str:
    if len(part) < 2:
        return part
    if part[0] == "\\":
        return _outside(part[1]) if part[1] in "WDS" else part
    if part[0] == "[" and part[1] == "^":
        return _ESCAPE.sub(lambda one: _ASCII.get(one.group(1), one.group()), part)
    wide = [one for one in _ESCAPE.findall(part) if one in "WDS"]
    if not wide:
        return part
    rest = _ESCAPE.sub(lambda one: "" if one.group(1) in "WDS" else one.group(), part)
    return "(?:" + "|".join(([] if rest == "[]" else [rest]) + [_outside(one) for one in wide]) + ")"


def _outside(letter: str) -> str:
    return f"[^{_ASCII[letter.lower()]}]"
