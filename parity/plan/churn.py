"""Churn: how the requests of a round come and go, so that rows join, leave and move in the batch.

The schedule follows from the plan alone (its seed, the round's number), in steps of the engine, so that an
engine in one process does the same each time, and a resumed round is the same round. The worker turns these
settings into a schedule (`backends/parity_backends/vllm/worker/schedule.py`).
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal

from parity.errors import ParityError
from parity.messages import message
from parity.records import Json

ARRIVALS: Final = ("together", "fixed", "poisson")
UNITS: Final = ("steps", "seconds")


@dataclass(frozen=True, slots=True)
class Churn:
    """How a round's requests reach the engine. The default is all at once, in the plan's order."""

    arrival: str = "together"
    every: float = 0.0
    """Time between two arrivals: exactly this (fixed), or on average (poisson)."""
    unit: str = "steps"
    """Of `every`. Steps are the same in every run; seconds need the asynchronous engine to mean anything."""
    shuffle: bool = False
    """Another order of the requests in each round."""
    abort_share: float = 0.0
    """Share of the requests aborted while they run."""
    abort_after: tuple[int, int] = (1, 32)
    """Output tokens after which that happens: uniform between these two, both included."""
    batch_sizes: tuple[int, int] | None = None
    """The round in batches of random size, one after the other has ended; None: one batch."""
    needle: str | None = None
    """A request that runs alone in the first round and in random batches in all others."""
    kv_blocks: int | None = None
    """Blocks of KV cache, so few that requests are preempted; the arms' engines are started with it."""
    asynchronous: bool = False
    """Through vLLM's AsyncLLM: requests arrive while others decode, by the clock."""
    seed: int = 0

    def check(self, request_ids: frozenset[str], n: int) -> None:
        """Raises ParityError for settings that make no sense."""
        if self.arrival not in ARRIVALS or self.unit not in UNITS:
            raise ParityError(
                message(
                    "plan.churn_arrival", "churn: arrival {arrival!r} in {unit!r}", arrival=self.arrival, unit=self.unit
                ),
                hint=message("plan.fixed_poisson_fixed", "fixed:2, poisson:1.5 or fixed:0.05s"),
            )
        if self.arrival != "together" and not 0 < self.every < 1e6:
            raise ParityError(
                message(
                    "plan.churn_one_arrival",
                    "churn: one arrival every {every:g} {unit}",
                    every=self.every,
                    unit=self.unit,
                ),
                hint=message("plan.give_number_above", "give a number above 0"),
            )
        if not 0 <= self.abort_share <= 0.9:
            raise ParityError(
                message(
                    "plan.churn_requests_aborted",
                    "churn: {abort_share:g} of the requests aborted",
                    abort_share=self.abort_share,
                ),
                hint=message("plan.give_share", "give a share from 0 to 0.9"),
            )
        for name, span, least in (("abort_after", self.abort_after, 1), ("batch_sizes", self.batch_sizes, 1)):
            if span is not None and not least <= span[0] <= span[1]:
                raise ParityError(
                    message("plan.churn", "churn: {name} is {span}:{span_2}", name=name, span=span[0], span_2=span[1]),
                    hint=message("plan.give_low_high", "give LOW:HIGH, from {least} up", least=least),
                )
        if self.needle is not None and self.needle not in request_ids:
            raise ParityError(
                message(
                    "plan.needle_none_plans", "the needle {needle!r} is none of the plan's requests", needle=self.needle
                ),
                hint=message("plan.name_prompt_id", "name a prompt by its id: `parity plan` shows them"),
            )
        if self.unit == "seconds" and not self.asynchronous:
            raise ParityError(
                message("plan.arrivals_clock_need", "arrivals by the clock need the asynchronous engine"),
                hint=message("plan.add_async_engine", "add --async-engine, or count in steps"),
            )
        if self.asynchronous and self.unit == "steps" and self.arrival != "together":
            raise ParityError(
                message(
                    "plan.asynchronous_engine_takes",
                    "the asynchronous engine takes no steps that could be counted from outside",
                ),
                hint=message(
                    "plan.give_interval_seconds", "give the interval in seconds, such as --arrival poisson:0.02s"
                ),
            )

    def to_json(self) -> dict[str, Json]:
        """Only what differs from the default, so that plans say what they ask for."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != getattr(_DEFAULT, name)
        }


@dataclass(frozen=True, slots=True)
class ChurnRequest:
    """What the user asked for; None leaves the preset's own."""

    preset: Literal["none", "light", "heavy"] = "none"
    arrival: tuple[str, float, str] | None = None
    shuffle: bool | None = None
    output_lengths: tuple[int, int] | None = None
    abort: tuple[float, tuple[int, int] | None] | None = None
    batch_sizes: tuple[int, int] | None = None
    needle: str | None = None
    kv_blocks: int | None = None
    asynchronous: bool = False

    def churn(self, seed: int, max_tokens: int) -> Churn:
        """The settings of the preset, changed by those given one by one."""
        made = _PRESETS[self.preset]
        if made.abort_share:
            made = replace(made, abort_after=(1, max(1, max_tokens // 2)))
        if self.asynchronous:
            made = replace(made, asynchronous=True)
            if made.arrival != "together":
                made = replace(made, unit="seconds", every=made.every * SECONDS_PER_STEP)
        if self.arrival is not None:
            kind, every, unit = self.arrival
            made = replace(made, arrival=kind, every=every, unit=unit)
        if self.shuffle is not None:
            made = replace(made, shuffle=self.shuffle)
        if self.abort is not None:
            share, after = self.abort
            made = replace(made, abort_share=share, abort_after=after or (1, max(1, max_tokens // 2)))
        if self.batch_sizes is not None:
            made = replace(made, batch_sizes=self.batch_sizes)
        if self.needle is not None:
            made = replace(made, needle=self.needle, batch_sizes=made.batch_sizes or NEEDLE_BATCHES)
        if self.kv_blocks is not None:
            made = replace(made, kv_blocks=self.kv_blocks)
        return made if made == Churn() else replace(made, seed=seed)

    def lengths(self, max_tokens: int) -> tuple[int, int] | None:
        """The span of output lengths: what was asked for, else the preset's share of max_tokens."""
        if self.output_lengths is not None:
            low, high = self.output_lengths
            if not 1 <= low <= high <= max_tokens:
                raise ParityError(
                    message(
                        "plan.output_lengths_max",
                        "output lengths {low}:{high} with --max-tokens {max_tokens}",
                        low=low,
                        high=high,
                        max_tokens=max_tokens,
                    ),
                    hint=message(
                        "plan.give_low_high_between", "give LOW:HIGH between 1 and {max_tokens}", max_tokens=max_tokens
                    ),
                )
            return low, high
        share = _SHORTEST[self.preset]
        return None if share is None else (max(1, max_tokens // share), max_tokens)


_DEFAULT: Final = Churn()

SECONDS_PER_STEP: Final = 0.01
"""What a preset's step counts as where arrivals go by the clock."""

NEEDLE_BATCHES: Final = (4, 32)

_PRESETS: Final = {
    "none": Churn(),
    "light": Churn(arrival="fixed", every=2.0, shuffle=True),
    "heavy": Churn(arrival="poisson", every=1.0, shuffle=True, abort_share=0.1),
}
_SHORTEST: Final = {"none": None, "light": 4, "heavy": 8}


def output_limit(lengths: tuple[int, int], seed: int, request_id: str) -> int:
    """A request's own max_tokens: uniform over the span, the same for the same seed and id everywhere."""
    low, high = lengths
    return low + int(random.Random(f"{seed}/{request_id}").random() * (high - low + 1))
