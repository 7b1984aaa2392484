"""Write docs/command-line.md from what the commands say of themselves.

    python tools/make_cli_docs.py            write it
    python tools/make_cli_docs.py --check    exit code 1 where the file is not current

tests/test_docs.py holds the file current and every command and option to having help.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from parity.cli.main import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "command-line.md"

INTRODUCTION = """\
# The command line

<!-- Written by tools/make_cli_docs.py from the commands' own help; change it there. -->

What every command keeps to:

- **stdout is data, stderr is talk.** What a command reports goes to stdout; progress, warnings and errors go to
  stderr. `--json` writes one JSON document to stdout.
- **Exit codes** are in [reading a verdict](reading-a-verdict.md#exit-codes).
- **A mistake gets one message and a hint**, never a traceback.
- **`--db PATH`** names the database. Without it: `parity.db` in the [data directory](store.md#where-it-is).
"""


def walk(
    command: click.Command, path: tuple[str, ...] = ("parity",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its path of names, a group before what it holds."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from walk(found, (*path, name))


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a help text, each on one line."""
    return [" ".join(block.split()) for block in inspect.cleandoc(text).split("\n\n") if block.strip()]


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def section(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    parent: click.Context | None = None
    for name in path[:-1]:
        parent = click.Context(click.Command(name), info_name=name, parent=parent)
    context = click.Context(command, info_name=path[-1], parent=parent)
    yield f"## `{' '.join(path)}`"
    yield from paragraphs(command.help or "")
    pieces = " ".join([*path, *command.collect_usage_pieces(context)])
    yield f"```\n{pieces}\n```"
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    rows = [record for option in options if (record := option.get_help_record(context)) is not None]
    if rows:
        table = ["| option | meaning |", "|---|---|"]
        table += [f"| `{cell(left)}` | {cell(right)} |" for left, right in rows]
        yield "\n".join(table)
    if isinstance(command, click.Group):
        table = ["| command | |", "|---|---|"]
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            table.append(
                f"| [`{' '.join((*path, name))}`](#{'-'.join((*path, name))}) | {found.get_short_help_str(200)} |"
            )
        yield "\n".join(table)


def page() -> str:
    """The whole page."""
    blocks = [INTRODUCTION.rstrip()]
    for path, command in walk(cli):
        blocks += section(path, command)
    return "\n\n".join(blocks) + "\n"


def main(arguments: list[str]) -> int:
    text = page()
    if "--check" in arguments:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != text:
            print(f"{PAGE} is not current: run python tools/make_cli_docs.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
