"""Options of the hunt for rare faults: axes of settings, samples, churn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from parity.cli.speaking import OneOf, Refused
from parity.errors import said_by
from parity.messages import Message, joined, message
from parity.plan.churn import ChurnRequest
from parity.plan.matrix import Axis, parse_axis

if TYPE_CHECKING:
    from parity.plan import Plan


class Vary(click.ParamType[Axis]):
    """NAME=V1,V2,…"""

    name = "name=v1,v2,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, Axis):
            return value
        try:
            return parse_axis(value)
        except ValueError as error:
            raise Refused(said_by(error), param, ctx) from None


class Span(click.ParamType[tuple[int, int]]):
    """LOW:HIGH, or one number for both."""

    name = "low:high"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return _span(value)
        except ValueError:
            raise Refused(message("cli.not_low_high", "{value!r} is not LOW:HIGH", value=value), param, ctx) from None


def _span(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    return int(low), int(high if colon else low)


class Arrival(click.ParamType[tuple[str, float, str]]):
    """together, fixed:STEPS, poisson:STEPS; with an s at the end in seconds."""

    name = "how"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value == "together":
            return value, 0.0, "steps"
        kind, _, every = value.partition(":")
        unit = "seconds" if every.endswith("s") else "steps"
        try:
            if kind not in ("fixed", "poisson"):
                raise ValueError
            return kind, float(every.removesuffix("s")), unit
        except ValueError:
            raise Refused(
                message(
                    "cli.not_together_fixed",
                    "{value!r} is not together, fixed:STEPS or poisson:STEPS (0.05s for seconds)",
                    value=value,
                ),
                param,
                ctx,
            ) from None


class Abort(click.ParamType[tuple[float, tuple[int, int] | None]]):
    """SHARE, or SHARE:LOW:HIGH."""

    name = "share[:low:high]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        share, colon, span = value.partition(":")
        try:
            return float(share), _span(span) if colon else None
        except ValueError:
            raise Refused(
                message(
                    "cli.not_share_share", "{value!r} is not SHARE or SHARE:LOW:HIGH, such as 0.1:1:32", value=value
                ),
                param,
                ctx,
            ) from None


HUNT_OPTIONS: list[Callable[[Any], Any]] = [
    click.option(
        "--vary",
        type=Vary(),
        multiple=True,
        help="Run an arm for each value of an engine argument, and for each combination where this is repeated: "
        "num_speculative_tokens=0,1,3 (0 is base), async_scheduling=true,false, max_num_seqs=1,32, cudagraph_mode=…; "
        "dots lead into nested ones, env.NAME is a variable. What cannot run is skipped with the reason.",
    ),
    click.option(
        "--samples",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Completions of each prompt per round: as --n where sampling is random, else as copies of the request.",
    ),
    click.option(
        "--churn",
        type=OneOf(["none", "light", "heavy"]),
        default="none",
        show_default=True,
        help="How requests come and go while others decode; docs/hunt.md says what each means. The options below "
        "change one thing of it.",
    ),
    click.option("--output-lengths", type=Span(), help="Limits of the requests' own, evenly spread over LOW:HIGH."),
    click.option(
        "--arrival",
        type=Arrival(),
        help="together; fixed:2 or poisson:2, a request every two steps of the engine; fixed:0.05s by the clock.",
    ),
    click.option("--shuffle/--no-shuffle", default=None, help="Another order of the requests in each round."),
    click.option("--abort", type=Abort(), help="Abort this share of the requests after LOW to HIGH tokens."),
    click.option("--batch-sizes", type=Span(), help="A round as batches of LOW to HIGH requests, one after another."),
    click.option("--needle", metavar="ID", help="This prompt alone in the first round, in random batches after that."),
    click.option("--kv-blocks", type=click.IntRange(min=1), help="KV cache of this many blocks: few mean preemptions."),
    click.option(
        "--like",
        metavar="COMMAND|FILE|URL",
        help="Take the variant `deployed` over from production: a `vllm serve` command line in one pair of quotation "
        "marks, its --config file, or the URL of a server that reports its arguments. [variants: base,deployed]",
    ),
    click.option(
        "--ladder",
        is_flag=True,
        help="Arms from the pinned ones to `deployed`, each with one setting more of it; the result names the first "
        "that diverges.",
    ),
    click.option("--async-engine", is_flag=True, help="Through AsyncLLM, where requests arrive by the clock."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntOptions:
    """Values of the options above."""

    vary: tuple[Axis, ...]
    samples: int
    churn: Literal["none", "light", "heavy"]
    output_lengths: tuple[int, int] | None
    arrival: tuple[str, float, str] | None
    shuffle: bool | None
    abort: tuple[float, tuple[int, int] | None] | None
    batch_sizes: tuple[int, int] | None
    needle: str | None
    kv_blocks: int | None
    async_engine: bool
    like: str | None
    ladder: bool

    def churn_request(self) -> ChurnRequest:
        return ChurnRequest(
            preset=self.churn,
            arrival=self.arrival,
            shuffle=self.shuffle,
            output_lengths=self.output_lengths,
            abort=self.abort,
            batch_sizes=self.batch_sizes,
            needle=self.needle,
            kv_blocks=self.kv_blocks,
            asynchronous=self.async_engine,
        )


def say_skipped(plan: Plan) -> None:
    """What was left out: flags of a server, and combinations of the matrix by reason."""
    from parity.cli.output import say

    if plan.set_aside:
        said = message("cli.set_aside", "not the engine's, and so not taken over: {flags}", flags=list(plan.set_aside))
        say(said)
    reasons: dict[str, tuple[Message, list[str]]] = {}
    for one in plan.skipped:
        reasons.setdefault(str(one.reason), (one.reason, []))[1].append(one.arm)
    if reasons:
        say(
            message(
                "cli.combinations_cannot_run",
                "{count} of {arms} combinations cannot run and is skipped:",
                plural="{count} of {arms} combinations cannot run and are skipped:",
                count=len(plan.skipped),
                arms=len(plan.skipped) + len(plan.arms),
            )
        )
    for reason, arms in reasons.values():
        named = message("cli.and_more", "{arm} and {n} more", arm=arms[0], n=len(arms) - 1) if arms[1:] else arms[0]
        say(joined([joined(["  ", named], by=""), reason], ": "))
