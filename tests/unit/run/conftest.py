"""A backend whose worker is the real one with a fake engine inside, and patience that ends soon."""

from __future__ import annotations

import pytest
from backend import FaultyBackend

from parity.run import Timeouts


@pytest.fixture
def backend() -> FaultyBackend:
    return FaultyBackend()


@pytest.fixture
def quick() -> Timeouts:
    return Timeouts(start=20.0, stall=20.0, grace=2.0)
