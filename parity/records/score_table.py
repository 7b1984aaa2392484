"""The scores of a large file as the comparator knows them: each is made when it is looked at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

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
