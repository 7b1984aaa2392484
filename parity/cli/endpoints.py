"""Options for arms that are no engines of ours: servers that run already, and recordings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from parity.errors import ParityError
from parity.messages import message

if TYPE_CHECKING:
    from parity.pipeline.arms import OwnArm
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


class ForServer(click.ParamType[tuple[str, "Json"]]):
    """[NAME:]KEY=VALUE; `setting` reads KEY=VALUE. The name stays before the key."""

    name = "[name:]key=value"

    def __init__(self, setting: click.ParamType[Any]) -> None:
        self._setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        key, equals, _ = value.partition("=")
        name, colon, _ = key.rpartition(":")
        if not equals or not colon:
            return self._setting.convert(value, param, ctx)
        setting, given = self._setting.convert(value[len(name) + 1 :], param, ctx)
        return f"{name}:{setting}", given


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
            type=ForServer(setting),
            multiple=True,
            metavar="[NAME:]KEY=VALUE",
            help="A setting of every --server, or of the one called NAME: model, endpoint=chat, stream=true, "
            "concurrency, timeout, retries, api_key_env. Repeatable.",
        ),
        click.option(
            "--replay",
            "replays",
            type=Named("file"),
            multiple=True,
            metavar="[NAME=]CAPTURE",
            help="A recorded capture (a file, or a directory of its shards), or all of a run's directory, as an arm; "
            "prompts and sampling are the recording's unless given. Repeatable.",
        ),
        click.option(
            "--arbiter",
            metavar="BACKEND",
            help="A backend, e.g. transformers, that scores both sides where they differ and says which it supports.",
        ),
    ]


def own_arms(options: EndpointOptions) -> list[OwnArm]:
    """The arms that these options name, one by one. Raises ParityError for a name given twice."""
    from parity.capture.shards import has_index
    from parity.pipeline.arms import OwnArm

    if options.server_options and not options.servers:
        raise ParityError(
            message("cli.server_option_without", "--server-option without --server"),
            hint=message("cli.name_server_server", "name a server with --server URL"),
        )
    named = [(name or _host_name(url), url) for name, url in options.servers]
    settings = _by_server(options.server_options, [name for name, _ in named])
    arms = [OwnArm(SERVER, name, {**settings[name], "url": url}) for name, url in named]
    for name, path in options.replays:
        files = captures_in(Path(path)) if Path(path).is_dir() and not has_index(Path(path)) else [path]
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


def _by_server(given: Sequence[tuple[str, Json]], names: Sequence[str]) -> dict[str, dict[str, Json]]:
    """The settings of each server: those of all, and its own, which win. Raises ParityError for an unknown name."""
    found: dict[str, dict[str, Json]] = {name: {} for name in names}
    for key, value in sorted(given, key=lambda one: ":" in one[0]):
        name, colon, setting = key.rpartition(":")
        if colon and name not in found:
            near = get_close_matches(name, names, n=1)
            raise ParityError(
                message(
                    "cli.no_such_server", "no --server is called {name!r} (--server-option {key})", name=name, key=key
                ),
                hint=message("usage.meant", "did you mean {name}?", name=near[0])
                if near
                else message("cli.servers_are_called", "they are called {names}", names=list(names)),
            )
        for one in [name] if colon else names:
            found[one] = {**found[one], setting: value}
    return found


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
