"""How much a file of steps or sketches may unpack to, against its own bytes: what packs best is no engine's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Room:
    """`most` times what was read, and `small` bytes more."""

    most: int
    small: int
    read: int = 0
    taken: int = 0

    def take(self, read: int, unpacked: int) -> None:
        """A line of `read` bytes that takes `unpacked`. Raises ValueError where that is too much."""
        self.read += read
        self.taken += unpacked
        if self.taken > self.small + self.most * self.read:
            raise ValueError("it unpacks to more than any engine gives")

    def of_a_writer(self) -> Room:
        """Narrower, so that what is written is read again, also after several continued runs."""
        return Room(self.most // 2, self.small // 4)


def steps_room() -> Room:
    """In numbers of eight bytes: recorded engines come to 2 to 88 times."""
    return Room(256, 32 << 20)


def sketches_room() -> Room:
    """What engines gave comes to 1.2 times."""
    return Room(64, 32 << 20)
