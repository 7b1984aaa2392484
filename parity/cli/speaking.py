"""Help and usage errors in the language in use.

English help is click's own. In another language the same page is written from messages, whose ids are the place of a
text: `help.run` for what a command does, `help.run.max-tokens` for an option. What click itself says of a mistake is
put into messages by the class of its error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from parity import language
from parity.cli.output import say
from parity.language import render
from parity.messages import Message, as_message, literal, message
from parity.text import cell_width, wrap

TERM_COLUMNS = 30
"""At most so wide is the first column of a definition list, as in click."""

LONGEST_SHORT_HELP = 200

# --------------------------------------------------------------------------- texts of commands


def help_messages(root: click.Group) -> Iterator[Message]:
    """Every help text, for the catalogues."""
    context = click.Context(root)
    yield from _texts(root, "parity")
    yield from (text for one in root.get_params(context) if (text := option_help(one, "parity")) is not None)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        yield from _texts(command, name)


def _texts(command: click.Command, place: str) -> Iterator[Message]:
    yield from (text for text in (help_of(command, place), epilog_of(command, place)) if text is not None)
    yield short_help_of(command, place)
    yield from (text for one in command.params if (text := option_help(one, place)) is not None)
    for name, one in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _texts(one, f"{place}.{name}")


def help_of(command: click.Command, place: str) -> Message | None:
    return _paragraphs(f"help.{place}", inspect.cleandoc(command.help or ""))


def epilog_of(command: click.Command, place: str) -> Message | None:
    return _paragraphs(f"help.{place}.epilog", command.epilog or "")


def short_help_of(command: click.Command, place: str) -> Message:
    return Message(f"help.{place}.short", literal(command.get_short_help_str(LONGEST_SHORT_HELP)))


def option_help(parameter: click.Parameter, place: str) -> Message | None:
    """The help of an option; that of --help and --lang is the same in every command."""
    if not isinstance(parameter, click.Option) or not parameter.help or (parameter.hidden and place != "parity"):
        return None
    name = max(parameter.opts, key=len).lstrip("-")
    shared = name in ("help", "lang")
    return Message(f"help.{name}" if shared else f"help.{place}.{name}", literal(" ".join(parameter.help.split())))


def _paragraphs(id_: str, text: str) -> Message | None:
    """Paragraphs as single lines, an empty line between them."""
    said = [" ".join(one.split()) for one in re.split(r"\n\s*\n", text.replace("\b", "")) if one.strip()]
    return Message(id_, literal("\n\n".join(said))) if said else None


# --------------------------------------------------------------------------- pages


class Formatter(click.HelpFormatter):
    """Click's, with lines broken by columns rather than by characters in other languages than English."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix if prefix is not None else render(message("help.usage", "Usage:")) + " ")

    def write_text(self, text: str) -> None:
        if language.current() == "en":
            super().write_text(text)
            return
        indent = " " * self.current_indent
        broken = ["\n".join(wrap(one, self.width, first=indent, other=indent)) for one in text.split("\n\n")]
        self.write("\n\n".join(broken) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = TERM_COLUMNS, col_spacing: int = 2) -> None:
        if language.current() == "en":
            super().write_dl(rows, col_max, col_spacing)
            return
        rows = list(rows)
        first = min(max((cell_width(term) for term, _ in rows), default=0), col_max) + col_spacing
        margin = " " * self.current_indent
        for term, text in rows:
            lines = wrap(text, max(self.width - first - 2, 10))
            fits = cell_width(term) <= first - col_spacing
            head = margin + term + (" " * (first - cell_width(term)) + lines.pop(0) if fits and lines else "")
            self.write("\n".join([head.rstrip(), *(margin + " " * first + line for line in lines)]) + "\n")


class SpeakingContext(click.Context):
    """A context whose help page is in the language in use."""

    formatter_class = Formatter

    def get_help(self) -> str:
        if language.current() == "en":
            return super().get_help()
        formatter = self.make_formatter()
        _write_page(self, formatter)
        return formatter.getvalue().rstrip("\n")


def _write_page(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    command, place = ctx.command, ".".join(ctx.command_path.split()[1:]) or "parity"
    command.format_usage(ctx, formatter)
    _write_text(formatter, help_of(command, place))
    rows = [row for one in command.get_params(ctx) if (row := _row(one, place, ctx)) is not None]
    with formatter.section(render(message("help.options", "Options"))):
        formatter.write_dl(rows)
    if isinstance(command, click.Group):
        with formatter.section(render(message("help.commands", "Commands"))):
            formatter.write_dl([(name, render(text)) for name, text in _commands_of(command, ctx, place)])
    _write_text(formatter, epilog_of(command, place))


def _write_text(formatter: click.HelpFormatter, text: Message | None) -> None:
    if text is None:
        return
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(render(text))


class LazyGroup(click.Group):
    """A group that knows its subcommands before they are imported."""

    def short_helps(self) -> Mapping[str, str]:
        """The short help of each subcommand by its name."""
        raise NotImplementedError

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it; the names that are near are looked for among all commands, imported or not."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.short_helps(), ctx=ctx
            ) from None


