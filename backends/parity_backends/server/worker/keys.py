"""The key of a server: where it would be readable on the way, and answers without it."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Optional
from urllib.parse import quote, urlsplit

SHORTEST_KEY = 8
"""Characters of a key that is blanked in good answers too: "EMPTY" may be what a model says."""


class Key:
    """A key, and how it is blanked in what comes back."""

    def __init__(self, text: Optional[str]) -> None:
        self.text = text
        self._spelled = spellings(text)

    def hide(self, text: str) -> str:
        """Without the key, as it is and as it may be spelled: some servers say it back."""
        return text if self._spelled is None else self._spelled.sub("***", text)

    def hide_in(self, data: bytes) -> bytes:
        """The same of an answer, before anything is cut or parsed; a key so short that it may be a word stays."""
        if self._spelled is None or len(self.text or "") < SHORTEST_KEY:
            return data
        hidden: str = self._spelled.sub("***", data.decode("latin-1"))
        return hidden.encode("latin-1")


def is_readable_on_the_way(url: str) -> bool:
    """Whether what is sent there goes to another machine in plain text."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    here = host in ("localhost", "::1") or re.fullmatch(r"127\.\d+\.\d+\.\d+", host) is not None
    return parts.scheme != "https" and not here


def spellings(key: Optional[str]) -> Any:
    """A pattern for a key as it is, as JSON, in a URL, in base64 and in hex, in either case; None without a key.

    In base64 a text reads in three ways, by its place among what stands before it; the first and last characters of
    each belong to its neighbours.
    """
    if not key:
        return None
    data = key.encode("utf-8", "replace")
    found = {key, json.dumps(key)[1:-1], quote(key, safe=""), quote(key), data.hex(), key[::-1]}
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            whole = encode(b"x" * before + data).decode("ascii").rstrip("=")
            core = whole[-(-before * 4 // 3) : len(whole) - (1 if (before + len(data)) % 3 else 0)]
            found |= {core} if len(core) >= SHORTEST_KEY else set()
    longest_first = sorted(filter(None, found), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)
