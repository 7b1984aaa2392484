"""`parity capture`: looking at capture files."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.output import emit, emit_json
from parity.cli.shared import json_option
from parity.errors import ExitCode
from parity.language import render
from parity.messages import message
from parity.text import visible


@click.group()
def capture() -> None:
    """Check capture files."""


@capture.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def check(file: Path, as_json: bool) -> int:
    """List everything that is wrong with a capture file.

    Exit code 0 when nothing is, 2 otherwise. docs/capture.md describes the format.
    """
    from parity.capture import check_capture

    problems = check_capture(file)
    if as_json:
        emit_json(
            {
                "file": str(file),
                "valid": not problems,
                "problems": [{"line": problem.line, "message": str(problem.message)} for problem in problems],
            }
        )
    else:
        for problem in problems:
            emit(visible(render(problem.found_in(str(file)))))
        if not problems:
            emit(visible(render(message("cli.valid_capture", "{file}: a valid capture", file=str(file)))))
    return ExitCode.USAGE if problems else ExitCode.PASS
