"""`parity trust`: whose files may say what runs."""

from __future__ import annotations

from pathlib import Path

import click

from parity.cli.output import emit, emit_json, say
from parity.cli.shared import json_option
from parity.errors import ParityError
from parity.messages import message
from parity.text import visible


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--forget", is_flag=True, help="Trust it no longer.")
@json_option
def trust(path: Path | None, forget: bool, as_json: bool) -> None:
    """Take programs, hosts and servers from the files of a directory.

    A parity.toml, a plan or a run directory of somebody else may name commands, interpreters, servers and keys. parity
    takes them only from a directory that was named here, with all below it, or from a file as it is now (PATH). What
    parity itself wrote on this machine is taken anyway, and so is a file named with --config. Without PATH: what is
    trusted.
    """
    from parity import trust as trusting

    if path is None:
        found = trusting.entries()
        if as_json:
            emit_json([{"path": str(one.path), "digest": one.digest} for one in found])
        for one in () if as_json else found:
            emit(visible(str(one.path)))
        return
    if forget:
        if not trusting.forget(path):
            raise ParityError(
                message("trust.was_not", "{path} was not trusted", path=str(path)),
                hint=message("trust.lists", "`parity trust` lists what is"),
            )
        say(message("trust.no_longer", "{path} is trusted no longer", path=str(path.resolve())))
        return
    if not path.exists():
        raise ParityError(
            message("trust.nothing_there", "there is no {path}", path=str(path)),
            hint=message("trust.name_directory", "name a directory, or a file"),
        )
    entry = trusting.trust(path)
    what = message("trust.as_it_is", "as it is now") if entry.digest else message("trust.all_below", "and all below it")
    say(message("trust.trusted", "trusted: {path}, {what}", path=str(entry.path), what=what))
