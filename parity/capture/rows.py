"""Large captures: completions as columns, each made when it is looked at."""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from parity.capture.keys import Keys
from parity.capture.spill import Spill
from parity.capture.streams import Column
from parity.records import Capture, Completion, Json, Key, RaggedTokens, SpecTrace, TokenIds, TopLogprobs
from parity.records.lazy import Flags, Lazy, Rows
from parity.records.ragged import PatchedTokens

_AT_ONCE = 1024
"""Completions of which the streams are unpacked at once."""

_NEAR = 64
"""Completions kept after a look."""

_VERSION: Final = 2
"""Of marshal's format: equal values make equal bytes (later ones depend on who else holds a value)."""

_STREAMS = ("token_ids", "prompt_token_ids")


class Said(NamedTuple):
    """What few of the completions of an arm have otherwise than the others; `rest`: what it says besides, which is in
    the spill (names in `_REST`)."""

    finish_reason: str | None
    stop_reason: int | str | None
    max_tokens: int | None
    aborted: bool
    rest: tuple[str, ...]


_REST = ("text", "logprobs", "spec", "sampling", "server")
_of_rest = attrgetter(*_REST)
_EMPTY: dict[str, Json] = {}
_NOTHING = (None, None, None, _EMPTY, None)


class Packed(Lazy[Key, Completion]):
    """Completions in the order of a file. `said` and `rest` are by row: the number of a `Said`, and where in the spill
    the rest is."""

    def __init__(
        self,
        keys: Keys,
        streams: dict[str, RaggedTokens],
        said: npt.NDArray[Any],
        rest: npt.NDArray[np.int64] | None,
        lines: npt.NDArray[np.int32],
        table: list[Said],
        spill: Spill,
    ) -> None:
        self.keys_in_order, self.columns = keys, streams
        self.said, self.rest, self.lines = said, rest, lines
        self.table, self.spill = table, spill
        self._near: dict[int, Completion] = {}
        """Those made last: a check looks at one several times."""

    @property
    def order(self) -> Keys:
        return self.keys_in_order

    def row(self, key: object) -> int | None:
        return self.keys_in_order.row(key)

    def at(self, row: int) -> Completion:
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(row)
        made = self._near.get(row)
        if made is None:
            if len(self._near) >= _NEAR:
                self._near.clear()
            tokens, prompts = (self.columns[name].row(row) for name in _STREAMS)
            made = self._near[row] = self._made(self.keys_in_order[row], tokens, prompts, row)
        return made

    def each(self) -> Iterator[Completion]:
        keys = iter(self.keys_in_order)
        for begin in range(0, len(self), _AT_ONCE):
            end = min(begin + _AT_ONCE, len(self))
            both = (self.columns[name].streams(begin, end) for name in _STREAMS)
            for row, tokens, prompts in zip(range(begin, end), *both, strict=True):
                yield self._made(next(keys), tokens, prompts, row)

    def column(self, field: str) -> Iterator[Any]:
        if field == "key":
            yield from self.keys_in_order
        elif field in _STREAMS:
            for begin in range(0, len(self), _AT_ONCE):
                yield from self.columns[field].streams(begin, min(begin + _AT_ONCE, len(self)))
        elif field in Said._fields:
            values = [getattr(one, field) for one in self.table]
            yield from map(values.__getitem__, self.said.data)
        else:
            yield from map(itemgetter(field), map(self._values, range(len(self))))

    def has(self, field: str) -> Flags:
        if field in _REST:
            there = [field in one.rest for one in self.table]
        else:
            there = [getattr(one, field) is not None and getattr(one, field) is not False for one in self.table]
        found: Flags = np.array(there, dtype=np.bool_)[self.said]
        return found

    def streams(self, field: str) -> RaggedTokens:
        return self.columns[field]

    def aside(self, other: Lazy[Key, Completion]) -> Rows | None:
        if not isinstance(other, Packed) or other.spill is not self.spill or other.order is not self.order:
            return None
        apart = self.said != other.said
        if self.rest is not other.rest:
            none = np.full(len(self), -1, dtype=np.int64)
            apart |= (none if self.rest is None else self.rest) != (none if other.rest is None else other.rest)
        return np.flatnonzero(apart)

    def like(self, row: int, said: int, piece: bytes) -> int:
        """Where the rest of a row is, if it is this piece; -1 where not."""
        if self.rest is None or self.said[row] != said:
            return -1
        at = int(self.rest[row])
        return at if at >= 0 and self.spill.read(at) == piece else -1

    def _values(self, row: int) -> dict[str, Any]:
        """What is in the spill, and the line."""
        found = dict.fromkeys(_REST)
        found |= {"sampling": _EMPTY, "line": int(self.lines[row])}
        rest = self.table[self.said[row]].rest
        if rest:
            assert self.rest is not None
            values = marshal.loads(self.spill.read(int(self.rest[row])))  # our own, in a file that nobody else opens
            found |= dict(zip(rest, values, strict=True))
            if found["spec"] is not None:
                found["spec"] = _spec(found["spec"])
            if found["logprobs"] is not None:
                found["logprobs"] = _logprobs(found["logprobs"], self.columns["token_ids"].row(row))
        return found

    def _made(self, key: Key, tokens: TokenIds, prompts: TokenIds, row: int) -> Completion:
        said = self.table[self.said[row]]
        if not said.rest:
            return Completion(
                key, prompts, tokens, None, said.finish_reason, said.stop_reason, None, None, int(self.lines[row]),
                said.max_tokens, _EMPTY, None, said.aborted,
            )  # fmt: skip
        return Completion(
            key=key,
            prompt_token_ids=prompts,
            token_ids=tokens,
            finish_reason=said.finish_reason,
            stop_reason=said.stop_reason,
            max_tokens=said.max_tokens,
            aborted=said.aborted,
            **self._values(row),
        )