def _commands_of(command: click.Group, ctx: click.Context, place: str) -> Iterator[tuple[str, Message]]:
    """Names of the subcommands, each with its short help."""
    if isinstance(command, LazyGroup):
        yield from (
            (name, Message(f"help.{name}.short", literal(text))) for name, text in command.short_helps().items()
        )
        return
    for name in command.list_commands(ctx):
        one = command.get_command(ctx, name)
        if one is not None and not one.hidden:
            yield name, short_help_of(one, f"{place}.{name}")


def _row(parameter: click.Parameter, place: str, ctx: click.Context) -> tuple[str, str] | None:
    """How an option is written, and what it is for: its help, and its default and the like in brackets."""
    record = parameter.get_help_record(ctx)
    if record is None or not isinstance(parameter, click.Option):
        return None
    text = option_help(parameter, place)
    known = parameter.get_help_extra(ctx)
    extras: list[str] = []
    if "default" in known:
        extras.append(render(message("help.default", "default: {value}", value=known["default"])))
    if "range" in known:
        extras.append(known["range"])
    if "required" in known:
        extras.append(render(message("help.required", "required")))
    return record[0], "  ".join([*([render(text)] if text else []), *([f"[{'; '.join(extras)}]"] if extras else [])])


# --------------------------------------------------------------------------- the language


def _choose(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        language.use(value)


def language_option(*, hidden: bool) -> click.Option:
    """`--lang`, read before all others so that their help and their errors are in that language already."""
    return click.Option(
        ["--lang"],
        type=OneOf(language.LANGUAGES),
        is_eager=True,
        expose_value=False,
        hidden=hidden,
        callback=_choose,
        help=f"Language of help, messages and reports. [default: {language.VARIABLE}, else the locale's]",
    )


def speaking(command: click.Command) -> click.Command:
    """The command with `--lang` and pages in every language, and its subcommands with them."""
    if command.context_class is not SpeakingContext:
        command.context_class = SpeakingContext
        command.params.append(language_option(hidden=True))
        for one in command.commands.values() if isinstance(command, click.Group) else ():
            speaking(one)
    return command


# --------------------------------------------------------------------------- mistakes


class OneOf(click.Choice[str]):
    """A choice that says so in the language in use."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            choices = [repr(one) for one in self.choices]
            said = message("usage.choice", "{value!r} is not one of {choices}.", value=str(value), choices=choices)
            raise Refused(said, param, ctx) from error


class Misused(click.UsageError):
    """Options that do not go together, or an argument that is missing: shown with the usage of the command."""

    def __init__(self, said: Message, ctx: click.Context | None = None) -> None:
        super().__init__(str(said), ctx)
        self.said = said


class Refused(click.BadParameter):
    """A value that an option does not take; click says which option it was."""

    def __init__(
        self,
        said: Message,
        param: click.Parameter | None = None,
        ctx: click.Context | None = None,
        *,
        option: str | None = None,
    ) -> None:
        super().__init__(str(said), ctx, param, option)
        self.said = said


def show_usage_error(error: click.ClickException) -> None:
    """The usage of the command, where to read more, and what was wrong."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message())
        return
    if ctx is not None:
        say(ctx.get_usage())
        option = max(ctx.command.get_help_option_names(ctx), key=len)
        say(message("usage.try", "Try '{command}' for help.", command=f"{ctx.command_path} {option}"))
        say()
    say(message("usage.error", "Error: {problem}", problem=problem_of(error)))


def problem_of(error: click.ClickException) -> Message:
    """What click found wrong; in click's own words where it keeps no more than those."""
    if isinstance(error, Misused):
        return error.said
    if isinstance(error, click.NoSuchOption):
        return _unknown(
            message("usage.no_option", "No such option '{name}'.", name=error.option_name), error.possibilities
        )
    if isinstance(error, click.exceptions.NoSuchCommand):
        return _unknown(
            message("usage.no_command", "No such command '{name}'.", name=error.command_name), error.possibilities
        )
    if not isinstance(error, click.BadParameter):
        return as_message(error.format_message())
    if error.param is None and not isinstance(error.param_hint, str):
        return as_message(error.format_message())
    name = error.param.get_error_hint(error.ctx) if error.param is not None else str(error.param_hint)
    if isinstance(error, click.MissingParameter):
        if isinstance(error.param, click.Argument):
            return message("usage.no_argument", "Missing argument {name}.", name=name)
        return message("usage.missing_option", "Missing option {name}.", name=name)
    said = error.said if isinstance(error, Refused) else as_message(error.message)
    return message("usage.value", "Invalid value for {name}: {problem}", name=name, problem=said)


def _unknown(said: Message, possibilities: list[str] | None) -> Message:
    if not possibilities:
        return said
    if len(possibilities) == 1:
        return message("usage.did_you_mean", "{problem} Did you mean {name}?", problem=said, name=possibilities[0])
    return message(
        "usage.did_you_mean_any", "{problem} (Did you mean one of: {names}?)", problem=said, names=possibilities
    )
