"""Completions that become the columns of a large capture."""

from __future__ import annotations

import marshal
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from parity.capture.decimals import Decimals
from parity.capture.decimals import Packed as Decimal
from parity.capture.keys import Keys
from parity.capture.rows import REST, STREAMS, Packed, Said
from parity.capture.spill import Pile, Spill, end_of, piece_at
from parity.capture.streams import Column, Narrow
from parity.records import Capture, Completion, Json, Key, RaggedTokens, TokenIds
from parity.records.ragged import PatchedTokens
from parity.unnamed import Numbers, kept

_VERSION: Final = 2
"""Of marshal's format: equal values make equal bytes (later ones depend on who else holds a value)."""

_of_rest = attrgetter(*REST)
_EMPTY: dict[str, Json] = {}
_NOTHING = (None, None, None, _EMPTY, None)


class Part(NamedTuple):
    """Completions that stood one after another, as they are before they are joined with others."""

    keys: Keys
    streams: dict[str, RaggedTokens]
    said: npt.NDArray[np.int32]
    """By row: the number of what is in `table`, which has it in the order in which it first stands there."""
    rest: npt.NDArray[np.int64]
    """By row: where its piece begins in `pieces`, -1 where it has none."""
    lines: npt.NDArray[np.int32]
    """By row: its line, of the lines here; the first is 1."""
    table: list[Said]
    pieces: bytes
    own: Decimal | None
    """A number for each token, as it is `packed`; None where nobody has own logprobs."""

    def __len__(self) -> int:
        return len(self.said)

    def some(self, begin: int, end: int) -> Part:
        """The rows from `begin` to before `end`."""
        streams = {name: column.part(begin, end) for name, column in self.streams.items()}
        keys, rows = self.keys.part(begin, end), slice(begin, end)
        own = self.own
        if own is not None:
            own = own[slice(*self.streams["token_ids"].offsets[[begin, end]].tolist())]
        return Part(keys, streams, self.said[rows], self.rest[rows], self.lines[rows], self.table, self.pieces, own)


