"""The scores of a large file as the comparator knows them: each is made when it is looked at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from parity.records.logprobs import TopLogprobs

K = TypeVar("K")
N = TypeVar("N")


class Shelf(Protocol):
    """Where bytes are put that would take too much memory."""

    def append(self, piece: bytes) -> int:
        """Where it is."""
        ...

    def read(self, begin: int) -> bytes:
        """The piece at a place that `append` gave."""
        ...


class ArmScores(Mapping[N, TopLogprobs], ABC):
    """The scores of one arm's completions by their names, in the order of the file."""

    @abstractmethod
    def row(self, key: object) -> int | None:
        """Where a name stands; None where it does not."""

    @abstractmethod
    def key(self, row: int) -> N: ...

    @abstractmethod
    def at(self, row: int) -> TopLogprobs: ...

    @abstractmethod
    def lengths(self) -> Iterable[tuple[N, int]]:
        """How many lists each has."""


class ScoreTable(Mapping[K, TopLogprobs], ABC, Generic[K, N]):
    """Scores in the order of the file."""

    @abstractmethod
    def by_arm(self) -> Mapping[str, ArmScores[N]]: ...

    @abstractmethod
    def shelf(self) -> Shelf:
        """A new one."""

    @abstractmethod
    def tops(self) -> Iterator[TopLogprobs]:
        """All values in order."""

    def without(self, left_out: Mapping[str, frozenset[N]]) -> ScoreTable[K, N]:
        """All but some, by arm and name."""
        return _Without(self, left_out)


class _Without(ScoreTable[K, N]):
    def __init__(self, of: ScoreTable[K, N], left_out: Mapping[str, frozenset[N]]) -> None:
        self._of = of
        self._left_out = left_out
        self._arms = {
            name: _OfArm(scores, left_out[name]) if name in left_out else scores for name, scores in of.by_arm().items()
        }

    def by_arm(self) -> Mapping[str, ArmScores[N]]:
        return self._arms

    def shelf(self) -> Shelf:
        return self._of.shelf()

    def tops(self) -> Iterator[TopLogprobs]:
        return (self._of[key] for key in self)

    def _is_left_out(self, key: Any) -> bool:
        arm, *name = key
        return arm in self._left_out and tuple(name) in self._left_out[arm]

    def __getitem__(self, key: K) -> TopLogprobs:
        if self._is_left_out(key):
            raise KeyError(key)
        return self._of[key]

    def __iter__(self) -> Iterator[K]:
        return (key for key in self._of if not self._is_left_out(key))

    def __len__(self) -> int:
        return sum(map(len, self._arms.values()))


class _OfArm(ArmScores[N]):
    """The scores of an arm but some; `_rows`: where those that stay stand."""

    def __init__(self, of: ArmScores[N], left_out: frozenset[N]) -> None:
        gone = [row for name in left_out if (row := of.row(name)) is not None]
        self._of, self._left_out = of, left_out
        self._rows: npt.NDArray[np.int64] = np.delete(np.arange(len(of)), gone)

    def row(self, key: object) -> int | None:
        row = self._of.row(key)
        if row is None:
            return None
        at = int(np.searchsorted(self._rows, row))
        return at if at < len(self._rows) and self._rows[at] == row else None

    def key(self, row: int) -> N:
        return self._of.key(int(self._rows[row]))

    def at(self, row: int) -> TopLogprobs:
        return self._of.at(int(self._rows[row]))

    def lengths(self) -> Iterable[tuple[N, int]]:
        return ((name, length) for name, length in self._of.lengths() if name not in self._left_out)

    def __getitem__(self, key: N) -> TopLogprobs:
        if key in self._left_out:
            raise KeyError(key)
        return self._of[key]

    def __iter__(self) -> Iterator[N]:
        return (name for name in self._of if name not in self._left_out)

    def __len__(self) -> int:
        return len(self._rows)
