"""What goes wrong, in words a person can act on, and the exit codes of the command."""

from __future__ import annotations

from enum import IntEnum

from parity.messages import Message, as_message, verbatim


class ExitCode(IntEnum):
    """Exit codes of `parity`; CI scripts depend on them."""

    PASS = 0
    DIVERGED = 1
    USAGE = 2
    BACKEND_FAILED = 3
    INCONCLUSIVE = 4


class ParityError(Exception):
    """A mistake in the input or the usage: exit code 2, one message, one remedy, no traceback.

    `message` says what happened and where; `hint` says what to do about it. Plain strings are shown as they are in
    every language. `str(error)` is the message in English.
    """

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: Message | str, *, hint: Message | str | None = None) -> None:
        super().__init__(message)
        self.message: Message = as_message(message)
        self.hint: Message | None = None if hint is None else as_message(hint)


class BackendError(ParityError):
    """A backend could not be found, did not start, died, or broke the protocol: exit code 3."""

    exit_code = ExitCode.BACKEND_FAILED


def said_by(error: Exception) -> Message:
    """What an exception says: the message that it was raised with, else its own words."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, Message) else verbatim(str(error))
