"""Which backend's numerics differ, or its speculation's, by the sizes of the residuals: where no verdict tells.

All arms are scored by one engine, the baseline's, so the sizes of their residuals can be set side by side, also those
of two arms that were never compared with each other: `npu/mtp` and `npu/base` against `cuda/base`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from msgspec import Struct

from parity.comparator.population.residual_tests import LEAST_FACTOR
from parity.comparator.stats import Numerics
from parity.messages import Message, message

SURELY = 4.0
"""Standard errors by which one arm's logit noise must lie above LEAST_FACTOR times the other's."""

_OF_SIZE = frozenset({"scale", "unit"})
"""Tests that fail by the size of the noise; all others by its kind."""


class Noisy(Struct, frozen=True):
    """Backends whose arms differ from the baseline already without speculation, and those that do with it alone.

    more: arms with speculation that differ by more than the same backend without. clean: backends that speculated and
    do not differ. sizes: by arm, logit noise in bf16 units.
    """

    backends: tuple[str, ...]
    speculation: tuple[str, ...]
    more: tuple[str, ...]
    clean: tuple[str, ...]
    sizes: tuple[Message, ...]


def noisy(found: Mapping[str, Numerics], plain: Mapping[str, str], speculating: Mapping[str, str]) -> Noisy | None:
    """found: by candidate arm. plain: the arm without speculation, speculating: arm to its backend. None where no arm
    differs, or where it cannot be said what those that do have in common."""
    failed = {arm: one for arm, one in found.items() if one.failed}
    if not failed:
        return None
    backends = sorted(backend for backend, arm in plain.items() if arm in failed)
    worse = sorted(
        arm
        for arm, backend in speculating.items()
        if arm in failed and backend in plain and _is_more(failed[arm], found.get(plain[backend]))
    )
    alone = sorted({speculating[arm] for arm in worse} - set(backends))
    if not backends and not alone:
        return None
    clean = {backend for arm, backend in speculating.items() if arm in found and backend in plain} - {
        speculating[arm] for arm in failed if arm in speculating
    }
    return Noisy(
        tuple(backends),
        tuple(alone),
        tuple(arm for arm in worse if speculating[arm] in backends),
        tuple(sorted(clean)),
        tuple(_sizes(found)),
    )


def _is_more(one: Numerics, base: Numerics | None) -> bool:
    """Does an arm with speculation differ by more than its backend without? `base`: None for the baseline itself."""
    if base is None or set(one.failed) - set(base.failed) - _OF_SIZE:
        return True
    if one.candidate is None or base.candidate is None:
        return False
    errors = [_standard_error(each) for each in (one, base)]
    if None in errors:
        return False
    apart = one.candidate.logit_noise - LEAST_FACTOR * base.candidate.logit_noise
    return apart > SURELY * math.hypot(*(each for each in errors if each is not None))


def _standard_error(found: Numerics) -> float | None:
    """Of the mean logit noise, nats; None where nothing says it."""
    noise = None if found.detectable is None else found.detectable.relative_scale_noise
    if noise is None or found.baseline is None or not found.tokens:
        return None
    return noise * found.baseline.logit_noise / math.sqrt(found.tokens)


def _sizes(found: Mapping[str, Numerics]) -> Iterator[Message]:
    for arm, one in sorted(found.items()):
        if one.logit_noise_in_units is not None:
            yield message("suspect.size", "{arm} {units:.2f}", arm=arm, units=one.logit_noise_in_units)
