"""How much of a server's answer is taken, and how much of it is shown."""

from __future__ import annotations

import json
from typing import Any

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""An answer longer than this is refused (8 samples of 100,000 tokens as text are 4 MB)."""

LARGE_BYTES = 1024 * 1024
LEAST_OF_LIST = 16
LEAST_OF_OBJECT = 24
"""Bytes of a large answer for each list and object in it: `[]` takes two on the way and 64 in memory. A token with its
logprob has some 60."""

MOST_VALUES = 2_000_000
VALUE_BYTES = 16
"""A large answer has so many values, and one more for so many bytes: `1,` takes two bytes on the way and 8 to 40 in
memory. 8 samples of 100,000 tokens have 800,000 ids; with logprobs a token's values have 16 bytes or more each."""

SHOWN = 300
"""Characters."""


def is_too_dense(data: bytes) -> bool:
    """Whether an answer would take many times its size in memory."""
    if len(data) < LARGE_BYTES:
        return False
    many = data.count(b",") > MOST_VALUES + len(data) // VALUE_BYTES
    return many or data.count(b"[") * LEAST_OF_LIST > len(data) or data.count(b"{") * LEAST_OF_OBJECT > len(data)


def in_brief(value: Any) -> str:
    """The beginning of a value as JSON: no more of it is written than is shown."""
    said = ""
    for piece in json.JSONEncoder().iterencode(value):
        said += piece[: SHOWN + 1]
        if len(said) > SHOWN:
            break
    return said


def excerpt(text: Any) -> str:
    """The beginning of a text, on one line."""
    if isinstance(text, bytes):
        text = text[: 4 * SHOWN].decode("utf-8", "replace")
    line = " ".join(str(text).split())
    return line if len(line) <= SHOWN else line[:SHOWN] + "…"
