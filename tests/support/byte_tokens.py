"""A tokenizer with a token for each byte."""

from __future__ import annotations

from collections.abc import Sequence

from captures import EOS

SPECIAL = 5


class Bytes:
    """A tokenizer with a token for each byte; 0 and 5 are special."""

    def __call__(self, ids: Sequence[int], /) -> str:
        return bytes(one - 256 for one in ids if 256 <= one < 512).decode("utf-8", "replace")

    def with_special(self, ids: Sequence[int], /) -> str:
        named = {EOS: b"</s>", SPECIAL: b"<s>"}
        return b"".join(named.get(one, bytes([one - 256]) if one >= 256 else b"") for one in ids).decode()

    def encode(self, text: str, /) -> Sequence[int]:
        return ids(text)


def ids(text: str) -> list[int]:
    return [256 + byte for byte in text.encode()]
