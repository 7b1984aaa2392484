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

    more: arms with speculation that differ by more than the same backend without. settings: arms with speculation that
    differ where others of the same backend, with it too, do not: `sound`. clean: backends that speculated and do not
    differ. sizes: by arm, logit noise in bf16 units.
    """

    backends: tuple[str, ...]
    speculation: tuple[str, ...]
    more: tuple[str, ...]
    settings: tuple[str, ...]
    sound: tuple[str, ...]
    clean: tuple[str, ...]
    sizes: tuple[Message, ...]


def noisy(found: Mapping[str, Numerics], plain: Mapping[str, str], speculating: Mapping[str, str]) -> Noisy | None:
    """found: by candidate arm. plain: the arm without speculation, speculating: arm to its backend. None where no arm
    differs, or where it cannot be said what those that do have in common.

    An arm with kernels of its own, which its backend's plain arm does not run, says nothing of speculation: they may be
    all that it differs by.
    """
    failed = {arm: one for arm, one in found.items() if one.failed}
    if not failed:
        return None
    backends = sorted(backend for backend, arm in plain.items() if arm in failed)
    worse = sorted(
        arm
        for arm, backend in speculating.items()
        if arm in failed and backend in plain and _is_more(failed[arm], found.get(plain[backend]))
    )
    apart = [arm for arm in worse if speculating[arm] not in backends]
    tested = {arm for arm, backend in speculating.items() if arm in found and backend in plain}
    sound = {arm for arm in tested if arm not in failed and speculating[arm] in {speculating[one] for one in apart}}
    settings = [arm for arm in apart if speculating[arm] in {speculating[one] for one in sound}]
    alone = {
        speculating[arm] for arm in apart if arm not in settings and not _own_kernels(arm, plain, found, speculating)
    }
    if not backends and not alone and not settings:
        return None
    return Noisy(
        backends=tuple(backends),
        speculation=tuple(sorted(alone)),
        more=tuple(arm for arm in worse if speculating[arm] in backends),
        settings=tuple(settings),
        sound=tuple(sorted(sound)),
        clean=tuple(sorted({speculating[arm] for arm in tested} - {speculating[arm] for arm in tested & set(failed)})),
        sizes=tuple(_sizes(found)),
    )


def _own_kernels(
    arm: str, plain: Mapping[str, str], found: Mapping[str, Numerics], speculating: Mapping[str, str]
) -> bool:
    """Has this arm kernels that its backend's plain arm does not run? The baseline itself is not in `found`."""
    beside = found.get(plain[speculating[arm]])
    return not set(found[arm].other_kernels) <= set(() if beside is None else beside.other_kernels)


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
