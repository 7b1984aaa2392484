"""The text that an engine writes while tokens come: what it has said stays.

Mostly it is the text of all tokens together. It is not where later bytes undo a character: a tokenizer that falls back
to bytes takes the whole row of them for unreadable as long as one of its characters is not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNREADABLE = "\ufffd"
"""What stands for bytes that make no character."""


def in_pieces(decode: Callable[[Sequence[int]], str], before: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of `tokens` after those `before` them, written as `tokenizers.decoders.DecodeStream` does (0.23). Where
    that fails vLLM begins a new one, and what was held back is lost (`_protected_step`,
    `vllm/v1/engine/detokenizer.py`, v0.32.0)."""
    held, said, written, text = list(before), "", 0, ""
    for token in tokens:
        if not said and held and not (known := decode(held)).endswith(UNREADABLE):
            said, written = known, len(held)
        held.append(token)
        now = decode(held)
        if _is_more(now, said) and not now.startswith(said):
            held, said, written = [token], "", 0
            now = decode(held)
        if _is_more(now, said):
            text += now[len(said) :]
            held, written = held[written:], len(held) - written
            said = decode(held)
    return text


def _is_more(now: str, said: str) -> bool:
    return len(now.encode()) > len(said.encode()) and not now.endswith(UNREADABLE)
