"""Equalities that a correct engine never breaks. A new one goes into the tuple of its module."""

from __future__ import annotations

from parity.explain.invariants.batch import BATCH
from parity.explain.invariants.cache import CACHE
from parity.explain.invariants.check import Broken, Invariant
from parity.explain.invariants.handover import HANDOVER
from parity.explain.invariants.sampling import SAMPLING
from parity.explain.invariants.state import STATES

INVARIANTS: tuple[Invariant, ...] = (*BATCH, *CACHE, *STATES, *SAMPLING, *HANDOVER)

__all__ = ["INVARIANTS", "Broken", "Invariant"]