class Packing:
    """Completions that become columns while a file is read. `beside`: a capture read before; what both have in common
    is held once."""

    def __init__(self, beside: Packed | None = None, pile: Pile | None = None, *, lists: bool = True) -> None:
        """`pile`: what is read here is joined with others elsewhere (`part`). `lists`: see `takes`."""
        self._lists = lists
        self._beside = beside
        held = pile is not None
        self._keys: Keys | None = Keys(held=held) if beside is None else None
        """None as long as the keys are those of the other."""
        new = partial(Narrow, held=held)
        self._columns = {
            name: Column(None if beside is None else _plain(beside.columns[name]), new) for name in STREAMS
        }
        self._said, self._rest, self._lines = (Numbers(kind, held=held) for kind in "iqi")
        self._table: list[Said] = [] if beside is None else beside.table
        self._numbers = {one: number for number, one in enumerate(self._table)}
        self._spill: Spill | Pile = beside.spill if beside is not None else pile or Spill()
        self._own: Decimals | None = None
        self._tokens = 0
        """So far."""

    def __len__(self) -> int:
        return len(self._said)

    def takes(self, first: Completion) -> bool:
        """Whether completions like the first one are to be kept as columns: not where they list other tokens than their
        own, unless `lists` are taken too."""
        return self._lists or len(self) > 0 or first.lists is None

    def add(self, one: Completion) -> None:
        """Raises ParityError where the disk is full."""
        row, like = len(self), self._beside
        if self._keys is None:
            assert like is not None
            if row >= len(like) or like.order[row] != one.key:
                self._keys, like = like.order.begin(row), None
        else:
            like = None
        if like is None and self._keys is not None:
            self._keys.append(one.key)
        for name, column in self._columns.items():
            stream: TokenIds = getattr(one, name)
            shared = like is not None and _same(stream, like.columns[name].row(row))
            column.append(stream, in_order=like is not None, shared=shared)
        rest, own = {}, None
        if _of_rest(one) != _NOTHING:
            own = _own_alone(one)
            names = (name for name in REST if own is None or name != "logprobs")
            rest = {name: value for name in names if (value := _plainly(one, name)) is not None}
        self._add_own(own, len(one.token_ids))
        row_says = Said(one.finish_reason, one.stop_reason, one.max_tokens, one.aborted, tuple(rest), own is not None)
        said = self._numbers.get(row_says)
        if said is None:
            said = self._numbers[row_says] = len(self._table)
            self._table.append(row_says)
        self._said.append(said)
        self._lines.append(one.line)
        if rest and not self._rest:
            self._rest.extend(np.full(row, -1))
        if rest:
            piece = marshal.dumps(tuple(rest.values()), _VERSION)
            at = -1 if like is None else like.like(row, said, piece)
            self._rest.append(at if at >= 0 else self._spill.append(piece))
        elif self._rest:
            self._rest.append(-1)

    def _add_own(self, own: npt.NDArray[np.float64] | None, tokens: int) -> None:
        if own is not None or self._own is not None:
            self._with_own().append(np.zeros(tokens) if own is None else own)
        self._tokens += tokens

    def _with_own(self) -> Decimals:
        """The numbers of all tokens so far."""
        if self._own is None:
            self._own = Decimals(held=isinstance(self._spill, Pile))
            self._own.extend(np.zeros(self._tokens, dtype=np.int32))
        return self._own

    def join(self, part: Part, line: int) -> None:
        """Add many; `line`: the one before the first line of the part. Raises ParityError where the disk is full."""
        in_order = (
            0 if self._keys is not None or self._beside is None else self._beside.order.alike(len(self), part.keys)
        )
        for begin, end in ((0, in_order), (in_order, len(part))):
            if begin < end:
                self._join(part if end - begin == len(part) else part.some(begin, end), line, begin < in_order)

    def _join(self, part: Part, line: int, in_order: bool) -> None:
        row = len(self)
        if not in_order and self._keys is None:
            assert self._beside is not None
            self._keys = self._beside.order.begin(row)
        if self._keys is not None:
            self._keys.extend(part.keys)
        for name, column in self._columns.items():
            column.extend(part.streams[name], in_order=in_order)
        tokens = part.streams["token_ids"].total
        if part.own is not None or self._own is not None:
            self._with_own().extend(np.zeros(tokens, dtype=np.int32) if part.own is None else part.own)
        self._tokens += tokens
        for one in part.table:
            if one not in self._numbers:
                self._numbers[one] = len(self._table)
                self._table.append(one)
        said = np.array([self._numbers[one] for one in part.table], dtype=np.int32)[part.said]
        self._said.extend(said)
        self._lines.extend(part.lines + np.int32(line))
        rest = self._placed(part, said, row if in_order else None)
        if rest is not None and not self._rest:
            self._rest.extend(np.full(row, -1))
        if rest is not None:
            self._rest.extend(np.array(rest))
        elif self._rest:
            self._rest.extend(np.full(len(part), -1))

    def _placed(self, part: Part, said: npt.NDArray[np.int32], row: int | None) -> list[int] | None:
        """Where the pieces of a part are in the spill; None where it has none. `row`: where its first row stands, in
        the other capture too."""
        rows = np.flatnonzero(part.rest >= 0).tolist()
        if not rows:
            return None
        found, numbers, rest = [-1] * len(part), said.tolist(), part.rest.tolist()
        if row is None or self._beside is None or self._beside.rest is None:
            begin, end = rest[rows[0]], end_of(part.pieces, rest[rows[-1]])
            assert isinstance(self._spill, Spill)
            at = self._spill.take(memoryview(part.pieces)[begin:end]) - begin
            for one in rows:
                found[one] = rest[one] + at
            return found
        for one in rows:
            piece = piece_at(part.pieces, rest[one])
            at = self._beside.like(row + one, numbers[one], piece)
            found[one] = at if at >= 0 else self._spill.append(piece)
        return found

    def part(self) -> Part:
        """All that was added, to be joined with others: of a packing that has a `Pile` and is beside nothing."""
        assert self._keys is not None
        assert isinstance(self._spill, Pile)
        streams = {name: column.whole() for name, column in self._columns.items()}
        return Part(
            self._keys,
            streams,
            self._said.whole(),
            self._rest.whole() if self._rest else np.full(len(self), -1),
            self._lines.whole(),
            self._table,
            bytes(self._spill.pieces),
            None if self._own is None else self._own.whole(),
        )

    def repeated(self) -> tuple[int, Key, int] | None:
        """(line, key, line where it stands first) of the first completion that was there already."""
        found = None if self._keys is None else self._keys.repeated()
        if found is None:
            return None
        first, row = found
        assert self._keys is not None
        return self._lines.data[row], self._keys[row], self._lines.data[first]

    def capture_of(self, capture: Capture) -> Capture:
        """With all that was added in place of its completions."""
        keys = self._keys
        if keys is None:
            assert self._beside is not None
            whole = len(self) == len(self._beside)
            keys = self._beside.order if whole else self._beside.order.begin(len(self))
        streams = {name: column.whole() for name, column in self._columns.items()}
        rest = self._rest.whole() if self._rest else None
        said = kept(self._said.whole().astype(np.min_scalar_type(len(self._table))))
        lines = self._lines.whole()
        if self._beside is not None and np.array_equal(lines, self._beside.lines):
            lines = self._beside.lines
        assert isinstance(self._spill, Spill)
        packed = Packed(keys, streams, said, rest, lines, self._table, self._spill, self._own)
        return Capture(capture.header, packed, capture.scores, capture.counters, capture.source)


def _plain(column: RaggedTokens) -> RaggedTokens:
    return RaggedTokens(column.flat, column.offsets) if isinstance(column, PatchedTokens) else column


def _same(stream: TokenIds, other: TokenIds) -> bool:
    return len(stream) == len(other) and stream.tobytes() == other.tobytes()


def _own_alone(one: Completion) -> npt.NDArray[np.float64] | None:
    """The logprobs of its tokens, shape (T,), where it lists these and nothing else."""
    top = one.logprobs
    if top is None or top.logsumexp is not None or not len(one.token_ids) or top.ids.shape != (len(one.token_ids), 1):
        return None
    return top.values[:, 0] if _same(top.ids[:, 0], one.token_ids) else None


def _plainly(one: Completion, name: str) -> Any:
    """A field of `REST` as marshal takes it; None where there is nothing."""
    value = getattr(one, name)
    if value is None or (name == "sampling" and not value):
        return None
    if name == "spec":
        return value.accepted.tobytes(), value.drafted.tobytes()
    if name == "logprobs":
        of_own = value.ids.shape == (len(one.token_ids), 1) and _same(value.ids[:, 0], one.token_ids)
        return (
            None if of_own else value.ids.tobytes(),
            value.ids.shape,
            value.values.tobytes(),
            None if value.logsumexp is None else value.logsumexp.tobytes(),
        )
    return dict(value) if name in ("sampling", "server") else value
