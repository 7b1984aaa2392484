"""Has what a server says changed? Evidence that adds up over probes, and that one may look at after each.

A probe alone is judged at an error rate of its own, which all probes share (`parity.comparator.statistics.spent`). A
small change shows in no single probe. So each number of a probe (`MEASURES`) is ranked among those of the probes before
it: as long as nothing changes, each order is as likely as any other, and the ranks are independent of each other, even
where all probes ask the same questions. From the ranks follows a test martingale: its value, an e-value, exceeds
1 / alpha at any time with a chance of at most alpha, whether one looks once or every hour of a year.

The martingale begins anew at every probe, with weights that add up to 1, so that a long quiet time hides no change.
Sources: Vovk, Nouretdinov and Gammerman 2003 (ICML, testing exchangeability on-line); Vovk and Wang 2021 (Annals of
Statistics 49, 1736); Ramdas, Grünwald, Vovk and Shafer 2023 (Statistical Science 38, 576).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from parity.comparator import DEFAULT_ALPHA
from parity.comparator.stats import Stats
from parity.messages import Message, message
from parity.records import Json

POWERS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7)
"""Calibrators k p^(k-1) from p-value to e-value; the martingales of all of them are averaged."""


def _differing(stats: Stats) -> float | None:
    return 1 - stats.identical / stats.completions if stats.completions else None


def _mean_gap(stats: Stats) -> float | None:
    return stats.drift.candidate_mean_gap if stats.drift else None


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
        "surprisal": Measure(message("watch.surprisal", "mean surprisal of samples (nats)"), _surprisal),
        "length": Measure(message("watch.length", "mean length of samples (tokens)"), _length),
    }
)


@dataclass(frozen=True, slots=True)
class Series:
    """One number, probe after probe."""

    values: tuple[float, ...] = ()
    """Sorted."""
    recent: tuple[tuple[str, float], ...] = ()
    """In the order of the probes, each with its run."""
    products: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, len(POWERS), 0)))
    """Natural logarithm of the product of e-values since each probe, for a number that became larger and for one that
    became smaller; shape (2, powers, probes)."""

    def after(self, run: str, value: float) -> Series:
        """The series with one more probe."""
        number = len(self.values) + 1
        low, high = bisect_left(self.values, value), bisect_right(self.values, value)
        # Equal values count on both sides: either p-value is then larger than it need be, never smaller.
        log_p = np.log([(number - low) / number, (high + 1) / number])
        log_e = np.log(POWERS) + (np.array(POWERS) - 1) * log_p[:, None]
        begun = np.concatenate([self.products, np.zeros((2, len(POWERS), 1))], axis=2)
        return Series(
            (*self.values[:high], value, *self.values[high:]), (*self.recent, (run, value)), begun + log_e[:, :, None]
        )

    @property
    def log_e(self) -> float:
        """Natural logarithm of the evidence that the number has changed; 0 is none."""
        if not self.recent:
            return 0.0
        begun = np.logaddexp.reduce(self._weighted(), axis=None) - math.log(2 * len(POWERS))
        return float(np.logaddexp(begun, math.log(_not_begun(len(self.recent)))))

    @property
    def since(self) -> int:
        """Where in `recent` the change most likely began."""
        return int(np.argmax(self._weighted().max(axis=(0, 1))))

    def _weighted(self) -> npt.NDArray[np.float64]:
        starts = range(1, len(self.recent) + 1)
        weights = np.array([_not_begun(start - 1) - _not_begun(start) for start in starts])
        found: npt.NDArray[np.float64] = self.products + np.log(weights)
        return found


def _not_begun(probes: int) -> float:
    """The weight that is left for martingales that begin later: it falls so slowly that late ones are not shut out."""
    return 1 / (1 + math.log(1 + probes))


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
    first, values = series.since, [value for _, value in series.recent]
    return Change(
        arm=arm,
        measure=measure,
        since=series.recent[first][0],
        before=float(np.mean(values[:first] or values)),
        after=float(np.mean(values[first:])),
        log10_e=series.log_e / math.log(10),
    )
