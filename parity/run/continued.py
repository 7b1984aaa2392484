"""Steps and sketches that an earlier attempt left beside a capture, looked at again before they are added to.

An earlier attempt may have had a worker that lies, and its file may have been changed since: what is kept of it must be
what a worker of this plan may send, in all that was kept together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

from parity.capture.lines import Report
from parity.errors import ParityError
from parity.messages import Message, message
from parity.run.messages import ProtocolError, unfit
from parity.run.resume import RefusedFile

T = TypeVar("T")


def kept_bytes(
    path: Path, lines: Callable[[Path, Report], Iterator[tuple[int, int, T]]], check: Callable[[T, int], None]
) -> int:
    """Bytes of a file up to the end of its last whole line; 0 where there is none.

    `lines` gives (line number, its bytes, what it says), `check` raises for a line that may not be there. Raises
    RefusedFile."""
    if not path.exists():
        return 0

    def refuse(number: int | None, why: Message) -> NoReturn:
        raise RefusedFile(
            path,
            message("run.damaged_beside", "{path}, line {number}: {why}", path=str(path), number=number or 0, why=why),
            hint=message("run.move_away", "move the file away and run the arm again"),
        )

    for number, size, line in lines(path, refuse):
        try:
            check(line, size)
        except (ParityError, OSError):
            raise
        except ProtocolError as error:
            refuse(number, error.said)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            refuse(number, unfit(error).said)
    return whole_lines(path)


def whole_lines(path: Path) -> int:
    """Bytes of a file up to the end of its last whole line."""
    end = 0
    with path.open("rb") as file:
        for line in file:
            end += len(line) if line.endswith(b"\n") else 0
    return end
