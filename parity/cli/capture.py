"""`parity capture`: looking at capture files."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.output import emit, emit_json, say
from parity.cli.shared import json_option
from parity.errors import ExitCode
from parity.language import render
from parity.messages import message
from parity.text import visible


@click.group()
def capture() -> None:
    """Check capture files, and split large ones."""


@capture.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def check(file: Path, as_json: bool) -> int:
    """List everything that is wrong with a capture file.

    Exit code 0 when nothing is, 2 otherwise. docs/capture.md describes the format.
    """
    from parity.capture import check_capture, read_capture
    from parity.capture.shards import files_of

    problems = [(each, problem) for each in files_of(file) for problem in check_capture(each)]
    if file.is_dir() and not problems:
        read_capture(file)  # what is wrong with all of them together is an error
    if as_json:
        emit_json(
            {
                "file": str(file),
                "valid": not problems,
                "problems": [
                    {"line": problem.line, "message": str(problem.message)}
                    | ({"file": str(each)} if file.is_dir() else {})
                    for each, problem in problems
                ],
            }
        )
    else:
        for each, problem in problems:
            emit(visible(render(problem.found_in(str(each)))))
        if not problems:
            emit(visible(render(message("cli.valid_capture", "{file}: a valid capture", file=str(file)))))
    return ExitCode.USAGE if problems else ExitCode.PASS


@capture.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", "folder", type=click.Path(path_type=Path), required=True, help="Directory to make of the shards."
)
@click.option(
    "--size", type=click.IntRange(min=1), default=256, show_default=True, metavar="MIB", help="Size of a shard, in MiB."
)
def split(file: Path, folder: Path, size: int) -> None:
    """Split a capture into a directory of shards.

    The directory is compared as the file is: `parity compare DIRECTORY …`. Each shard is a capture of a part of the
    completions; shards.json lists them in their order. Lines are copied as they are.
    """
    from parity.capture.split import split as write_shards

    names = write_shards(file, folder, size << 20)
    say(message("cli.split_into", "{folder}: {count} shards", folder=str(folder), count=len(names)))
