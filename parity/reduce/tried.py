"""What was tried of a case, and what came of it."""

from __future__ import annotations

from msgspec import Struct

from parity.messages import Message, message
from parity.records import Json
from parity.reduce.oracle import Decision

FAILS = message("reduce.fails", "fails")
DOES_NOT_FAIL = message("reduce.does_not_fail", "does not fail")


def untried(why: Message) -> Message:
    return message("reduce.untried", "cannot be tried ({why})", why=why)


def shots_said(what: Message | str, answer: Message, decision: Decision) -> Message:
    return message(
        "reduce.shots",
        "{what}: {answer} ({failures} of {shots} shots)",
        what=what,
        answer=answer,
        failures=decision.failures,
        shots=decision.shots,
    )


class Step(Struct, frozen=True):
    """One thing that was tried."""

    what: str
    accepted: bool
    shots: int
    failures: int
    why: str = ""

    def to_json(self) -> dict[str, Json]:
        return {
            "tried": self.what,
            "accepted": self.accepted,
            "shots": self.shots,
            "failures": self.failures,
            **({"why": self.why} if self.why else {}),
        }
