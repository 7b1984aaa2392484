"""Gaps of very many completions: kept beside the scores that they are computed from, each made when it is looked at."""

from __future__ import annotations

import marshal
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import numpy as np

from parity.comparator.reference.gaps import TokenGaps
from parity.records import Key, TopLogprobs
from parity.records.lazy import Rows
from parity.records.score_table import ArmScores, Shelf

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

_VERSION: Final = 2


class GapShelf:
    """What is put here is read again to the last bit."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._near: tuple[int, TokenGaps | None] = (-1, None)

    def put(self, piece: bytes) -> int:
        """Where it is; piece: as `packed` makes it."""
        return self._shelf.append(piece)

    def at(self, place: int) -> TokenGaps:
        at, near = self._near
        if near is None or at != place:
            near = _gaps(*marshal.loads(self._shelf.read(place)))  # our own, in a file that nobody else opens
            self._near = place, near
        return near


def packed(gaps: TokenGaps) -> bytes:
    """Most completions have no gap: of these the best tokens and their logprobs are all."""
    best = gaps.best.tobytes()
    said = (
        len(gaps.gap),
        best,
        gaps.best_id.tobytes(),
        _but(gaps.gap.tobytes(), bytes(len(best))),
        _but(gaps.bounded.tobytes(), bytes(len(gaps.bounded))),
        _but(gaps.chosen.tobytes(), best),
        _but(gaps.most.tobytes(), gaps.gap.tobytes()),
        None if gaps.wanted is None else gaps.wanted.tobytes(),
    )
    return marshal.dumps(said, _VERSION)


def _but(said: bytes, usual: bytes) -> bytes | None:
    return None if said == usual else said


def _gaps(
    length: int,
    best: bytes,
    best_id: bytes,
    gap: bytes | None,
    bounded: bytes | None,
    chosen: bytes | None,
    most: bytes | None,
    wanted: bytes | None,
) -> TokenGaps:
    numbers = np.frombuffer(best)
    nats = np.zeros(length) if gap is None else np.frombuffer(gap)
    return TokenGaps(
        nats,
        np.zeros(length, dtype=np.bool_) if bounded is None else np.frombuffer(bounded, dtype=np.bool_),
        np.frombuffer(best_id, dtype=np.int64),
        numbers,
        numbers if chosen is None else np.frombuffer(chosen),
        nats if most is None else np.frombuffer(most),
        None if wanted is None else np.frombuffer(wanted),
    )


class ScoredGaps(Mapping[Key, tuple[TokenGaps, TopLogprobs]]):
    """`Reference.all_gaps` of completions that are scored in a table. `order`: the rows of their scores; `places`: of
    each score of the arm, where its gaps are; -1 where it is not among these."""

    def __init__(self, table: ArmScores[Key], shelf: GapShelf, order: Sequence[int], places: Rows) -> None:
        self._table, self._shelf, self._order, self._places = table, shelf, order, places
        self.gaps: Mapping[Key, TokenGaps] = _Gaps(table, shelf, order, places)

    def __getitem__(self, key: Key) -> tuple[TokenGaps, TopLogprobs]:
        return self.gaps[key], self._table[key]

    def __contains__(self, key: object) -> bool:
        return key in self.gaps

    def __iter__(self) -> Iterator[Key]:
        return iter(self.gaps)

    def __len__(self) -> int:
        return len(self._order)

    def items(self) -> Any:
        """As a mapping has it, in one pass."""
        tops = map(self._table.at, self._order)
        return ((key, (gaps, top)) for (key, gaps), top in zip(self.gaps.items(), tops, strict=True))

    def values(self) -> Any:
        """As a mapping has it, in one pass."""
        return (value for _, value in self.items())

    def pieces(self) -> Sequence[Mapping[Key, tuple[TokenGaps, TopLogprobs]]]:
        """As `pieces` has it."""
        table, shelf, order, places = self._table, self._shelf, self._order, self._places
        return [ScoredGaps(table, shelf, order[at : at + AT_ONCE], places) for at in range(0, len(order), AT_ONCE)]


AT_ONCE = 1 << 10
"""Completions of a piece."""


def pieces(
    scored: Mapping[Key, tuple[TokenGaps, TopLogprobs]],
) -> Sequence[Mapping[Key, tuple[TokenGaps, TopLogprobs]]]:
    """The same in parts, each to be looked at from start to end; what is held is one."""
    return scored.pieces() if isinstance(scored, ScoredGaps) else [scored]


class _Gaps(Mapping[Key, TokenGaps]):
    def __init__(self, table: ArmScores[Key], shelf: GapShelf, order: Sequence[int], places: Rows) -> None:
        self._table, self._shelf = table, shelf
        self._order, self._places = order, places

    def __getitem__(self, key: Key) -> TokenGaps:
        row = self._table.row(key)
        if row is None or self._places[row] < 0:
            raise KeyError(key)
        return self._shelf.at(int(self._places[row]))

    def __contains__(self, key: object) -> bool:
        row = self._table.row(key)
        return row is not None and bool(self._places[row] >= 0)

    def __iter__(self) -> Iterator[Key]:
        return map(self._table.key, self._order)

    def __len__(self) -> int:
        return len(self._order)

    def items(self) -> Any:
        """As a mapping has it, in one pass."""
        return ((self._table.key(row), self._shelf.at(int(self._places[row]))) for row in self._order)

    def values(self) -> Any:
        """As a mapping has it, in one pass."""
        return (self._shelf.at(int(self._places[row])) for row in self._order)


def gaps_alone(scored: Mapping[Key, tuple[TokenGaps, TopLogprobs]]) -> Mapping[Key, TokenGaps]:
    """Without the scores."""
    return scored.gaps if isinstance(scored, ScoredGaps) else {key: gaps for key, (gaps, _) in scored.items()}


class _Streamed(Mapping[K, V]):
    """A mapping whose values are made one after another."""

    @abstractmethod
    def pairs(self) -> Iterator[tuple[K, V]]: ...

    def items(self) -> Any:
        """As a mapping has it, in one pass."""
        return self.pairs()

    def values(self) -> Any:
        """As a mapping has it, in one pass."""
        return (value for _, value in self.pairs())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None


class Changed(_Streamed[K, V], Generic[K, V, W]):
    def __init__(self, base: Mapping[K, W], of: Callable[[K, W], V], kept: Callable[[K], bool]) -> None:
        self._base, self._of, self._kept = base, of, kept

    def __getitem__(self, key: K) -> V:
        if not self._kept(key):
            raise KeyError(key)
        return self._of(key, self._base[key])

    def __contains__(self, key: object) -> bool:
        return self._kept(cast(K, key)) and key in self._base

    def __iter__(self) -> Iterator[K]:
        return filter(self._kept, self._base)

    def pairs(self) -> Iterator[tuple[K, V]]:
        return ((key, self._of(key, value)) for key, value in self._base.items() if self._kept(key))


class _Over(_Streamed[K, V]):
    def __init__(self, base: Mapping[K, V], over: Mapping[K, V]) -> None:
        self._base, self._over = base, over

    def __getitem__(self, key: K) -> V:
        found = self._over.get(key)
        return self._base[key] if found is None else found

    def __contains__(self, key: object) -> bool:
        return key in self._over or key in self._base

    def __iter__(self) -> Iterator[K]:
        yield from self._base
        yield from (key for key in self._over if key not in self._base)

    def pairs(self) -> Iterator[tuple[K, V]]:
        for key, value in self._base.items():
            yield key, self._over.get(key, value)
        yield from ((key, value) for key, value in self._over.items() if key not in self._base)


def overlaid(base: Mapping[K, V], over: Mapping[K, V]) -> Mapping[K, V]:
    """As two dictionaries joined: where both have a key, the second one's value."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **over}
    return _Over(base, over) if over else base


def changed(values: Mapping[K, W], of: Callable[[K, W], V], kept: Callable[[K], bool]) -> Mapping[K, V]:
    """Some of the values, each changed."""
    if isinstance(values, dict):
        return {key: of(key, one) for key, one in values.items() if kept(key)}
    return Changed(values, of, kept)
