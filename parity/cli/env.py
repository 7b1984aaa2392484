"""`parity env`: the environments that hold engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.cli.doctor import doctor
from parity.cli.output import console, emit, emit_json, say
from parity.cli.shared import json_option
from parity.errors import ParityError
from parity.language import render
from parity.messages import message

if TYPE_CHECKING:
    from parity.run import EnvSpec

__all__ = ["doctor", "env"]


@click.group()
def env() -> None:
    """Create, list and remove engine environments."""


@env.command()
@click.argument("name", default="cpu")
@click.option("--python", "python", type=click.Path(path_type=Path), help="Build from this Python.")
@click.option(
    "--extra-index-url",
    metavar="URL",
    help="A package index to ask beside the configured one. Default: $PARITY_EXTRA_INDEX_URL; where no index "
    "has the CPU build of torch, https://download.pytorch.org/whl/cpu is asked for it, once.",
)
@click.option("--version", metavar="VERSION", help="Another version of the engine, in an environment of its own.")
@click.option("--force", is_flag=True, help="Build it again even if it is there.")
def create(name: str, python: Path | None, extra_index_url: str | None, version: str | None, force: bool) -> None:
    """Build the engine environment NAME (a backend; default cpu). Prints the path of its Python."""
    from parity.run import EngineEnv

    if version is not None:
        name = f"{name.partition('@')[0]}@{version}"
    made = EngineEnv(_spec(name))
    built = made.create(say=say, python=python, extra_index_url=extra_index_url, force=force)
    if not built:
        say(
            message(
                "cli.environment_there_already",
                "environment {spec!r} is there already: {root}",
                spec=made.spec.name,
                root=str(made.root),
            )
        )
    if "@" in name:
        say(message("cli.use", "use it as `--backends {name}`", name=name))
    emit(str(made.python))


@env.command("list")
@json_option
def list_environments(as_json: bool) -> None:
    """List the engine environments on this machine."""
    from msgspec import to_builtins
    from rich.table import Table

    from parity.run import list_envs

    found = list_envs()
    if as_json:
        rows = [(root, {} if marker is None else to_builtins(marker)) for root, marker in found]
        emit_json([{"name": root.name, "path": root, "finished": bool(said), **said} for root, said in rows])
        return
    if not found:
        say(message("cli.no_engine_environments", "no engine environments: `parity env create cpu` builds one"))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in (
        message("env.environment", "environment"),
        message("env.versions", "versions"),
        message("env.place", "place"),
    ):
        table.add_column(render(column), overflow="fold")
    for root, marker in found:
        shown = (
            ", ".join(f"{key} {value}" for key, value in marker.versions.items())
            if marker
            else render(message("cli.unfinished", "unfinished"))
        )
        table.add_row(root.name, shown, str(root))
    console().print(table)


@env.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete the engine environment NAME."""
    from parity.run import EngineEnv, EnvSpec, list_envs

    names = [root.name for root, _ in list_envs()]
    if name not in names:
        raise ParityError(
            message("cli.there_no_environment", "there is no environment {name!r}", name=name),
            hint=message("cli.there", "there is {names}", names=names)
            if names
            else message("cli.there_none", "there are none"),
        )
    EngineEnv(EnvSpec(name, ("", ""), ())).remove(say)
    say(message("cli.removed_environment", "removed environment {name!r}", name=name))


def _spec(name: str) -> EnvSpec:
    from parity.run import load_backend

    spec = load_backend(name).env_spec()
    if spec is None:
        raise ParityError(
            message("cli.parity_not_build", "parity does not build environments for backend {name!r}", name=name),
            hint=message(
                "cli.install_vllm_there",
                "install vLLM there as its maker says, and set PARITY_{upper}_PYTHON to that Python",
                upper=name.upper(),
            ),
        )
    return spec
