"""Steps and sketches beside a capture: how long their files may get, and what they must begin with."""

from __future__ import annotations

from typing import Final

from parity.messages import message
from parity.plan import Plan
from parity.run.appending import Appender
from parity.run.expected import Expected
from parity.run.messages import ProtocolError

LEAST_BESIDE: Final = 1 << 30
BESIDE_OF_TOKEN: Final = 1 << 16
"""In bytes of a file: a token that is computed in 500 modules has 18 KB."""


def most_beside(plan: Plan) -> int:
    """Bytes that the steps or the sketches of an arm may come to."""
    tokens = sum(Expected.of(plan, "").requests.values()) * plan.rounds * plan.sampling.n
    return LEAST_BESIDE + BESIDE_OF_TOKEN * tokens * len(plan.arms)


def add_within(file: Appender, line: bytes, most: int) -> None:
    """Append a line to a file of so many bytes at most. Raises ProtocolError."""
    if file.end + len(line) > most:
        raise ProtocolError(
            message("run.beside_too_long", "more than {size} MiB of steps or sketches", size=most >> 20)
        )
    file.add(line)


def no_header() -> ProtocolError:
    return ProtocolError(message("run.beside_no_header", "steps or sketches before their header"))
