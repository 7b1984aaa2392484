"""How much a file of steps or sketches may unpack to, against its own bytes: what packs best is no engine's."""

from __future__ import annotations

from dataclasses import dataclass

_NUMBER = _ROW_STEP = 8
_REQUEST = 64
"""Bytes, as a room counts: of a request no fewer than any writer needs to describe it."""


MOST_NUMBERS = 1 << 28
"""In all columns of a steps file, which is read as a whole: some five million row-steps, and about eight bytes each in
memory by the time the invariants have been asked. Longer runs are recorded as a ring."""


class TooMuch(ValueError):
    """More than is read into memory, whatever the file's size."""


@dataclass
class Room:
    """`most` times what was read, and `small` bytes more; never more than `largest`."""

    most: int
    small: int
    largest: int | None = None
    read: int = 0
    taken: int = 0

    def take(self, read: int, unpacked: int) -> None:
        """A line of `read` bytes that takes `unpacked`. Raises ValueError where that is too much."""
        self.read += read
        self.taken += unpacked
        if self.largest is not None and self.taken > self.largest:
            raise TooMuch(self.largest)
        if self.taken > self.small + self.most * self.read:
            raise ValueError("it unpacks to more than any engine gives")

    def of_a_writer(self) -> Room:
        """Narrower, so that what is written is read again, also after a continued run; as long as a run is."""
        return Room(self.most, self.small // 2)


@dataclass
class StepsRoom:
    """Of a steps file: its numbers, its row-steps (asking the invariants makes some hundred bytes of each), and the
    requests that it describes."""

    numbers: Room
    row_steps: Room
    requests: Room

    def take(self, read: int, numbers: int = 0, row_steps: int = 0, requests: int = 0) -> None:
        """A line of `read` bytes. Raises ValueError where it has too much of anything."""
        self.numbers.take(read, _NUMBER * numbers)
        self.row_steps.take(read, _ROW_STEP * row_steps)
        self.requests.take(read, _REQUEST * requests)

    def of_a_writer(self) -> StepsRoom:
        return StepsRoom(*(one.of_a_writer() for one in (self.numbers, self.row_steps, self.requests)))


def steps_room() -> StepsRoom:
    """Recorded engines come to 2 to 88 times what was read, in numbers of eight bytes; the most regular of them to a
    row-step in 6 bytes."""
    return StepsRoom(Room(128, 32 << 20, _NUMBER * MOST_NUMBERS), Room(1, 32 << 20), Room(1, 8 << 20))


def sketches_room() -> Room:
    """What engines gave comes to 1.2 times."""
    return Room(16, 32 << 20)
