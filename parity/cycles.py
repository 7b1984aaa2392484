"""Python's search for reference cycles, stopped where it finds none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_cycle_search() -> Iterator[None]:
    """Without the search: what is made here has no cycles, and millions of small objects make the search take as long
    as making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
