"""Large captures: completions as columns, each made when it is looked at."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from parity.capture.decimals import Decimals
from parity.capture.keys import Keys
from parity.capture.spill import Spill
from parity.records import Completion, Json, Key, RaggedTokens, SpecTrace, TokenIds, TopLogprobs
from parity.records.lazy import Flags, Lazy, Rows

_AT_ONCE = 1024
"""Completions of which the streams are unpacked at once."""

_NEAR = 64
"""Completions kept after a look."""

STREAMS = ("token_ids", "prompt_token_ids")


class Said(NamedTuple):
    """What few of the completions of an arm have otherwise than the others; `rest`: what it says besides, which is in
    the spill (names in `REST`)."""

    finish_reason: str | None
    stop_reason: int | str | None
    max_tokens: int | None
    aborted: bool
    rest: tuple[str, ...]
    own: bool = False
    """It has the logprob of each of its tokens and no other, in the column of these."""


REST = ("text", "logprobs", "spec", "sampling", "server")
_EMPTY: dict[str, Json] = {}


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
        own: Decimals | None = None,
    ) -> None:
        """`own`: a number for each token; those of completions that are not `Said.own` say nothing."""
        self.keys_in_order, self.columns = keys, streams
        self.said, self.rest, self.lines = said, rest, lines
        self.table, self.spill, self.own = table, spill, own
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
            tokens, prompts = (self.columns[name].row(row) for name in STREAMS)
            made = self._near[row] = self._made(self.keys_in_order[row], tokens, prompts, row, self._own_of(row))
        return made

    def each(self) -> Iterator[Completion]:
        keys = iter(self.keys_in_order)
        for begin in range(0, len(self), _AT_ONCE):
            end = min(begin + _AT_ONCE, len(self))
            both = (self.columns[name].streams(begin, end) for name in STREAMS)
            for row, tokens, prompts in zip(range(begin, end), *both, strict=True):
                yield self._made(next(keys), tokens, prompts, row, self._own_of(row))

    def column(self, field: str) -> Iterator[Any]:
        if field == "key":
            yield from self.keys_in_order
        elif field in STREAMS:
            for begin in range(0, len(self), _AT_ONCE):
                yield from self.columns[field].streams(begin, min(begin + _AT_ONCE, len(self)))
        elif field == "logprobs":
            yield from (one.logprobs for one in self.each())
        elif field in Said._fields:
            values = [getattr(one, field) for one in self.table]
            yield from map(values.__getitem__, self.said.data)
        else:
            yield from map(itemgetter(field), map(self._values, range(len(self))))

    def has(self, field: str) -> Flags:
        if field in REST:
            there = [field in one.rest or (field == "logprobs" and one.own) for one in self.table]
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

    @cached_property
    def has_own(self) -> Flags:
        there = np.array([one.own for one in self.table], dtype=np.bool_)
        return np.asarray(there[self.said] if len(there) else np.zeros(len(self), dtype=np.bool_))

    def own_logprobs(self, rows: Rows) -> npt.NDArray[np.float64]:
        assert self.own is not None
        offsets = self.columns["token_ids"].offsets
        parts = [self.own.part(*offsets[[one[0], one[-1] + 1]].tolist()) for one in _runs(rows)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])

    def _own_of(self, row: int) -> npt.NDArray[np.float64] | None:
        if self.own is None or not self.table[self.said[row]].own:
            return None
        offsets = self.columns["token_ids"].offsets
        return self.own.part(int(offsets[row]), int(offsets[row + 1])).copy()  # one that is kept keeps no other

    def like(self, row: int, said: int, piece: bytes) -> int:
        """Where the rest of a row is, if it is this piece; -1 where not."""
        if self.rest is None or self.said[row] != said:
            return -1
        at = int(self.rest[row])
        return at if at >= 0 and self.spill.read(at) == piece else -1

    def _values(self, row: int) -> dict[str, Any]:
        """What is in the spill, and the line."""
        found = dict.fromkeys(REST)
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

    def _made(
        self, key: Key, tokens: TokenIds, prompts: TokenIds, row: int, own: npt.NDArray[np.float64] | None
    ) -> Completion:
        said = self.table[self.said[row]]
        logprobs = None if own is None else TopLogprobs(tokens[:, None], own[:, None])
        if not said.rest:
            return Completion(
                key, prompts, tokens, None, said.finish_reason, said.stop_reason, logprobs, None, int(self.lines[row]),
                said.max_tokens, _EMPTY, None, said.aborted,
            )  # fmt: skip
        values = self._values(row)
        if logprobs is not None:
            values["logprobs"] = logprobs
        return Completion(
            key=key,
            prompt_token_ids=prompts,
            token_ids=tokens,
            finish_reason=said.finish_reason,
            stop_reason=said.stop_reason,
            max_tokens=said.max_tokens,
            aborted=said.aborted,
            **values,
        )


def _runs(rows: Rows) -> list[Rows]:
    """Rows cut where the next is not the following one."""
    return np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []


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
