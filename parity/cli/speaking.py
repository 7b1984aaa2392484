"""Help and click's own messages in the language in use."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import click

from parity import language
from parity.cli.output import say
from parity.language import t
from parity.text import cell_width, wrap

TERM_COLUMNS = 30
"""At most so wide is the first column of a definition list, as in click."""


class Formatter(click.HelpFormatter):
    """Click's, with everything translated, and lines broken by columns rather than by characters."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix if prefix is not None else t("Usage:") + " ")

    def write_heading(self, heading: str) -> None:
        super().write_heading(t(heading))

    def write_text(self, text: str) -> None:
        if language.current() == "en":
            super().write_text(text)
            return
        indent = " " * self.current_indent
        paragraphs = [t(paragraph) for paragraph in paragraphs_of(text)]
        self.write(
            "\n\n".join("\n".join(wrap(one, self.width, first=indent, other=indent)) for one in paragraphs) + "\n"
        )

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = TERM_COLUMNS, col_spacing: int = 2) -> None:
        if language.current() == "en":
            super().write_dl(rows, col_max, col_spacing)
            return
        rows = list(rows)
        first = min(max((cell_width(term) for term, _ in rows), default=0), col_max) + col_spacing
        margin = " " * self.current_indent
        for term, text in rows:
            lines = wrap(option_help(text), max(self.width - first - 2, 10))
            fits = cell_width(term) <= first - col_spacing
            head = margin + term + (" " * (first - cell_width(term)) + lines.pop(0) if fits and lines else "")
            self.write("\n".join([head.rstrip(), *(margin + " " * first + line for line in lines)]) + "\n")


def paragraphs_of(text: str) -> list[str]:
    """Paragraphs as single lines, as they stand in the catalogue."""
    return [" ".join(one.split()) for one in re.split(r"\n\s*\n", text.replace("\b", "")) if one.strip()]


def option_help(text: str) -> str:
    """The help of an option or a command, and what click puts behind it in brackets."""
    said, bracket, extras = " ".join(text.split(" ")).partition("  [")
    if not bracket:
        return t(" ".join(said.split()))
    shown = "; ".join(t(extra) for extra in extras.removesuffix("]").split("; "))
    return f"{t(' '.join(said.split()))}  [{shown}]"


def _choose(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        language.use(value)


def language_option(*, hidden: bool) -> click.Option:
    """`--lang`, read before all others so that their help and their errors are in that language already."""
    return click.Option(
        ["--lang"],
        type=click.Choice(language.LANGUAGES),
        is_eager=True,
        expose_value=False,
        hidden=hidden,
        callback=_choose,
        help=f"Language of help, messages and reports. [default: {language.VARIABLE}, else the locale's]",
    )


def speaking(command: click.Command) -> click.Command:
    """The command with `--lang`, and its subcommands with it."""
    if not any("--lang" in param.opts for param in command.params):
        command.params.append(language_option(hidden=True))
        for one in command.commands.values() if isinstance(command, click.Group) else ():
            speaking(one)
    return command


def show_usage_error(error: click.ClickException) -> None:
    """What click says of a mistake, translated line by line."""
    text = io.StringIO()
    error.show(file=text)
    for line in text.getvalue().rstrip("\n").split("\n"):
        say(line)
