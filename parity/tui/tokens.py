"""Tokens as text that can be shown one by one: special tokens, spaces, controls and half characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from parity.errors import ParityError
from parity.files import is_file
from parity.messages import Message, message
from parity.plan.apart import ApartTokens, tokens_of
from parity.plan.tokenise import Spelling, TextOfTokens
from parity.records import TokenIds
from parity.text import visible

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
        self._tokenizer: TextOfTokens | ApartTokens | None = None
        self._special: set[int] = set()
        self._known: dict[int, Piece] = {}
        if model is None or not is_file(model / "tokenizer.json"):
            self.problem = message(
                "tui.no_tokenizer_here",
                "the model's tokenizer is not on this machine: token ids are shown, and in text mode (m) the text of "
                "the capture, shared out evenly among its tokens",
            )
            return
        try:
            self._tokenizer = tokens_of(model)
        except ParityError as error:
            self.problem = error.message

    def piece(self, token_id: int) -> Piece:
        """One token by itself."""
        self._learn([token_id])
        return self._known[token_id]

    def pieces(self, ids: TokenIds) -> list[Piece]:
        """One piece per token of consecutive text: a character spread over tokens stands in the first."""
        self._learn(ids.tolist())
        found = [self._known[int(i)] for i in ids]
        at = 0
        while at < len(found):
            end, text = self._whole_character(ids, found, at)
            if end > at + 1:
                found[at] = _ordinary(text)
                for rest in range(at + 1, end):
                    found[rest] = Piece("")
            at = max(end, at + 1)
        return found

    def _learn(self, ids: Sequence[int]) -> None:
        """Ask for the tokens that were not seen yet, all at once: the tokenizer may be in another process."""
        new = list(dict.fromkeys(i for i in ids if i not in self._known))
        there = [i for i in new if self._tokenizer is not None and 0 <= i < 2**32]
        spelled: dict[int, Spelling] = {}
        if self._tokenizer is not None and there:
            try:
                spelled = dict(zip(there, self._tokenizer.spellings(there), strict=True))
            except ParityError as error:
                self._give_up(error)
        self._special |= {i for i, one in spelled.items() if one.special}
        self._known |= {i: _piece(i, spelled.get(i)) for i in new}

    def _text(self, ids: TokenIds) -> str:
        """Of tokens that make one character; nothing where the tokenizer fails."""
        try:
            return "" if self._tokenizer is None else self._tokenizer.decode(ids.tolist())
        except ParityError as error:
            self._give_up(error)
            return ""

    def _give_up(self, error: ParityError) -> None:
        self.problem, self._tokenizer = error.message, None

    def text(self, ids: TokenIds) -> str:
        return "".join(piece.text for piece in self.pieces(np.asarray(ids, dtype=np.int64)))

    def _whole_character(self, ids: TokenIds, found: list[Piece], at: int) -> tuple[int, str]:
        """Where a character that begins in token `at` ends, and its text; `at` itself if it is whole or never ends."""
        if not self._bytes(int(ids[at]), found[at]):
            return at, ""
        for end in range(at + 2, min(at + LONGEST_CHARACTER, len(found)) + 1):
            if not self._bytes(int(ids[end - 1]), found[end - 1]):
                break
            text = self._text(ids[at:end])
            if text and REPLACEMENT not in text:
                return end, text
        return at, ""

    def _bytes(self, token_id: int, piece: Piece) -> bool:
        """Is it shown as bytes? Neither text, nor a special token, nor an id that does not exist."""
        return piece.odd and piece.text.startswith(("\\x", "<0x")) and token_id not in self._special


def _piece(token_id: int, spelled: Spelling | None) -> Piece:
    """What a token looks like; as its id where nothing is known of it."""
    if spelled is None:
        return Piece(f"[{token_id}]", odd=True)
    name, text, special = spelled
    if name is None:
        return Piece(f"[{token_id}?]", odd=True)
    if special:
        return Piece(f"⟦{visible(name)}⟧", odd=True)
    if text and REPLACEMENT not in text:
        return _ordinary(text)
    if name and all(char in _BYTES for char in name):
        raw = bytes(_BYTES[char] for char in name)
        return Piece(visible(raw.decode("utf-8", errors="backslashreplace")), odd=True)
    return Piece(visible(name) if name else f"[{token_id}]", odd=True)


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
