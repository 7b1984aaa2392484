"""Tokens as text that can be shown one by one: special tokens, spaces, controls and half characters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from parity.errors import ParityError
from parity.messages import Message, message
from parity.plan.tokenise import load_tokenizer
from parity.records import TokenIds
from parity.text import visible

if TYPE_CHECKING:
    from tokenizers import Tokenizer

REPLACEMENT: Final = "\ufffd"
LONGEST_CHARACTER = 4
"""Bytes of a UTF-8 character, so tokens that one character can be spread over."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a token looks like. `odd`: it is not ordinary text (special, unknown, half a character)."""

    text: str
    odd: bool = False
    breaks: bool = False
    """A newline is in it: in flowing text a new line begins after it."""


def _byte_of_character() -> dict[str, int]:
    """The inverse of GPT-2's `bytes_to_unicode`, by which byte-level BPE spells bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


_BYTES: Final = _byte_of_character()


class Decoder:
    """Token ids to pieces, remembered; without a tokenizer the ids are shown."""

    def __init__(self, model: Path | None) -> None:
        self.problem: Message | None = None
        self._tokenizer: Tokenizer | None = None
        self._special: set[int] = set()
        self._known: dict[int, Piece] = {}
        if model is None or not (model / "tokenizer.json").is_file():
            self.problem = message(
                "tui.no_tokenizer", "the model's tokenizer is not on this machine: token ids are shown"
            )
            return
        try:
            self._tokenizer = load_tokenizer(model)
        except ParityError as error:
            self.problem = error.message
            return
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {int(token_id) for token_id, token in added.items() if token.special}

    def piece(self, token_id: int) -> Piece:
        """One token by itself."""
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._make(token_id)
        return known

    def pieces(self, ids: TokenIds) -> list[Piece]:
        """One piece per token of consecutive text: a character spread over tokens stands in the first."""
        found = [self.piece(int(i)) for i in ids]
        if self._tokenizer is None:
            return found
        at = 0
        while at < len(found):
            end = self._whole_character(ids, found, at)
            if end > at + 1:
                text = self._tokenizer.decode([int(i) for i in ids[at:end]], skip_special_tokens=False)
                found[at] = _ordinary(text)
                for rest in range(at + 1, end):
                    found[rest] = Piece("")
            at = max(end, at + 1)
        return found

    def text(self, ids: TokenIds) -> str:
        return "".join(piece.text for piece in self.pieces(np.asarray(ids, dtype=np.int64)))

    def _whole_character(self, ids: TokenIds, found: list[Piece], at: int) -> int:
        """Where a character that begins in token `at` ends, `at` itself if it is whole or never ends."""
        assert self._tokenizer is not None
        if not self._bytes(int(ids[at]), found[at]):
            return at
        for end in range(at + 2, min(at + LONGEST_CHARACTER, len(found)) + 1):
            if not self._bytes(int(ids[end - 1]), found[end - 1]):
                return at
            text = self._tokenizer.decode([int(i) for i in ids[at:end]], skip_special_tokens=False)
            if text and REPLACEMENT not in text:
                return end
        return at

    def _bytes(self, token_id: int, piece: Piece) -> bool:
        """Is it shown as bytes? Neither text, nor a special token, nor an id that does not exist."""
        return piece.odd and piece.text.startswith(("\\x", "<0x")) and token_id not in self._special

    def _make(self, token_id: int) -> Piece:
        if self._tokenizer is None or not 0 <= token_id < 2**32:
            return Piece(f"[{token_id}]", odd=True)
        spelled = self._tokenizer.id_to_token(token_id)
        if spelled is None:
            return Piece(f"[{token_id}?]", odd=True)
        if token_id in self._special:
            return Piece(f"⟦{visible(spelled)}⟧", odd=True)
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        if text and REPLACEMENT not in text:
            return _ordinary(text)
        if spelled and all(char in _BYTES for char in spelled):
            raw = bytes(_BYTES[char] for char in spelled)
            return Piece(visible(raw.decode("utf-8", errors="backslashreplace")), odd=True)
        return Piece(visible(spelled) if spelled else f"[{token_id}]", odd=True)


def _ordinary(text: str) -> Piece:
    return Piece(visible(text, keep="\n").replace("\n", "↵"), breaks="\n" in text)


def spaced(text: str) -> str:
    """A token with its outer spaces visible; one of nothing but spaces is all dots."""
    body = text.strip(" ")
    if not body:
        return "·" * len(text)
    lead = len(text) - len(text.lstrip(" "))
    tail = len(text) - len(text.rstrip(" "))
    return "·" * lead + body + "·" * tail
