"""Options for arms that are no engines of ours: servers that run already, and recordings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from parity.errors import ParityError
from parity.messages import message

if TYPE_CHECKING:
    from parity.pipeline import OwnArm
    from parity.records import Json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_NOT_CAPTURES = ("scores", "arbiter")
SERVER, REPLAY = "server", "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """Values of these options; a name is None where only the URL or the capture was given."""

    servers: tuple[tuple[str | None, str], ...]
    server_options: tuple[tuple[str, Json], ...]
    replays: tuple[tuple[str | None, str], ...]
    arbiter: str | None


class Named(click.ParamType[tuple[str | None, str]]):
    """[NAME=]WHAT"""

    def __init__(self, what: str) -> None:
        self.name = f"[name=]{what}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        name, equals, rest = value.partition("=")
        if equals and _NAME.fullmatch(name):
            return name, rest
        return None, value


def endpoint_options(setting: click.ParamType[Any]) -> list[Callable[[Any], Any]]:
    """The options; `setting` is the type that reads KEY=VALUE."""
    return [
        click.option(
            "--server",
            "servers",
            type=Named("url"),
            multiple=True,
            metavar="[NAME=]URL",
            help="An OpenAI-compatible server that runs already, as an arm. Repeatable.",
        ),
        click.option(
            "--server-option",
            "server_options",
            type=setting,
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of every --server: model, endpoint=chat, stream=true, concurrency, timeout, retries, "
            "api_key_env. Repeatable.",
        ),
        click.option(
            "--replay",
            "replays",
            type=Named("file"),
            multiple=True,
            metavar="[NAME=]CAPTURE",
            help="A recorded capture, or all of a run's directory, as an arm; prompts and sampling are the "
            "recording's unless given. Repeatable.",
        ),
        click.option(
            "--arbiter",
            metavar="BACKEND",
            help="A backend, e.g. transformers, that scores both sides where they differ and says which it supports.",
        ),
    ]


def own_arms(options: EndpointOptions) -> list[OwnArm]:
    """The arms that these options name, one by one. Raises ParityError for a name given twice."""
    from parity.pipeline import OwnArm

    if options.server_options and not options.servers:
        raise ParityError(
            message("cli.server_option_without", "--server-option without --server"),
            hint=message("cli.name_server_server", "name a server with --server URL"),
        )
    settings = dict(options.server_options)
    arms = [OwnArm(SERVER, name or _host_name(url), {**settings, "url": url}) for name, url in options.servers]
    for name, path in options.replays:
        files = captures_in(Path(path)) if Path(path).is_dir() else [path]
        for file in files:
            variant = name if name and len(files) == 1 else "-".join(filter(None, (name, _file_name(file))))
            arms.append(OwnArm(REPLAY, variant, {"capture": file}))
    names = [arm.name for arm in arms]
    for name in names:
        if names.count(name) > 1:
            raise ParityError(
                message("cli.two_arms_called", "two arms are called {name}", name=name),
                hint=message("cli.name_them_apart", "name them apart: --server NAME=URL"),
            )
    return arms


def captures_in(directory: Path) -> list[str]:
    """The captures of a run directory, a baseline's before the others. Raises ParityError where there is none."""
    found = [
        str(path)
        for path in sorted(directory.iterdir())
        if path.name.endswith((".jsonl", ".jsonl.gz")) and not path.name.startswith(_NOT_CAPTURES)
    ]
    if not found:
        raise ParityError(
            message("cli.no_captures", "{directory} has no captures", directory=str(directory)),
            hint=message("cli.name_capture_file", "name a capture file, or the directory of a run"),
        )
    return found


def backends_of(given: Sequence[str], explicit: bool, arms: Sequence[OwnArm]) -> tuple[str, ...]:
    """The backends of a run: those asked for, and those of the arms named one by one.

    The default of --backends does not count where such arms are named and nothing was asked for.
    """
    engines = tuple(given) if explicit or not arms else ()
    return tuple(dict.fromkeys([*engines, *(arm.backend for arm in arms)]))


def _host_name(url: str) -> str:
    try:
        parts = urlsplit(url)
        name = f"{parts.hostname or ''}{'' if parts.port is None else f'-{parts.port}'}"
    except ValueError:
        name = ""
    return _clean(name) or SERVER


def _file_name(path: str) -> str:
    return _clean(path.rstrip("/").rpartition("/")[2].removesuffix(".gz").removesuffix(".jsonl")) or REPLAY


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-._+")
