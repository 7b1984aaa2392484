"""Steps and sketches beside a capture: how much of them an arm may send, and what they must begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parity.capture.room import sketches_room, steps_room
from parity.capture.sketches import SketchesBlock, SketchesHeader, SketchesLine, unpacked_bytes
from parity.capture.steps import StepsBlock, StepsLine
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
class _Sent:
    """What an arm may send, by the tokens of its plan. Whoever reads its file has other bounds, by its bytes."""

    most: int
    """Bytes for its tokens, of lines and in memory."""
    rows: int
    """Row-steps, or tokens of sketches, that are left."""
    read: int = 0
    taken: int = 0

    def take(self, read: int, unpacked: int, rows: int) -> None:
        """Raises ProtocolError where it is too much."""
        self.read += read
        self.taken += unpacked
        self.rows -= rows
        if self.rows < 0:
            raise ProtocolError(message("run.too_many_rows", "more steps or sketches than the plan has tokens"))
        if self.read > LEAST_BYTES + self.most or self.taken > LEAST_UNPACKED + self.most:
            raise ProtocolError(
                message(
                    "run.beside_too_long",
                    "more steps or sketches than the plan's tokens give: {size} MiB",
                    size=(LEAST_BYTES + self.most) >> 20,
                )
            )


class StepsAllowed:
    """What an arm of a plan may send of steps."""

    def __init__(self, plan: Plan) -> None:
        tokens = _tokens(plan)
        self._sent = _Sent(tokens * STEPS_OF_TOKEN, LEAST_ROWS + tokens * ROWS_OF_TOKEN)
        self._room = steps_room().of_a_writer()

    def take(self, said: StepsLine, size: int) -> None:
        """A line of so many bytes. Raises ProtocolError, ValueError where it is too much."""
        numbers, rows, requests = (
            (said.numbers, said.rows, len(said.requests)) if isinstance(said, StepsBlock) else (0, 0, 0)
        )
        self._room.take(size, numbers, rows, requests)
        self._sent.take(size, 8 * numbers, rows)


class SketchesAllowed:
    """What an arm of a plan may send of sketches: of its completions, or of all that are scored."""

    def __init__(self, plan: Plan) -> None:
        tokens = _tokens(plan) * len(plan.arms)
        self._sent = _Sent(tokens * SKETCHES_OF_TOKEN, LEAST_ROWS + tokens * ROWS_OF_TOKEN)
        self._room = sketches_room().of_a_writer()

    def take(self, said: SketchesLine, header: SketchesHeader | None, size: int) -> None:
        """A line of so many bytes, after this header. Raises ProtocolError, ValueError where it is too much."""
        unpacked, tokens = (
            (unpacked_bytes(said, header), said.tokens)
            if isinstance(said, SketchesBlock) and header is not None
            else (0, 0)
        )
        self._room.take(size, unpacked)
        self._sent.take(size, unpacked, tokens)


def _tokens(plan: Plan) -> int:
    return sum(Expected.of(plan, "").requests.values()) * plan.rounds * plan.sampling.n


def no_header() -> ProtocolError:
    return ProtocolError(message("run.beside_no_header", "steps or sketches before their header"))
