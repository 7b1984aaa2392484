"""What goes wrong, in words a person can act on, and the exit codes of the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from os import PathLike

from parity.messages import Message, as_message, message, verbatim


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


@contextmanager
def reading(path: str | PathLike[str], hint: Message | None = None) -> Iterator[None]:
    """Inside, what the system refuses is a ParityError that names the path and why."""
    try:
        yield
    except OSError as error:
        raise cannot_read(path, error, hint) from error


@contextmanager
def writing(path: str | PathLike[str], hint: Message | None = None) -> Iterator[None]:
    """Inside, what the disk does not take is a ParityError that names the path and why."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error, hint) from error


def cannot_read(path: str | PathLike[str], error: OSError, hint: Message | None = None) -> ParityError:
    said = message("error.cannot_read", "cannot read {path}: {why}", path=str(error.filename or path), why=_why(error))
    return ParityError(said, hint=hint)


def cannot_write(path: str | PathLike[str], error: OSError, hint: Message | None = None) -> ParityError:
    said = message("error.cannot_write", "cannot write {path}: {why}", path=str(path), why=_why(error))
    return ParityError(said, hint=hint)


def _why(error: OSError) -> str:
    return error.strerror or str(error)
