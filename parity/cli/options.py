"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from parity.cli.config import HostOptions, host_options
from parity.cli.endpoints import EndpointOptions, endpoint_options
from parity.cli.gathering import gathered, gathered_by
from parity.cli.hunting import HUNT_OPTIONS, HuntOptions
from parity.cli.sampling import sampling_of, sampling_options
from parity.cli.shared import F, Names, tolerance_option
from parity.cli.speaking import OneOf, Refused
from parity.messages import message
from parity.plan.parts import SCORE_MODES
from parity.plan.types import SKETCHED
from parity.records import Json
from parity.records.recording import ALL, RING
from parity.records.sampling import Sampling, asked


class Setting(click.ParamType[tuple[str, Json]]):
    """KEY=VALUE, the value in JSON or else taken as text."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        key, found, text = value.partition("=")
        if not found or not key.isidentifier():
            raise Refused(message("cli.not_key_value", "{value!r} is not KEY=VALUE", value=value), param, ctx)
        parsed: Json
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = text
        return key, parsed


class Kept(OneOf):
    """Which steps are kept: "ring", or all of them (True); a file may also say true and false."""

    def __init__(self) -> None:
        super().__init__([ALL, RING])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, bool):
            return value
        return RING if super().convert(value, param, ctx) == RING else True


def _options() -> list[Callable[[Any], Any]]:
    return [*_BEFORE, *sampling_options(), *_AFTER]


_BEFORE: list[Callable[[Any], Any]] = [
    click.option(
        "--backends",
        type=Names(),
        default="cpu",
        show_default=True,
        help="Backends, such as cpu or cuda,ascend.",
    ),
    click.option(
        "--variants",
        type=Names(),
        default="base,mtp",
        show_default=True,
        help="Variants run on each backend.",
    ),
    click.option("--baseline", help="The arm the others are compared with. [default: first backend's base]"),
    click.option("--model", type=click.Path(path_type=Path), help="Checkpoint directory. [default: the backend's]"),
    click.option(
        "--prompts",
        type=click.Path(path_type=Path),
        help="Text (a prompt a line), JSONL file, or a capture: what it was asked.",
    ),
    click.option("--suite", help="Built-in prompts: smoke or mixed. [default: mixed]"),
    click.option(
        "--num-speculative-tokens",
        "-k",
        type=click.IntRange(min=1),
        default=2,
        show_default=True,
        help="Draft tokens per step in mtp.",
    ),
]
_AFTER: list[Callable[[Any], Any]] = [
    click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Repeat the batch."),
    click.option(
        "--score",
        type=OneOf(SCORE_MODES),
        default="all",
        show_default=True,
        help="Which candidate completions the baseline scores.",
    ),
    click.option(
        "--score-top",
        type=click.IntRange(1, 1000),
        help="Tokens that its list holds at each place. "
        "[default: 5, or 20 under penalties, cut-offs, bans and grammars]",
    ),
    tolerance_option(),
    click.option("--max-num-seqs", type=click.IntRange(min=1), help="Maximum number of requests in a batch."),
    click.option("--max-num-batched-tokens", type=click.IntRange(min=1), help="Most tokens in a step."),
    click.option(
        "--max-model-len", type=click.IntRange(min=1), help="Longest prompt plus output. [default: as needed]"
    ),
    click.option(
        "--positive-control",
        "positive_controls",
        multiple=True,
        metavar="FAULT[:rate=R]",
        help="Also run the last variant with this fault planted in its engine: shows that this run would have "
        "caught it. Repeatable; docs/fault-lab.md has the names.",
    ),
    click.option(
        "--engine",
        type=Setting(),
        multiple=True,
        help="Any other vllm.LLM argument, for every arm. Repeatable.",
    ),
    click.option(
        "--record",
        is_flag=False,
        flag_value=ALL,
        default=False,
        type=Kept(),
        help="Record every engine step beside the captures, and check the engine's bookkeeping; docs/steps.md. "
        "With `ring` only the steps around violations and the last ones are kept, however long the run.",
    ),
    click.option(
        "--sketch",
        is_flag=False,
        flag_value=SKETCHED[-1],
        type=OneOf(SKETCHED),
        help="Sketch the activations of decoder layers (layers) or of their parts too (parts, where nothing is "
        "said), and set each token against the baseline engine's own prefill; docs/sketches.md.",
    ),
    *HUNT_OPTIONS,
    *endpoint_options(Setting()),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Values of the options that make a plan."""

    backends: tuple[str, ...]
    variants: tuple[str, ...]
    baseline: str | None
    model: Path | None
    prompts: Path | None
    suite: str | None
    num_speculative_tokens: int
    sampling: Sampling
    rounds: int
    score: str
    score_top: int | None
    tolerance: float | str | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_model_len: int | None
    positive_controls: tuple[str, ...]
    engine: tuple[tuple[str, Json], ...]
    record: bool | str
    sketch: str | None
    hunt: HuntOptions
    endpoints: EndpointOptions
    where: HostOptions


def plan_options(function: F) -> F:
    """The options that make a plan; the function gets them as `options`, `PlanOptions`."""
    function = host_options(gathered(function, "options", PlanOptions))
    function = gathered(function, "endpoints", EndpointOptions)
    function = gathered(function, "hunt", HuntOptions)
    function = gathered_by(function, "sampling", sampling_of, [row.name for row in asked()])
    for option in reversed(_options()):
        function = option(function)
    return function
