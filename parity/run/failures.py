"""What can go wrong while an arm runs, as errors of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from parity.errors import BackendError
from parity.messages import Message, heard, message, verbatim
from parity.run.adapters import starts_an_engine
from parity.run.messages import Failed
from parity.run.words import one_line


class Interrupted(BackendError):
    """Ctrl-C (or a stop from another thread): the worker has ended, what was captured is kept."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds.

    `start`: from spawning the worker until the engine is ready (a large model is read from a slow disk).
    `stall`: without any line from a working engine; workers report every half second while steps end.
    `heartbeat`: between two signs of life to a far worker, which ends itself after four that did not come.
    `grace`: for an orderly end before the process group is killed; the worker itself allows its engine 15.
    """

    start: float = 1800.0
    stall: float = 900.0
    grace: float = 20.0
    heartbeat: float = 15.0


class Doing(Enum):
    """What a worker is at, as its failure says it."""

    STARTING = message("run.starting", "starting the engine")
    GENERATING = message("run.generating", "generating")
    SCORING = message("run.scoring", "scoring")
    TRYING = message("run.trying", "trying a case")


ASKING = message("run.asking_first", "asking whether it answers")
"""What a worker without an engine does first."""


class Trouble(Enum):
    """How a worker can fail."""

    SILENT = message("run.silent", "{arm}: nothing from the worker for too long while {doing}")
    FRUITLESS = message(
        "run.fruitless", "{arm}: the worker talks and gives neither a completion nor a score while {doing}"
    )
    GONE = message("run.gone", "{arm}: the worker ended while {doing}")
    PROTOCOL = message("run.protocol", "{arm}: the worker broke the protocol while {doing}: {said}")
    ENGINE = message("run.engine_failed", "{arm}: the engine failed while {doing}: {said}")


def words_of(trouble: Trouble, arm: str, doing: Doing, said: Message | str = "") -> Message:
    """The trouble of an arm's worker, at what it was; one that starts no engine has none that could fail."""
    if trouble is Trouble.ENGINE and not starts_an_engine(arm.partition("/")[0]):
        where = ASKING if doing is Doing.STARTING else doing.value
        return message("run.answer_failed", "{arm}: failed while {doing}: {said}", arm=arm, doing=where, said=said)
    return replace(trouble.value, parameters={"arm": arm, "doing": doing.value, "said": said})


def engine_words(failed: Failed) -> Message:
    """What a worker said of its engine's failure, on one line."""
    said = heard(failed.said, one_line)
    if said is not None:
        return said
    # The message of a WorkerError says all there is to say.
    kind = "" if failed.type == "WorkerError" else f"{failed.type}: "
    return verbatim(one_line(f"{kind}{failed.message}"))


def memory_held(arm: str, seconds: float, said: str) -> Message:
    """An engine that did not start since another one had the memory of its devices; `said`: the line of its log."""
    return message(
        "run.memory_held",
        "{arm}: the memory of its devices was not free; waiting up to {seconds:.0f} s for it, then starting once more "
        "({said})",
        arm=arm,
        seconds=seconds,
        said=said,
    )
