"""The one place that writes to stdout (data) and stderr (talk)."""

from __future__ import annotations

import io
import os
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from parity._version import __version__
from parity.errors import ParityError
from parity.files import print_talk
from parity.language import render
from parity.messages import Message, message
from parity.text import in_escapes, visible

if TYPE_CHECKING:
    from rich.console import Console

    from parity.records import Json

DEBUG_VARIABLE = "PARITY_DEBUG"
MAX_TRACEBACK = 200_000
"""Characters of a traceback that are kept."""

NARROWEST = 80
"""Columns of a report that goes into a pipe or a file."""


def say(line: Message | str = "") -> None:
    """One line of talk on stderr, in the language in use; secrets of the command line are not said back."""
    from parity.secrecy import blanked, hidden_parts

    text = visible(blanked(render(line), hidden_parts(sys.argv[1:])), keep="\n\t")
    print_talk(text, sys.stderr)


def emit(text: str, *, document: bool = False) -> None:
    """Data on stdout. A `document` (JSON, a report) is UTF-8 in every locale: programs and browsers read it so."""
    text = text if text.endswith("\n") else text + "\n"
    if document and (sys.stdout.encoding or "").lower().replace("-", "") != "utf8" and hasattr(sys.stdout, "buffer"):
        sys.stdout.flush()
        with taken():
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()
    else:
        sys.stdout.write(text)
    sys.stdout.flush()


def emit_json(value: Json, *, on_one_line: bool = False) -> None:
    """One JSON document on stdout; NaN and infinities become null."""
    emit(_json_text(value, on_one_line=on_one_line), document=True)


def emit_long_json(value: Mapping[str, Json], name: str, rows: Iterable[Json]) -> None:
    """As `emit_json` writes `value` with `rows` in its field `name`, but never all of them in memory as text."""
    from parity.records.long_json import blocks

    for block in blocks(value, name, rows, _json_text):
        emit(block, document=True)


def _json_text(value: Json, *, on_one_line: bool = False) -> str:
    import orjson
    from msgspec import Struct, structs

    def plain(thing: object) -> Json:
        if isinstance(thing, Path):
            return str(thing)
        if isinstance(thing, Struct):
            return structs.asdict(thing)
        if hasattr(thing, "items"):
            return dict(thing.items())
        raise TypeError(f"cannot write a {type(thing).__name__} as JSON")

    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | (0 if on_one_line else orjson.OPT_INDENT_2)
    return in_escapes(orjson.dumps(value, option=options, default=plain).decode())


class Stdout(io.TextIOWrapper):
    """stdout, where a disk that is full, or a stream that is closed, is an error in words."""

    def write(self, text: str) -> int:
        with taken():
            return super().write(text)

    def flush(self) -> None:
        if not self.closed:
            with taken():
                super().flush()


@contextmanager
def taken() -> Iterator[None]:
    """Inside, what stdout does not take is a ParityError; one whose reader has gone stays a BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at exit
        why = error.strerror or str(error)
        raise ParityError(
            message("cli.stdout_fails", "cannot write to stdout: {why}", why=why),
            hint=message("cli.stdout_elsewhere", "send it to a file on a disk with room"),
        ) from error


def console() -> Console:
    """A rich console on stdout: the terminal's width there, 80 columns and no styles in a pipe."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would exit with 1, which is a verdict: cli/main.py knows what to do

    if sys.stdout.isatty():
        return Plain(file=sys.stdout, highlight=False, soft_wrap=False)
    width = os.environ.get("COLUMNS", "")
    return Plain(
        file=sys.stdout,
        highlight=False,
        width=int(width) if width.isdigit() and int(width) >= 40 else NARROWEST,
        no_color=True,
        force_terminal=False,
    )


def command_said() -> str:
    """This command line as it may be kept and reported."""
    from parity.secrecy import command_words

    return shlex.join(["parity", *command_words(sys.argv[1:])])


def versions_here() -> dict[str, str]:
    """What made a run."""
    import platform

    return {"parity": __version__, "python": platform.python_version()}


def show_error(error: ParityError) -> None:
    say(message("cli.error", "error: {what}", what=error.message))
    if error.hint is not None:
        say(message("cli.hint", "hint: {what}", what=error.hint))


def show_crash(error: BaseException) -> None:
    """A fault of parity itself: one line, the traceback in a file (or shown, with PARITY_DEBUG=1)."""
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error, file=sys.stderr)
        return
    from parity.secrecy import without_secrets

    kind = type(error).__name__
    said = str(without_secrets(str(error)))
    say(message("cli.crash", "error: parity failed unexpectedly: {kind}: {said}", kind=kind, said=said))
    try:
        path = str(_save_traceback(error))
        hint = message("cli.crash.saved", "the traceback is in {path}; please report it with that file", path=path)
    except OSError:
        hint = message(
            "cli.crash.unsaved",
            "run it again with {variable}=1 to see the traceback, and please report it",
            variable=DEBUG_VARIABLE,
        )
    say(message("cli.hint", "hint: {what}", what=hint))


def _save_traceback(error: BaseException) -> Path:
    import tempfile

    from parity.paths import data_dir
    from parity.secrecy import blanked, hidden_parts, without_secrets

    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    text = f"parity {__version__}, Python {sys.version}\n{command_said()}\n\n" + str(
        without_secrets(
            blanked("".join(traceback.format_exception(error)), hidden_parts(sys.argv[1:])), longest=MAX_TRACEBACK
        )
    )
    for directory in (data_dir(), Path(tempfile.gettempdir())):
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = directory / f"crash-{stamp}-{os.getpid()}.txt"
            path.write_text(text, encoding="utf-8")
        except OSError:
            continue
        return path
    raise OSError("nowhere to write")
