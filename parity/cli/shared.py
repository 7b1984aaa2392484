"""Options that many commands have; those of a plan are in `options.py`, which loads all that plans are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from parity.cli.speaking import Refused
from parity.errors import said_by
from parity.messages import message

if TYPE_CHECKING:
    from parity.capture.remote import Place
    from parity.pipeline.directory import RunDirectory

F = TypeVar("F", bound=Callable[..., Any])


class Tolerance(click.ParamType[float | str]):
    """Nats, or "auto"."""

    name = "nats|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from parity.plan.types import parse_tolerance

        try:
            return parse_tolerance(value)
        except (TypeError, ValueError) as error:
            said = message("cli.not_a_value", "{value!r} {problem}", value=value, problem=said_by(error))
            raise Refused(said, param, ctx) from None


class CapturePlace(click.ParamType["Place"]):
    """A capture: a file, a directory of shards, or the URL of either."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        from parity.capture.remote import place_of

        place: Place = place_of(value)
        return place


class Names(click.ParamType[tuple[str, ...]]):
    """Names separated by commas."""

    name = "name,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        if not names:
            raise Refused(message("cli.names_nothing", "names nothing"), param, ctx)
        return tuple(dict.fromkeys(names))


def database_option(function: F) -> F:
    return click.option(
        "--db",
        type=click.Path(path_type=Path),
        help="Database to use. [default: parity.db in the data directory, see PARITY_HOME]",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout.")(function)


def tolerance_option(default: str | None = None) -> Callable[[F], F]:
    return click.option(
        "--tolerance",
        type=Tolerance(),
        default=default,
        help="How far below the reference's best token a token may lie and still count as justified, in "
        "nats, or auto to calibrate it from this run's own noise floor. [default: 0.25]",
    )


def checkout_option(function: F) -> F:
    """--vllm-ascend: taken at once, for whatever engine starts; `check_checkout` asks whether one will run it."""
    return click.option(
        "--vllm-ascend",
        "checkout",
        type=click.Path(path_type=Path),
        metavar="PATH",
        expose_value=False,
        callback=_take_checkout,
        help="Have ascend-emulated run this checkout of vllm-ascend instead of the release.",
    )(function)


def _take_checkout(ctx: click.Context, option: click.Parameter, path: Path | None) -> None:
    if path is not None:
        from parity.run.checkout import take_checkout

        take_checkout(path)


def check_checkout(backends: Iterable[str], directory: RunDirectory | None = None) -> None:
    """Raises ParityError where --vllm-ascend names what none of these backends would run, or where the run of this
    directory had a checkout and now there is none."""
    from parity.run.checkout import check_given, check_used

    if click.get_current_context().get_parameter_source("checkout") is ParameterSource.COMMANDLINE:
        check_used(backends)
    if directory is not None:
        check_given(directory.describe().checkout)
