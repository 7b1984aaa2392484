"""`parity tui`: the terminal interface."""

from __future__ import annotations

import shlex
import sys
from importlib import import_module
from pathlib import Path

import click

from parity.cli.options import database_option
from parity.errors import ParityError


@click.command()
@click.argument("run", required=False)
@database_option
@click.option("--web", is_flag=True, help="Serve it to a browser on this machine (needs textual-serve).")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Port for --web.")
def tui(run: str | None, db: Path | None, web: bool, port: int) -> None:
    """Go through the findings of stored runs: look, compare, decide. RUN is opened at once."""
    if web:
        _serve(run, db, port)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ParityError(
            "the interface needs a terminal, and this is none",
            hint="`parity runs show` prints a run, `parity runs show --json` all of it",
        )
    from parity.tui.app import ParityApp

    ParityApp(db, run).run()


def _serve(run: str | None, db: Path | None, port: int) -> None:
    try:
        server = import_module("textual_serve.server")
    except ImportError as error:
        raise ParityError(
            "--web needs the package textual-serve, which is not installed here",
            hint=f"{Path(sys.executable).name} -m pip install textual-serve",
        ) from error
    command = [sys.executable, "-m", "parity", "tui", *([run] if run else []), *(["--db", str(db)] if db else [])]
    server.Server(shlex.join(command), host="localhost", port=port, title="parity").serve()
