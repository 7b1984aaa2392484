"""A next command: words after `parity`, for which arms, and what they would decide."""

from __future__ import annotations

import shlex

from msgspec import Struct

from parity.messages import Message
from parity.records import Json
from parity.records.next_steps import NextStep
from parity.view.arm import ArmView


class NextCommand(Struct, frozen=True):
    """A command that would decide something, as words after `parity`; none where no command can."""

    step: NextStep
    arms: tuple[str, ...]
    """The candidates that it would decide."""
    what: Message
    """What it does."""
    words: tuple[str, ...] = ()
    remark: Message | None = None
    """What its reader must know before it is run, or do where there is no command."""

    @property
    def text(self) -> str:
        """The command line, quoted for a shell; "" where there is none."""
        return shlex.join(["parity", *self.words]) if self.words else ""

    def to_json(self) -> dict[str, Json]:
        return {
            "step": str(self.step.step),
            "settles": self.step.settles,
            "arms": list(self.arms),
            "what": str(self.what),
            "command": self.text or None,
            "remark": None if self.remark is None else str(self.remark),
            "message": self.what.to_json(),
        }


def made(
    step: NextStep, arm: ArmView, what: Message, words: tuple[str, ...] | None, remark: Message | None = None
) -> NextCommand | None:
    """Of words that may not be there."""
    return None if words is None else NextCommand(step, (arm.name,), what, words, remark)
