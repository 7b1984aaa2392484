"""What others do with two token streams, for comparison: eleanity's first difference, deltacert's rule for degenerate
text, vLLM's check of its own tests."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple


class Peer(NamedTuple):
    module: str
    function: str
    install: str
    """The command that brings it."""


ELEANITY = Peer("eleanity.comparators.diff", "compare_tokens", "pip install -c constraints.txt eleanity==1.2.0")
DELTACERT = Peer("deltacert.collectors", "is_degenerate", "pip install --no-deps deltacert==1.2.4")


def function_of(peer: Peer) -> Callable[..., Any] | None:
    """None where it cannot be imported."""
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(peer.module), peer.function)
    except ImportError:
        return None
    return found


def missing(peers: Iterable[Peer] = (ELEANITY, DELTACERT)) -> list[str]:
    """A line for each that is not there: what it is, and what brings it."""
    return [
        f"{one.module.partition('.')[0]} is not installed, so it is not measured: {one.install}"
        for one in peers
        if function_of(one) is None
    ]


def check_logprobs_close(
    left: Sequence[int],
    right: Sequence[int],
    left_top: Callable[[int], Collection[int]],
    right_top: Callable[[int], Collection[int]],
) -> bool:
    """vLLM's rule (tests/models/utils.py, check_logprobs_close, defaults): False where it would fail.

    At the first position where the tokens differ, each side's token must be among the other side's top N (`left_top`,
    `right_top`: those of a position); then it stops. `zip` ends with the shorter side, so a difference in length alone
    passes.
    """
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return a in right_top(position) and b in left_top(position)
    return True