class Packing:
    """Completions that become columns while a file is read. `beside`: a capture read before; what both have in common
    is held once."""

    def __init__(self, beside: Packed | None = None) -> None:
        self._beside = beside
        self._keys: Keys | None = Keys() if beside is None else None
        """None as long as the keys are those of the other."""
        self._columns = {
            name: Column(None if beside is None else _plain(beside.columns[name]), packed=True) for name in _STREAMS
        }
        self._said, self._rest, self._lines = array("i"), array("q"), array("i")
        self._table: list[Said] = [] if beside is None else beside.table
        self._numbers = {one: number for number, one in enumerate(self._table)}
        self._spill = Spill() if beside is None else beside.spill

    def __len__(self) -> int:
        return len(self._said)

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
        rest = {}
        if _of_rest(one) != _NOTHING:
            rest = {name: value for name in _REST if (value := _plainly(one, name)) is not None}
        row_says = Said(one.finish_reason, one.stop_reason, one.max_tokens, one.aborted, tuple(rest))
        said = self._numbers.get(row_says)
        if said is None:
            said = self._numbers[row_says] = len(self._table)
            self._table.append(row_says)
        self._said.append(said)
        self._lines.append(one.line)
        if rest and not self._rest:
            self._rest.extend([-1] * row)
        if rest:
            piece = marshal.dumps(tuple(rest.values()), _VERSION)
            at = -1 if like is None else like.like(row, said, piece)
            self._rest.append(at if at >= 0 else self._spill.append(piece))
        elif self._rest:
            self._rest.append(-1)

    def repeated(self) -> tuple[int, Key, int] | None:
        """(line, key, line where it stands first) of the first completion that was there already."""
        found = None if self._keys is None else self._keys.repeated()
        if found is None:
            return None
        first, row = found
        assert self._keys is not None
        return self._lines[row], self._keys[row], self._lines[first]

    def capture_of(self, capture: Capture) -> Capture:
        """With all that was added in place of its completions."""
        keys = self._keys
        if keys is None:
            assert self._beside is not None
            whole = len(self) == len(self._beside)
            keys = self._beside.order if whole else self._beside.order.begin(len(self))
        streams = {name: column.whole() for name, column in self._columns.items()}
        rest = np.array(self._rest, dtype=np.int64) if self._rest else None
        said: npt.NDArray[Any] = np.array(self._said, dtype=np.min_scalar_type(len(self._table)))
        lines = np.array(self._lines, dtype=np.int32)
        self._said, self._lines = array("i"), array("i")
        if self._beside is not None and np.array_equal(lines, self._beside.lines):
            lines = self._beside.lines
        packed = Packed(keys, streams, said, rest, lines, self._table, self._spill)
        return Capture(capture.header, packed, capture.scores, capture.counters, capture.source)


def _plain(column: RaggedTokens) -> RaggedTokens:
    return RaggedTokens(column.flat, column.offsets) if isinstance(column, PatchedTokens) else column


def _same(stream: TokenIds, other: TokenIds) -> bool:
    return len(stream) == len(other) and stream.tobytes() == other.tobytes()


def _plainly(one: Completion, name: str) -> Any:
    """A field of `_REST` as marshal takes it; None where there is nothing."""
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


def _spec(value: Sequence[bytes]) -> SpecTrace:
    accepted, drafted = (np.frombuffer(one, dtype=np.int64) for one in value)
    return SpecTrace(accepted, drafted)


def _logprobs(value: tuple[bytes | None, tuple[int, int], bytes, bytes | None], tokens: TokenIds) -> TopLogprobs:
    ids, shape, values, sums = value
    listed = tokens[:, None] if ids is None else np.frombuffer(ids, dtype=np.int64).reshape(shape)
    return TopLogprobs(
        listed,
        np.frombuffer(values, dtype=np.float64).reshape(shape),
        None if sums is None else np.frombuffer(sums, dtype=np.float64),
    )
