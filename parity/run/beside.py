"""Steps and sketches beside a capture: how much of them an arm may send, and what they must begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parity.capture.room import Room, sketches_room, steps_room
from parity.messages import message
from parity.plan import Plan
from parity.run.expected import Expected
from parity.run.messages import ProtocolError

LEAST_BYTES: Final = 32 << 20
LEAST_UNPACKED: Final = 128 << 20
STEPS_OF_TOKEN: Final = 32 << 10
"""Bytes for each token that an arm computes; engines that were recorded wrote some 200 and unpacked to 600."""
SKETCHES_OF_TOKEN: Final = 256 << 10
"""The same for each arm: a token in 4096 modules comes to 150 KB, in 500 to 18."""


LEAST_ROWS: Final = 1 << 14
ROWS_OF_TOKEN: Final = 16
"""A row-step computes a token at least; some are computed again, after a preemption or a rejected draft."""


@dataclass
class Allowance:
    """What an arm may send, in lines and in memory. Whoever reads its file has the same bounds, and wider ones."""

    room: Room
    of_tokens: int
    rows: int
    """Row-steps, or tokens of sketches, that are left."""

    def take(self, line: bytes, unpacked: int = 0, rows: int = 0) -> bytes:
        """The line. Raises ProtocolError, ValueError where it is too much."""
        self.room.take(len(line), unpacked)
        self.rows -= rows
        if self.rows < 0:
            raise ProtocolError(message("run.too_many_rows", "more steps or sketches than the plan has tokens"))
        if self.room.read > LEAST_BYTES + self.of_tokens or self.room.taken > LEAST_UNPACKED + self.of_tokens:
            size = (LEAST_BYTES + self.of_tokens) >> 20
            raise ProtocolError(
                message(
                    "run.beside_too_long", "more steps or sketches than the plan's tokens give: {size} MiB", size=size
                )
            )
        return line


def steps_allowed(plan: Plan) -> Allowance:
    return Allowance(
        steps_room().of_a_writer(), _tokens(plan) * STEPS_OF_TOKEN, LEAST_ROWS + _tokens(plan) * ROWS_OF_TOKEN
    )


def sketches_allowed(plan: Plan) -> Allowance:
    """Of the completions of one arm, or of all that are scored."""
    tokens = _tokens(plan) * len(plan.arms)
    return Allowance(sketches_room().of_a_writer(), tokens * SKETCHES_OF_TOKEN, LEAST_ROWS + tokens * ROWS_OF_TOKEN)


def _tokens(plan: Plan) -> int:
    return sum(Expected.of(plan, "").requests.values()) * plan.rounds * plan.sampling.n


def no_header() -> ProtocolError:
    return ProtocolError(message("run.beside_no_header", "steps or sketches before their header"))
