"""The columns of a sketches file (`parity.sketches/2`), and how a block of them is packed: docs/steps-file.md.

The worker travels with this module in it: standard library and numpy only, Python 3.9 or newer.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple

import numpy as np

SKETCHES_SCHEMA = "parity.sketches/2"
EARLIER_SKETCHES = ("parity.sketches/1",)
"""Those that are read too: without a drafter."""

PROJECTIONS = 16
"""Numbers of a sketch: the relative distance of two vectors comes out within some 18 % (1 / sqrt(2 * 16))."""

UNSEEN_NORM = -1.0
"""In a column of norms: the module gave nothing for this token."""

SKETCH_BLOCK_BYTES = 4 << 20
"""Bytes of a block before it is packed, at most by one token."""

MAX_SKETCH_BYTES = 64 << 20
MAX_SKETCH_TOKENS = 1 << 20
MAX_SKETCH_MODULES = 4096
MAX_EXPERTS = 64
"""What a reader takes of one block: sketches come from other hosts."""


class SketchColumn(NamedTuple):
    """One column of a sketches file, an entry for each token and step."""

    name: str
    kind: str
    """Its numbers, as numpy names them."""
    widest: int = 1
    """Numbers in an entry, at most."""
    of_module: bool = False
    """There is one for each module, NAME/NUMBER."""


SKETCH_TABLE = (
    SketchColumn("step", "<i4"),
    SketchColumn("row", "<i4"),
    SketchColumn("request", "<i4"),
    SketchColumn("position", "<i4"),
    SketchColumn("token", "<i4"),
    SketchColumn("entry", "<u4"),
    SketchColumn("best", "<i4"),
    SketchColumn("ties", "<i4"),
    SketchColumn("drafted", "<i4"),
    SketchColumn("drafted_at", "<i4"),
    SketchColumn("drafter_entry", "<u4"),
    SketchColumn("norm", "<f4", of_module=True),
    SketchColumn("sketch", "<f2", PROJECTIONS, of_module=True),
    SketchColumn("experts", "<i2", MAX_EXPERTS, of_module=True),
    SketchColumn("gap", "<f4", of_module=True),
)
SKETCH_BY_NAME = {one.name: one for one in SKETCH_TABLE}


def signs(width: int, projections: int = PROJECTIONS) -> Any:
    """The matrix of +1 and -1 that vectors of this width are multiplied with, shape (width, projections), float32.

    The signs are bits of an integer hash (murmur3's fmix32) of row and column, so that they are the same everywhere.
    """
    rows = np.arange(width, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B1)
    columns = np.arange(projections, dtype=np.uint64)[None, :] * np.uint64(0x85EBCA77)
    low = np.uint64(0xFFFFFFFF)
    mixed = (rows + columns + np.uint64(0xC2B2AE3D)) & low
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = ((mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)) & low
    mixed ^= mixed >> np.uint64(16)
    return np.where(mixed & np.uint64(1), np.float32(1), np.float32(-1))


def split_sketch_name(name: str) -> tuple[SketchColumn, int]:
    """The column of a name in a block, and its module (-1: of none). Raises KeyError."""
    base, _, module = name.partition("/")
    column = SKETCH_BY_NAME[base]
    if column.of_module != (module.isascii() and module.isdigit()) or len(module) > 5:
        raise KeyError(name)
    return column, int(module) if module else -1


def pack_sketches(columns: dict[str, Any]) -> dict[str, Any]:
    """`columns` and `data` of a block: [[name, numbers in an entry], …], and the bytes of each column, the first of all
    its numbers, then the second, …, zlib in base64."""
    layout: list[list[Any]] = []
    pieces: list[bytes] = []
    for name, values in columns.items():
        column, _ = split_sketch_name(name)
        array = np.ascontiguousarray(values, dtype=column.kind).reshape(len(values), -1)
        layout.append([name, array.shape[1]])
        raw = array.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize)
        pieces.append(np.ascontiguousarray(raw.T).tobytes())
    data = base64.b64encode(zlib.compress(b"".join(pieces), 1)).decode("ascii")
    return {"columns": layout, "data": data}


def unpack_sketches(tokens: int, layout: Any, data: str) -> dict[str, Any]:
    """What `pack_sketches` was given: arrays of shape (tokens,) or (tokens, width). Raises ValueError for anything
    else, KeyError for a column that is none."""
    if not 0 <= tokens <= MAX_SKETCH_TOKENS:
        raise ValueError("%d tokens in a block" % tokens)
    if len(layout) > 4 * MAX_SKETCH_MODULES + len(SKETCH_TABLE) or len({name for name, _ in layout}) < len(layout):
        raise ValueError("too many columns, or one twice")
    sizes = []
    for name, width in layout:
        column, module = split_sketch_name(name)
        if module >= MAX_SKETCH_MODULES or not 1 <= width <= column.widest:
            raise ValueError("column %s of width %d" % (name, width))
        if column.name == "sketch" and width != PROJECTIONS:
            raise ValueError("a sketch of %d numbers" % width)
        sizes.append(tokens * width * np.dtype(column.kind).itemsize)
    if sum(sizes) > MAX_SKETCH_BYTES:
        raise ValueError("a block of %d bytes" % sum(sizes))
    whole = zlib.decompressobj()
    try:
        raw = whole.decompress(base64.b64decode(data, validate=True), sum(sizes) + 1)
    except zlib.error as error:
        raise ValueError("not zlib: %s" % error) from None
    if len(raw) != sum(sizes) or not whole.eof:
        raise ValueError("%d bytes of numbers, %d expected" % (len(raw), sum(sizes)))
    found: dict[str, Any] = {}
    at = 0
    for (name, width), size in zip(layout, sizes):  # noqa: B905 - strict is Python 3.10
        column, _ = split_sketch_name(name)
        kind = np.dtype(column.kind)
        planes = np.frombuffer(raw, dtype=np.uint8, count=size, offset=at).reshape(kind.itemsize, -1)
        values = np.ascontiguousarray(planes.T).reshape(-1).view(kind)
        found[name] = values.reshape(tokens, width) if column.widest > 1 else values
        at += size
    return found
