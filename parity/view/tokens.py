"""Tokens as text that is safe to show, one by one and in context."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parity.errors import ParityError
from parity.plan.tokenise import load_tokenizer
from parity.records import TokenIds
from parity.text import cell_width, clip, visible

if TYPE_CHECKING:
    from tokenizers import Tokenizer

OPEN, CLOSE = ">>", "<<"
"""Around the marked token; plain characters, so that it is seen without colours and in a pipe."""

CONTEXT = 200
"""Tokens decoded on either side: more than any terminal line holds."""


class TokenText:
    """Decodes with a checkpoint's tokenizer; without one it shows token ids."""

    def __init__(self, model: Path | None) -> None:
        self._tokenizer: Tokenizer | None = None
        if model is not None and (model / "tokenizer.json").is_file():
            try:
                self._tokenizer = load_tokenizer(model)
            except ParityError:
                # The ids are shown instead: a broken tokenizer must not keep anyone from reading a report.
                self._tokenizer = None

    @property
    def knows(self) -> bool:
        """Whether it has a tokenizer."""
        return self._tokenizer is not None

    def encodes(self, text: str) -> list[int] | None:
        """The tokens of a text as the checkpoint's own tokenizer makes them; None without one."""
        return None if self._tokenizer is None else list(self._tokenizer.encode(text).ids)

    def decode(self, ids: TokenIds) -> str:
        """The text of consecutive tokens, made visible; ids in brackets where they have no text."""
        if not len(ids):
            return ""
        if self._tokenizer is None or int(ids.min()) < 0 or int(ids.max()) >= 2**32:
            return " ".join(f"[{int(i)}]" for i in ids)
        return visible(self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=False))

    def plain(self, token_id: int) -> str:
        """One token's text without quotes; its id in brackets where its bytes alone are no text."""
        return self._one(token_id)

    def token(self, token_id: int) -> str:
        """One token in quotes; its id in brackets where its bytes alone are no text."""
        text = self._one(token_id)
        return text if text == f"[{token_id}]" else f'"{text}"'

    def _one(self, token_id: int) -> str:
        if self._tokenizer is not None and 0 <= token_id < 2**32:
            text = self._tokenizer.decode([token_id], skip_special_tokens=False)
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
