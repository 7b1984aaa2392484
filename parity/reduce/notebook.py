"""Every shot that was taken, on disk: an interrupted search reads it and goes on where it was.

A search is deterministic given its shots. So nothing but the shots is written down, one a line, and asking again what
was asked before costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import TracebackType

import msgspec

from parity.capture.checksum import Seals
from parity.errors import ParityError, cannot_read
from parity.messages import message
from parity.reduce.case import Case, CaseUnresolved, Setup, Shot, Unresolved
from parity.run.appending import Appender

SCHEMA = "parity.shots/1"


class Begun(msgspec.Struct, frozen=True, tag_field="record", tag="notebook"):
    schema: str = SCHEMA


class Taken(msgspec.Struct, frozen=True, tag_field="record", tag="shot"):
    """A shot at a case, in a setup: both by their digests."""

    setup: str
    case: str
    shot: Shot


class Started(msgspec.Struct, frozen=True, tag_field="record", tag="start"):
    """An engine started, which took so long."""

    seconds: float


Record = Begun | Taken | Started
_LINE: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def _line(record: Record) -> bytes:
    return msgspec.json.encode(record) + b"\n"


class Notebook:
    """The shots of a search, by setup and case, in the order in which they were taken."""

    def __init__(self, path: Path) -> None:
        """Reads what is there. Raises ParityError for a file that is no notebook, or that another process has."""
        self.path = path
        self._shots: dict[tuple[str, str], list[Shot]] = defaultdict(list)
        self._era: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._refused: dict[str, str] = {}
        self._ended: dict[tuple[str, str], str] = {}
        self._start_seconds = 0.0
        self.starts = 0
        """Engine starts."""
        end = self._read()
        self._file = Appender(path, keep_bytes=end)
        if not end:
            self._file.add(_line(Begun()))
        shots = sum(shot.seconds for shots in self._shots.values() for shot in shots)
        self.earlier_seconds = shots + self._start_seconds
        """What earlier attempts spent on their shots and on starting engines."""

    def _read(self) -> int:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise cannot_read(self.path, error) from error
        end, seals = 0, Seals()
        for number, line in enumerate(data.splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break  # an interrupted write
            try:
                wrong = seals.problem(line)
                if wrong is not None:
                    raise ValueError(str(wrong))
                self._take(_LINE.decode(line), number)
            except ValueError as error:
                raise ParityError(
                    message(
                        "reduce.not_a_shot",
                        "{path}, line {number}: not a record of shots ({said})",
                        path=str(self.path),
                        number=number,
                        said=str(error),
                    ),
                    hint=message("reduce.fresh", "--fresh starts over"),
                ) from error
            end += len(line)
        return end

    def _take(self, record: Record, number: int) -> None:
        if isinstance(record, Begun) != (number == 1) or (isinstance(record, Begun) and record.schema != SCHEMA):
            raise ValueError(f"a notebook begins with {SCHEMA}")
        if isinstance(record, Taken):
            key = record.setup, record.case
            self._shots[key].append(record.shot)
            self._era[key].append(self.starts)
        elif isinstance(record, Started):
            self.starts += 1
            self._start_seconds += record.seconds

    def of(self, case: Case, setup: Setup) -> list[Shot]:
        """Shots at this case taken so far. Raises Unresolved where the setup was refused, or this case of it."""
        key = setup.digest(), case.digest()
        if key[0] in self._refused:
            raise Unresolved(self._refused[key[0]])
        if key in self._ended:
            raise CaseUnresolved(self._ended[key])
        return self._shots[key]

    def add(self, case: Case, setup: Setup, shot: Shot) -> None:
        key = setup.digest(), case.digest()
        self._file.add(_line(Taken(*key, shot)))
        self._shots[key].append(shot)
        self._era[key].append(self.starts)

    def anew(self, case: Case, setup: Setup, first: int, number: int) -> bool:
        """Whether shot `number` may be one of the `first` shots once more.

        An engine that was started anew since may do the same again from its start on, its faults included. So as many
        shots of it as those were are not new.
        """
        era = self._era[setup.digest(), case.digest()]
        return first > 0 and era[number] != era[first - 1] and era[first:number].count(era[number]) < first

    def refuse(self, setup: Setup, why: str) -> None:
        """This setup cannot be tried: not asked again in this attempt. The next attempt may find it mended."""
        self._refused[setup.digest()] = why

    def ended(self, case: Case, setup: Setup, why: str) -> None:
        """This case cannot be tried on this setup: as `refuse`, for the one case."""
        self._ended[setup.digest(), case.digest()] = why

    def started(self, seconds: float) -> None:
        """An engine has started."""
        self._file.add(_line(Started(round(seconds, 3))))
        self.starts += 1

    @property
    def shots(self) -> int:
        return sum(len(shots) for shots in self._shots.values())

    @property
    def tokens(self) -> int:
        """Output tokens of all shots."""
        return sum(shot.tokens for shots in self._shots.values() for shot in shots)

    def __enter__(self) -> Notebook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
