"""Has what a server says changed? Evidence that adds up over probes, and that one may look at after each.

A probe alone is judged at an error rate of its own, which all probes share (`parity.comparator.statistics.spent`). A
small change shows in no single probe. So each number of a probe (`MEASURES`) is a series of a test martingale
(`parity.comparator.martingale`): whether one looks once or every hour of a year, the error rate is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from parity.comparator import DEFAULT_ALPHA
from parity.comparator.martingale import Series
from parity.comparator.stats import Stats
from parity.messages import Message, message
from parity.records import Json


def _differing(stats: Stats) -> float | None:
    return 1 - stats.identical / stats.completions if stats.completions else None


def _mean_gap(stats: Stats) -> float | None:
    return stats.drift.candidate_mean_gap if stats.drift else None


def _off(stats: Stats) -> float | None:
    residuals = stats.numerics.candidate if stats.numerics else None
    return residuals.mean if residuals else None


def _noise(stats: Stats) -> float | None:
    residuals = stats.numerics.candidate if stats.numerics else None
    return residuals.logit_noise if residuals else None


def _surprisal(stats: Stats) -> float | None:
    return stats.sampling.mean_surprisal[1] if stats.sampling else None


def _length(stats: Stats) -> float | None:
    return stats.sampling.mean_length[1] if stats.sampling else None


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a probe that is followed."""

    title: Message
    of: Callable[[Stats], float | None]


MEASURES: Final[Mapping[str, Measure]] = MappingProxyType(
    {
        "differing": Measure(message("watch.differing", "share of completions that differ"), _differing),
        "mean_gap": Measure(message("watch.mean_gap", "mean gap (nats)"), _mean_gap),
        "off": Measure(message("watch.off", "mean of its logprobs less their scores (nats)"), _off),
        "noise": Measure(message("watch.noise", "noise of its logits by its logprobs (nats)"), _noise),
        "surprisal": Measure(message("watch.surprisal", "mean surprisal of samples (nats)"), _surprisal),
        "length": Measure(message("watch.length", "mean length of samples (tokens)"), _length),
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """A number that has changed."""

    arm: str
    measure: str
    since: str
    """The run with which it most likely began."""
    before: float
    after: float
    """Means of the probes before and since."""
    log10_e: float

    @property
    def sentence(self) -> Message:
        return message(
            "watch.changed",
            "{arm}: {measure} has changed since about run {since}, from {before:.4g} to {after:.4g} (evidence "
            "{e_value:.2g}; without a change, one watch in {once:,.0f} says so, however long it runs)",
            arm=self.arm,
            measure=MEASURES[self.measure].title,
            since=self.since,
            before=self.before,
            after=self.after,
            e_value=10 ** min(self.log10_e, 300.0),
            once=1 / DEFAULT_ALPHA,
        )

    def to_json(self) -> dict[str, Json]:
        return {
            "arm": self.arm,
            "measure": self.measure,
            "since": self.since,
            "before": self.before,
            "after": self.after,
            "log10_e": round(self.log10_e, 3),
        }


def _limit(arms: int) -> float:
    """Natural logarithm of the evidence from which on a number has changed: all series share DEFAULT_ALPHA."""
    return math.log(len(MEASURES) * arms / DEFAULT_ALPHA)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the probes so far say together."""

    series: Mapping[tuple[str, str], Series] = field(default_factory=dict)
    """By arm and measure."""
    probes: int = 0

    def after(self, run: str, stats_of: Mapping[str, Stats]) -> Evidence:
        """With one more probe, by arm; arms and numbers that it lacks stay as they were."""
        found = dict(self.series)
        for arm, stats in stats_of.items():
            for name, measure in MEASURES.items():
                value = measure.of(stats)
                if value is not None and math.isfinite(value):
                    found[arm, name] = found.get((arm, name), Series()).after(run, value)
        return Evidence(found, self.probes + 1)

    def changes(self) -> tuple[Change, ...]:
        """The numbers that have changed."""
        limit = _limit(max(1, len({arm for arm, _ in self.series})))
        return tuple(_change(*name, one) for name, one in self.series.items() if one.log_e >= limit)


NOTHING_YET: Final = Evidence()


def _change(arm: str, measure: str, series: Series) -> Change:
    before, after = series.means
    return Change(
        arm=arm,
        measure=measure,
        since=series.recent[series.since][0],
        before=before,
        after=after,
        log10_e=series.log_e / math.log(10),
    )
