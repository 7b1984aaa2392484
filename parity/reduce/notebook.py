"""Every shot that was taken, on disk: an interrupted search reads it and goes on where it was.

A search is deterministic given its shots. So nothing but the shots is written down, one a line, and asking again what
was asked before costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import TracebackType

import orjson

from parity.errors import ParityError
from parity.reduce.case import Case, Setup, Shot, Unresolved
from parity.run.resume import Appender

SCHEMA = "parity.shots/1"


class Notebook:
    """The shots of a search, by setup and case, in the order in which they were taken."""

    def __init__(self, path: Path) -> None:
        """Reads what is there. Raises ParityError for a file that is no notebook, or that another process has."""
        self.path = path
        self._shots: dict[tuple[str, str], list[Shot]] = defaultdict(list)
        self._era: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._refused: dict[str, str] = {}
        self._start_seconds = 0.0
        self.starts = 0
        """Engine starts."""
        end = self._read()
        self._file = Appender(path, keep_bytes=end)
        if not end:
            self._file.add({"record": "notebook", "schema": SCHEMA})
        shots = sum(shot.seconds for shots in self._shots.values() for shot in shots)
        self.earlier_seconds = shots + self._start_seconds
        """What earlier attempts spent on their shots and on starting engines."""

    def _read(self) -> int:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise ParityError(f"cannot read {self.path}: {error.strerror}") from error
        end = 0
        for number, line in enumerate(data.splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break  # an interrupted write
            try:
                self._take(orjson.loads(line), number)
            except (ValueError, KeyError, TypeError) as error:
                raise ParityError(
                    f"{self.path}, line {number}: not a record of shots ({error})", hint="--fresh starts over"
                ) from error
            end += len(line)
        return end

    def _take(self, record: dict[str, object], number: int) -> None:
        kind = record["record"]
        if number == 1:
            if kind != "notebook" or record["schema"] != SCHEMA:
                raise ValueError(f"schema {record.get('schema')!r}")
        elif kind == "shot":
            key = str(record["setup"]), str(record["case"])
            self._shots[key].append(Shot.from_json(record["shot"]))  # type: ignore[arg-type]
            self._era[key].append(self.starts)
        elif kind == "start":
            self.starts += 1
            self._start_seconds += float(record["seconds"])  # type: ignore[arg-type]
        else:
            raise ValueError(f"unknown record {kind!r}")

    def of(self, case: Case, setup: Setup) -> list[Shot]:
        """Shots at this case taken so far. Raises Unresolved where the setup was refused."""
        key = setup.digest()
        if key in self._refused:
            raise Unresolved(self._refused[key])
        return self._shots[key, case.digest()]

    def add(self, case: Case, setup: Setup, shot: Shot) -> None:
        key = setup.digest(), case.digest()
        self._file.add({"record": "shot", "setup": key[0], "case": key[1], "shot": shot.to_json()})
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

    def started(self, seconds: float) -> None:
        """An engine has started."""
        self._file.add({"record": "start", "seconds": round(seconds, 3)})
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
