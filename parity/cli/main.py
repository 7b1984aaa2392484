"""The `parity` command. Subcommands are imported only when they are called: `parity --help` stays fast."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from parity._version import __version__
from parity.cli.output import DEBUG_VARIABLE, Stdout, say, show_crash, show_error
from parity.cli.speaking import LazyGroup, SpeakingContext, language_option, show_usage_error, speaking
from parity.errors import ExitCode, ParityError
from parity.messages import message

CRASHED = 70
"""EX_SOFTWARE of sysexits.h: a fault of parity itself, never mistaken for a verdict."""

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""

UNREAD = 141
"""128 + SIGPIPE, as shells report it: whoever read stdout has gone (`parity … | head`)."""

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("parity.cli.run:run", "Run the same prompts through every arm and compare them."),
    "demo": ("parity.cli.demo:demo", "Compare recorded runs that come with parity: no engine needed."),
    "compare": ("parity.cli.compare:compare", "Compare two capture files, or what a kit sent back."),
    "plan": ("parity.cli.plan:plan", "Write down what a run would do, without running it."),
    "worker": ("parity.cli.worker:worker", "Run one arm of a plan and write its capture."),
    "kit": ("parity.cli.kit:kit", "Write one file that runs on a machine with vLLM and without parity."),
    "capture": ("parity.cli.capture:capture", "Check capture files, and split large ones."),
    "table": ("parity.cli.table:table", "Show an experiment as a table: lengths, stop counts, speed, corruption."),
    "why": ("parity.cli.why:why", "Say under which conditions the faults of a recorded run happen."),
    "locate": ("parity.cli.locate:locate", "Name the first module that went wrong, with its token, step and row."),
    "profile": (
        "parity.cli.profile:profile",
        "Say whether an engine's modules round worse than another's, and where that begins.",
    ),
    "power": ("parity.cli.power:power", "Say how many requests show a fault of a given rate."),
    "runs": ("parity.cli.runs:runs", "List, show, check and delete stored runs."),
    "report": ("parity.cli.report:report", "Write a report on a finding or a run."),
    "repro": ("parity.cli.report:repro", "Write a Python file that shows a finding with vLLM alone."),
    "watch": ("parity.cli.watch:watch", "Probe servers again and again, and tell when what they say goes wrong."),
    "plot": (
        "parity.cli.plot:plot",
        "Draw a run: gaps, where completions part, lengths, acceptance by draft position.",
    ),
    "tui": ("parity.cli.tui:tui", "Go through the findings of stored runs: look, compare, decide."),
    "reduce": ("parity.cli.reduce:reduce", "Shrink a failing case: requests, prompts, outputs, sampling, settings."),
    "bisect": ("parity.cli.bisect:bisect", "Find the settings, or the engine version, that make a case fail."),
    "env": ("parity.cli.env:env", "Create, list and remove engine environments."),
    "doctor": (
        "parity.cli.env:doctor",
        "Say what this machine and the configured hosts can run, and what is missing.",
    ),
    "trust": ("parity.cli.trusting:trust", "Take programs, hosts and servers from the files of a directory."),
    "model": ("parity.cli.model:model", "Make small checkpoints, or find the one that comes with parity."),
}
"""Name: where the command is, and its short help (a test holds it equal to the command's own)."""


class Commands(LazyGroup):
    """A group that imports a subcommand when it is called, and turns every error into an exit code."""

    context_class = SpeakingContext

    def short_helps(self) -> dict[str, str]:
        return {name: text for name, (_, text) in COMMANDS.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name][0].split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return speaking(command)

    # A pipe that nobody reads is noticed here, before click does: it exits with 1, which is a verdict.
    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            leave_unread()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            leave_unread()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.short_helps().items()))

    def main(  # type: ignore[override]  # click's overloads tell apart a mode that is always off here
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        extra["standalone_mode"] = False
        try:
            refuse_odd_words(sys.argv[1:] if args is None else args)
            result = super().main(args=args, prog_name=prog_name or "parity", **extra)
        except ParityError as error:
            from parity.run.failures import Interrupted

            show_error(error)
            leave(INTERRUPTED if isinstance(error, Interrupted) else error.exit_code)
        except click.ClickException as error:
            show_usage_error(error)
            leave(ExitCode.USAGE)
        except (KeyboardInterrupt, click.Abort):
            say(message("cli.interrupted", "interrupted"))
            leave(INTERRUPTED)
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the last line of defence; a panic in Rust is no Exception
            if isinstance(error, OSError) and not _is_anywhere():
                show_error(_NOWHERE)
                leave(_NOWHERE.exit_code)
            show_crash(error)
            leave(CRASHED)
        leave(result if isinstance(result, int) else ExitCode.PASS)


_NOWHERE = ParityError(
    message("cli.nowhere", "the directory that this was started in is gone"),
    hint=message("cli.nowhere_hint", "go to another one: cd"),
)


def _is_anywhere() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def refuse_odd_words(words: Sequence[str]) -> None:
    """Raises ParityError for a word, or a working directory, that is not text in the encoding of this system.

    Captures, plans and the database hold text: what a path of other bytes had come to could be written into none of
    them, and not when the run is over.
    """
    try:
        here = os.getcwd()
    except OSError:  # it is gone; who needs it says so
        here = ""
    for word in (*words, here):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise ParityError(
                message("cli.odd_word", "{word!r} is not text: some of its bytes are no {encoding}", word=word,
                        encoding=sys.getfilesystemencoding()),
                hint=message("cli.odd_word_hint", "give the file or directory a name in that encoding: mv OLD NEW"),
            ) from None  # fmt: skip


def refuse_odd_home() -> None:
    """Raises ParityError for a data directory that cannot be looked at; one that is not there is made when needed.

    Nothing is kept there that a command could do without: where it cannot be read, no command knows what is trusted.
    """
    from parity.paths import default_database

    try:
        name = str(default_database())
        name.encode()
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ParityError(
            message("cli.odd_home", "the data directory cannot be used: {why}", why=why),
            hint=message("cli.odd_home_hint", "name another with PARITY_HOME=DIRECTORY"),
        ) from None


def leave(code: int) -> NoReturn:
    sys.exit(int(code))


def leave_unread() -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
    leave(UNREAD)


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 pass, 1 diverged, 2 usage or input error, 3 a backend failed, 4 inconclusive.",
)
@click.version_option(__version__, prog_name="parity")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
def cli(debug: bool) -> None:
    """Are two token streams the same, and if not, is it noise or a bug?

    The same prompts, batched, go through vLLM on several backends and with several engine settings
    (speculative decoding on and off, …); parity says where the outputs part, whether that is rounding
    noise or corruption, and which token it begins at.
    """
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"
    if not {"--help", "-h"} & {*sys.argv}:
        refuse_odd_home()


cli.params.append(language_option(hidden=False))


def entry() -> NoReturn:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding, lines = sys.stdout.encoding, sys.stdout.line_buffering
        # A locale without UTF-8 lacks characters, as stderr does.
        sys.stdout = Stdout(sys.stdout.detach(), encoding=encoding, errors="backslashreplace", line_buffering=lines)
        # What libraries ask for the size of the terminal, and write to.
        sys.__stdout__ = sys.stdout  # type: ignore[misc]
    cli.main()
