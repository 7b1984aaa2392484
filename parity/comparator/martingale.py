"""Has a number changed? Evidence that adds up over looks, and that one may look at after each.

Each new value is ranked among those before it: as long as nothing changes, each order is as likely as any other, and
the ranks are independent of each other, even where all looks are at the same questions. From the ranks follows a test
martingale: its value, an e-value, exceeds 1 / alpha at any time with a chance of at most alpha, whether one looks once
or every hour of a year.

The martingale begins anew at every look, with weights that add up to 1, so that a long quiet time hides no change.
Sources: Vovk, Nouretdinov and Gammerman 2003 (ICML, testing exchangeability on-line); Vovk and Wang 2021 (Annals of
Statistics 49, 1736); Ramdas, Grünwald, Vovk and Shafer 2023 (Statistical Science 38, 576).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

POWERS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7)
"""Calibrators k p^(k-1) from p-value to e-value; the martingales of all of them are averaged."""


class Series(Struct, frozen=True):
    """One number, look after look (a probe, a round)."""

    values: tuple[float, ...] = ()
    """Sorted."""
    recent: tuple[tuple[str, float], ...] = ()
    """In the order of the looks, each with its name."""
    products: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, len(POWERS), 0)))
    """Natural logarithm of the product of e-values since each look, for a number that became larger and for one that
    became smaller; shape (2, powers, looks)."""

    def after(self, name: str, value: float) -> Series:
        """The series with one more look."""
        number = len(self.values) + 1
        low, high = bisect_left(self.values, value), bisect_right(self.values, value)
        # Equal values count on both sides: either p-value is then larger than it need be, never smaller.
        log_p = np.log([(number - low) / number, (high + 1) / number])
        log_e = np.log(POWERS) + (np.array(POWERS) - 1) * log_p[:, None]
        begun = np.concatenate([self.products, np.zeros((2, len(POWERS), 1))], axis=2)
        return Series(
            (*self.values[:high], value, *self.values[high:]), (*self.recent, (name, value)), begun + log_e[:, :, None]
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

    @property
    def means(self) -> tuple[float, float]:
        """The mean before `since`, and from there on."""
        values, first = [value for _, value in self.recent], self.since
        return float(np.mean(values[:first] or values)), float(np.mean(values[first:]))

    def _weighted(self) -> npt.NDArray[np.float64]:
        starts = range(1, len(self.recent) + 1)
        weights = np.array([_not_begun(start - 1) - _not_begun(start) for start in starts])
        found: npt.NDArray[np.float64] = self.products + np.log(weights)
        return found


def _not_begun(looks: int) -> float:
    """The weight that is left for martingales that begin later: it falls so slowly that late ones are not shut out."""
    return 1 / (1 + math.log(1 + looks))
