"""Equalities that a correct engine never breaks. A new one goes into the tuple of its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.explain.invariants.batch import BATCH
from parity.explain.invariants.cache import CACHE
from parity.explain.invariants.check import Broken, Invariant
from parity.explain.invariants.handover import HANDOVER
from parity.explain.invariants.sampling import SAMPLING
from parity.explain.invariants.state import STATES
from parity.records.verification import draws_another_after_a_rejection

INVARIANTS: tuple[Invariant, ...] = (*BATCH, *CACHE, *STATES, *SAMPLING, *HANDOVER)


def invariants_of(engine: Mapping[str, Any]) -> tuple[Invariant, ...]:
    """Those that hold for an engine with these settings (of a capture's header, or of a plan)."""
    if draws_another_after_a_rejection(engine):
        return INVARIANTS
    return tuple(one for one in INVARIANTS if one.name != "rejected")


__all__ = ["INVARIANTS", "Broken", "Invariant", "invariants_of"]
