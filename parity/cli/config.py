"""Options that say where engines run, and the configuration file that says it once and for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import structs

from parity.cli.gathering import gathered
from parity.cli.output import say
from parity.cli.speaking import Refused
from parity.errors import ParityError
from parity.messages import message
from parity.plan.config import Config, find_config
from parity.plan.hosts import Host, restored, with_flags
from parity.plan.trusting import take_config
from parity.records import Json

if TYPE_CHECKING:
    from parity.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])

_KEY = "parity.config"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """Values of the options that say where engines run; pairs are of a backend's name and what it was given."""

    config: Path | None = None
    host: tuple[tuple[str, str], ...] = ()
    python: tuple[tuple[str, str], ...] = ()
    model_path: tuple[tuple[str, str], ...] = ()


OPTIONS = tuple(each.name for each in fields(HostOptions))
"""Names of these; a plan that is written down already may still run on other hosts."""


class Named(click.ParamType[tuple[str, str]]):
    """BACKEND=VALUE."""

    name = "backend=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        name, found, text = value.partition("=")
        if not found or not name:
            raise Refused(message("cli.not_backend_value", "{value!r} is not BACKEND=VALUE", value=value), param, ctx)
        return name, text


def _found(path: Path | None) -> Config:
    """The file named, which is the user's word, or the one that lies here, which may be anybody's."""
    config = find_config(path)
    return config if path is not None or config.source is None else take_config(config, say)


def _load(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Before any other option is looked at: the file's [plan] gives their defaults."""
    config = _found(value)
    ctx.meta[_KEY] = config
    # A command that makes a plan; the argument of `parity doctor` has the same name.
    if any(each.name == "backends" and isinstance(each, click.Option) for each in ctx.command.params):
        ctx.default_map = {**(ctx.default_map or {}), **_defaults(ctx.command, config)}
    return value


def _defaults(command: click.Command, config: Config) -> dict[str, Any]:
    """Values of [plan] by parameter. Raises ParityError for a name that no option has."""
    options: dict[str, click.Option] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in (*OPTIONS, "plan_file", "resume", "out"):
            for spelling in (parameter.name, *parameter.opts):
                options[(spelling or "").lstrip("-").replace("_", "-")] = parameter
    out: dict[str, Any] = {}
    for name, value in config.plan.items():
        option = options.get(name.replace("_", "-"))
        if option is None:
            known = sorted({str(each.opts[-1]).lstrip("-") for each in options.values()})
            raise ParityError(
                message(
                    "cli.plan_no_setting", "{source}: [plan] has no setting {name!r}", source=config.source, name=name
                ),
                hint=message("cli.takes_options_make", "it takes the options that make a plan: {known}", known=known),
            )
        assert option.name is not None
        out[option.name] = _value(value, option)
    return out


def _value(value: Json, option: click.Option) -> Any:
    """As the option would get it on the command line."""
    if option.multiple:
        if isinstance(value, dict):
            return [f"{name}={_text(item)}" for name, item in value.items()]
        return [_text(item) for item in value] if isinstance(value, list) else [_text(value)]
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return value if isinstance(value, bool) else _text(value)


def _text(value: Json) -> str:
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def config_option(function: F) -> F:
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        is_eager=True,
        callback=_load,
        help="Configuration: hosts of backends, defaults of options. [default: parity.toml here, if there is one]",
    )(function)


def host_options(function: F) -> F:
    """--config, --host, --python, --model-path; the function gets them as `where`."""
    function = gathered(function, "where", HostOptions)
    for option in (
        click.option(
            "--model-path",
            type=Named(),
            multiple=True,
            help="Where the checkpoint is on that backend's host, if elsewhere than here. Repeatable.",
        ),
        click.option(
            "--python",
            type=Named(),
            multiple=True,
            help="The interpreter that has that backend's engine. Repeatable. [default: the adapter's; python3 "
            "behind --host]",
        ),
        click.option(
            "--host",
            type=Named(),
            multiple=True,
            help="Command prefix that reaches that backend's host: cuda='ssh gpu1', npu='docker exec -i NAME'. "
            "Repeatable; docs/hosts.md.",
        ),
        config_option,
    ):
        function = option(function)
    return function


def configuration(ctx: click.Context | None = None) -> Config:
    """What --config, or parity.toml, says."""
    found = (ctx or click.get_current_context()).meta.get(_KEY)
    return found if isinstance(found, Config) else _found(None)


def chosen_hosts(names: Sequence[str], where: HostOptions, known: Mapping[str, Host] | None = None) -> dict[str, Host]:
    """A host for each backend name, from the configuration (`known` wins over it) and the options.

    Raises ParityError for an option that names another backend.
    """
    configured, given = configuration().hosts, dict(where.host)
    written = {
        name: host if name in given else restored(host, configured.get(name)) for name, host in (known or {}).items()
    }
    return with_flags(
        {**configured, **written},
        names,
        command=dict(where.host),
        python=dict(where.python),
        model=dict(where.model_path),
    )


def hosts_of(plan: Plan, where: HostOptions, known: Mapping[str, Host] | None = None) -> dict[str, Host]:
    """Where the backends of a plan that is written down are: its own word on the adapter, ours on the rest."""
    from parity.pipeline.placing import hosts_of_plan

    hosts = chosen_hosts(hosts_of_plan(plan), where, known)
    adapters = {arm.name.partition("/")[0]: arm.backend for arm in plan.arms}
    return {name: structs.replace(host, adapter=adapters[name]) for name, host in hosts.items()}
