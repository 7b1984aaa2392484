"""The scores of a large file: their keys as columns, their lists in a file without a name."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from parity.capture.decimals import packed, unpacked
from parity.capture.keys import Keys
from parity.capture.spill import Pile, Spill
from parity.records import Key, ScoreKey, TopLogprobs
from parity.records.score_table import ArmScores, ScoreTable, Shelf
from parity.unnamed import Numbers

_VERSION: Final = 2
_INT32: Final = np.iinfo(np.int32)

_AT_ONCE: Final = 128
"""Scores whose numbers are packed together."""


class ArmPart(NamedTuple):
    """The scores of one arm in a `ScorePart`. Lines: of the lines there, the first is 1; places: in its pieces."""

    arm: str
    keys: Keys
    lines: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    places: npt.NDArray[np.int64]


class ScorePart(NamedTuple):
    """Scores that stood one after another, as they are before they are joined with others."""

    arms: list[ArmPart]
    order: npt.NDArray[np.int32]
    """By row: the number of its arm in `arms`."""
    pieces: bytes


class PackedScores(ScoreTable[ScoreKey, Key]):
    """Some 60 bytes each, besides the bytes of its name. Nothing is looked up before all are added."""

    def __init__(self, pile: Pile | None = None) -> None:
        """`pile`: what is read here is joined with others elsewhere (`part`). Raises ParityError where no file can be
        made."""
        self._arms: dict[str, _OfArm] = {}
        self._order: list[_OfArm] = []
        self._arm, self._row = (Numbers("i", held=pile is not None) for _ in range(2))
        self._spill: Spill | Pile = pile or Spill()
        self._waiting: list[tuple[_OfArm, TopLogprobs]] = []

    def add(self, key: ScoreKey, top: TopLogprobs, line: int) -> None:
        """Raises ParityError where the disk is full."""
        arm = self._of_arm(key.arm)
        self._arm.append(arm.number)
        self._row.append(len(arm))
        arm.add(Key(*key[1:]), len(top), line)
        self._waiting.append((arm, top))
        if len(self._waiting) == _AT_ONCE:
            self._write()

    def part(self) -> ScorePart:
        """All that was added, to be joined with others: of one that has a `Pile`."""
        self.whole()
        assert isinstance(self._spill, Pile)
        arms = [
            ArmPart(
                name,
                arm.order,
                arm.lines.whole(),
                arm.sizes.whole(),
                arm.places.whole(),
            )
            for name, arm in self._arms.items()
        ]
        return ScorePart(arms, self._arm.whole(), bytes(self._spill.pieces))

    def join(self, part: ScorePart, line: int) -> None:
        """Add many; `line`: the one before the first line of the part. Raises ParityError where the disk is full."""
        self.whole()
        assert isinstance(self._spill, Spill)
        begin = self._spill.take(part.pieces)
        numbers = np.zeros(len(part.arms), dtype=np.int32)
        rows = np.zeros(len(part.order), dtype=np.int32)
        for number, one in enumerate(part.arms):
            arm = self._of_arm(one.arm)
            numbers[number] = arm.number
            rows[part.order == number] = len(arm) + np.arange(len(one.lines))
            arm.join(one, line, begin)
        self._arm.extend(numbers[part.order])
        self._row.extend(rows)

    def _of_arm(self, name: str) -> _OfArm:
        arm = self._arms.get(name)
        if arm is None:
            arm = self._arms[name] = _OfArm(len(self._order), self, held=isinstance(self._spill, Pile))
            self._order.append(arm)
        return arm

    def read(self, place: int) -> TopLogprobs:
        """What stands at a place in the file."""
        assert isinstance(self._spill, Spill)
        return _top(self._spill.read(place))

    def _write(self) -> None:
        tops = [top for _, top in self._waiting]
        for (arm, _), piece in zip(self._waiting, _pieces(tops), strict=True):
            arm.places.append(self._spill.append(piece))
        self._waiting.clear()

    def repeated(self) -> tuple[int, ScoreKey, int] | None:
        """(line, key, line where it stands first) of the first score that was there already."""
        found = []
        for name, arm in self._arms.items():
            if (twice := arm.order.repeated()) is not None:
                first, row = twice
                lines = arm.lines.data
                found.append((lines[row], ScoreKey(name, *arm.order[row]), lines[first]))
        return min(found, default=None)

    def whole(self) -> PackedScores:
        """All are added. Raises ParityError where the disk is full."""
        if self._waiting:
            self._write()
        return self

    def by_arm(self) -> Mapping[str, ArmScores[Key]]:
        return self._arms

    def shelf(self) -> Shelf:
        return Spill()

    def tops(self) -> Iterator[TopLogprobs]:
        return (self._order[arm].at(row) for arm, row in zip(self._arm.data, self._row.data, strict=True))

    def values(self) -> Any:
        """As a mapping has it, in one pass."""
        return _Values(self)

    def __getitem__(self, key: ScoreKey) -> TopLogprobs:
        return self._arms[key.arm][Key(*key[1:])]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, ScoreKey) and key.arm in self._arms and Key(*key[1:]) in self._arms[key.arm]

    def __iter__(self) -> Iterator[ScoreKey]:
        names = list(self._arms)
        for arm, row in zip(self._arm.data, self._row.data, strict=True):
            yield ScoreKey(names[arm], *self._order[arm].order[row])

    def __len__(self) -> int:
        return len(self._row)


class _Values:
    def __init__(self, of: PackedScores) -> None:
        self._of = of

    def __iter__(self) -> Iterator[TopLogprobs]:
        return self._of.tops()

    def __len__(self) -> int:
        return len(self._of)


class _OfArm(ArmScores[Key]):
    def __init__(self, number: int, whole: PackedScores, *, held: bool) -> None:
        self.number, self.order, self._whole = number, Keys(held=held), whole
        self.lines, self.places, self.sizes = (Numbers(kind, held=held) for kind in "qqi")

    def add(self, key: Key, length: int, line: int) -> None:
        self.order.append(key)
        self.lines.append(line)
        self.sizes.append(length)

    def join(self, part: ArmPart, line: int, begin: int) -> None:
        """Add many: `line` the one before the first, `begin` where their pieces begin."""
        self.order.extend(part.keys)
        self.lines.extend(part.lines + line)
        self.sizes.extend(part.lengths)
        self.places.extend(part.places + begin)

    def at(self, row: int) -> TopLogprobs:
        return self._whole.read(self.places.data[row])

    def row(self, key: object) -> int | None:
        return self.order.row(key)

    def key(self, row: int) -> Key:
        return self.order[row]

    def lengths(self) -> Iterator[tuple[Key, int]]:
        return zip(self.order, self.sizes.data, strict=True)

    def items(self) -> Any:
        """As a mapping has it, in one pass."""
        return ((key, self.at(row)) for row, key in enumerate(self.order))

    def __getitem__(self, key: Key) -> TopLogprobs:
        row = self.order.row(key)
        if row is None:
            raise KeyError(key)
        return self.at(row)

    def __contains__(self, key: object) -> bool:
        return self.order.row(key) is not None

    def __iter__(self) -> Iterator[Key]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.sizes)


def _pieces(tops: Sequence[TopLogprobs]) -> Iterator[bytes]:
    """Each as bytes; the numbers of all are packed at once."""
    ids = np.concatenate([top.ids.reshape(-1) for top in tops])
    if not ids.size or (ids.min() >= _INT32.min and ids.max() <= _INT32.max):
        ids = ids.astype(np.int32)
    whole = np.concatenate([top.values.reshape(-1) for top in tops])
    values = packed(np.where(np.isinf(whole), np.nan, whole))  # no opinion
    begin = 0
    for top in tops:
        part = slice(begin, begin := begin + top.ids.size)
        sums = None if top.logsumexp is None else top.logsumexp.tobytes()
        said = (top.ids.shape, ids.itemsize, ids[part].tobytes(), values.itemsize, values[part].tobytes(), sums)
        yield marshal.dumps(said, _VERSION)


def _top(piece: bytes) -> TopLogprobs:
    shape, narrow, ids, few, values, sums = marshal.loads(piece)  # our own, in a file that nobody else opens
    tokens: npt.NDArray[Any] = np.frombuffer(ids, dtype=np.int32 if narrow == 4 else np.int64).reshape(shape)
    numbers = unpacked(np.frombuffer(values, dtype=np.int32 if few == 4 else np.float64)).reshape(shape)
    return TopLogprobs(
        tokens.astype(np.int64), numbers, None if sums is None else np.frombuffer(sums, dtype=np.float64)
    )
