"""Text from workers and hosts, made fit to be shown."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def printable(text: str) -> str:
    """Without escape sequences and control characters: an engine log must not drive the terminal."""
    return "".join(c for c in _ESCAPES.sub("", text) if c == "\t" or c.isprintable())


def one_line(text: str) -> str:
    """One printable line, bounded."""
    return " ".join(printable(line) for line in text.splitlines())[:2000]
