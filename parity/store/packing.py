"""Arrays as bytes, for the columns that hold them."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np

from parity.records import TokenIds
from parity.records.gaps import KeptGaps

_GAPS: Final = 1
"""The form of packed gaps: float32 gaps, int32 ids and a bit each for what is bounded, compressed."""


def pack_tokens(tokens: TokenIds) -> bytes:
    """Token ids as bytes: one byte of width (2, 4 or 8), then little-endian integers of that width.

    Ids are unsigned at width 2, signed otherwise; ids outside a vocabulary (negative, huge) survive.
    """
    if tokens.size == 0:
        return b"\x02"
    low, high = int(tokens.min()), int(tokens.max())
    if low >= 0 and high < 2**16:
        return b"\x02" + tokens.astype("<u2").tobytes()
    if low >= -(2**31) and high < 2**31:
        return b"\x04" + tokens.astype("<i4").tobytes()
    return b"\x08" + tokens.astype("<i8").tobytes()


def unpack_tokens(blob: bytes) -> TokenIds:
    """The inverse of `pack_tokens`."""
    kind = {2: "<u2", 4: "<i4", 8: "<i8"}[blob[0]]
    return np.frombuffer(blob, dtype=kind, offset=1).astype(np.int64)


def pack_gaps(gaps: KeptGaps) -> bytes:
    """Gaps as bytes: one byte for the form, then the three arrays, compressed (most gaps are 0)."""
    parts = (gaps.gap.astype("<f4"), gaps.best_id.astype("<i4"), np.packbits(gaps.bounded))
    return bytes([_GAPS]) + zlib.compress(b"".join(part.tobytes() for part in parts), 1)


def unpack_gaps(blob: bytes) -> KeptGaps:
    """The inverse of `pack_gaps`. Raises ValueError for what it does not write."""
    if blob[:1] != bytes([_GAPS]):
        raise ValueError("gaps in another form")
    try:
        raw = zlib.decompress(blob[1:])
    except zlib.error as error:
        raise ValueError(f"gaps: {error}") from None
    length = len(raw) * 8 // 65  # 8 bytes and a bit for each token
    bits = np.frombuffer(raw, dtype=np.uint8, offset=8 * length)
    return KeptGaps(
        np.frombuffer(raw, dtype="<f4", count=length).astype(np.float32),
        np.unpackbits(bits, count=length).astype(bool),
        np.frombuffer(raw, dtype="<i4", count=length, offset=4 * length).astype(np.int32),
    )
