"""Tokens as text that is safe to show, one by one and in context."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from parity.errors import ParityError
from parity.files import is_file
from parity.plan.apart import ApartTokens, tokens_of
from parity.plan.tokenise import TextOfTokens
from parity.records import TokenIds
from parity.text import cell_width, clip, visible

OPEN, CLOSE = ">>", "<<"
"""Around the marked token; plain characters, so that it is seen without colours and in a pipe."""

CONTEXT = 200
"""Tokens decoded on either side: more than any terminal line holds."""


class TokenText:
    """Decodes with a checkpoint's tokenizer; without one, or with a broken one, it shows token ids: that must not keep
    anyone from reading a report."""

    def __init__(self, model: Path | None) -> None:
        self._tokenizer: TextOfTokens | ApartTokens | None = None
        if model is not None and is_file(model / "tokenizer.json"):
            with suppress(ParityError, OSError):
                self._tokenizer = tokens_of(model)

    @property
    def knows(self) -> bool:
        """Whether it has a tokenizer."""
        return self._tokenizer is not None

    def encodes(self, text: str) -> list[int] | None:
        """The tokens of a text as the checkpoint's own tokenizer makes them; None without one."""
        try:
            return None if self._tokenizer is None else self._tokenizer.encode(text, special=True)
        except ParityError:
            self._tokenizer = None
            return None

    def decode(self, ids: TokenIds) -> str:
        """The text of consecutive tokens, made visible; ids in brackets where they have no text."""
        text = self._text(ids) if len(ids) else ""
        return " ".join(f"[{int(i)}]" for i in ids) if text is None else visible(text)

    def _text(self, ids: TokenIds) -> str | None:
        if self._tokenizer is None or int(ids.min()) < 0 or int(ids.max()) >= 2**32:
            return None
        try:
            return self._tokenizer.decode(ids.tolist())
        except ParityError:
            self._tokenizer = None
            return None

    def plain(self, token_id: int) -> str:
        """One token's text without quotes; its id in brackets where its bytes alone are no text."""
        return self._one(token_id)

    def token(self, token_id: int) -> str:
        """One token in quotes; its id in brackets where its bytes alone are no text."""
        text = self._one(token_id)
        return text if text == f"[{token_id}]" else f'"{text}"'

    def _one(self, token_id: int) -> str:
        text = self._text(np.array([token_id], dtype=np.int64))
        if text and "\ufffd" not in text:  # else an unknown id, or a part of a character
            return visible(text)
        return f"[{token_id}]"

    def marked(self, ids: TokenIds, position: int, columns: int) -> str:
        """The text around token `position` in at most `columns` columns, that token between >> and <<.

        A position at or past the end of the stream is marked as the end.
        """
        before = self.decode(ids[max(0, position - CONTEXT) : position])
        token = self._one(int(ids[position])) if position < len(ids) else "(end)"
        after = self.decode(ids[position + 1 : position + 1 + CONTEXT])
        token = clip(token, max(8, columns // 2))
        room = columns - cell_width(token) - len(OPEN) - len(CLOSE)
        left = min(cell_width(before), max(room - cell_width(after), room * 6 // 10))
        before = clip(before, left, from_end=True) if left > 1 else ""
        after = clip(after, max(0, room - cell_width(before))) if room - cell_width(before) > 1 else ""
        return f"{before}{OPEN}{token}{CLOSE}{after}"
