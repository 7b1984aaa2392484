"""Plants whole completions, or their rest, that are another request's, in a run of real completions.

What is copied and where it goes is drawn from a seed; the truth is the receiver, the first token that is not its own,
and every request that holds the copied tokens (two requests may say the same).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from parity.comparator.population.rates import loop_period
from parity.records import Capture, Completion, Key

EXTENTS = ("whole", "rest in step", "rest from its start", "rest from its middle", "prompt", "span and own text")


@dataclass(frozen=True, slots=True)
class Leaked:
    """The receiver's tokens [start, start + length) are `donor`'s."""

    extent: str
    receiver: Key
    donor: str
    tokens: tuple[int, ...]
    start: int
    """First token that is not the receiver's own any more."""
    length: int
    in_loop: bool
    """The copied tokens end in a loop."""
    holders: frozenset[str]
    """Requests that hold the copied tokens, the donor among them."""


def _holds(stream: Sequence[int], span: Sequence[int]) -> bool:
    size = len(span)
    return any(list(stream[at : at + size]) == list(span) for at in range(len(stream) - size + 1))


def leak(capture: Capture, rng: random.Random, extent: str, *, loops: bool | None = None) -> Leaked | None:
    """One leak into a completion of `capture`; None where what was drawn leaves no trace."""
    rows = [one for one in capture if len(one.token_ids) >= 48]
    receiver = rng.choice(rows)
    donors = [one for one in rows if one.key.request != receiver.key.request]
    if loops is not None:
        donors = [one for one in donors if (loop_period(one.token_ids) is not None) is loops]
    donor = rng.choice(donors)
    own, said = receiver.token_ids.tolist(), donor.token_ids.tolist()
    at = 0 if extent == "whole" else rng.randrange(4, len(own) - 32)
    if extent in ("whole", "rest from its start"):
        copied = said
    elif extent == "rest in step":
        copied = said[at:]
    elif extent == "rest from its middle":
        copied = said[rng.randrange(4, len(said) - 24) :]
    elif extent == "prompt":
        copied = donor.prompt_token_ids.tolist()
    else:
        begin = rng.randrange(0, len(said) - 24)
        copied = said[begin : begin + rng.randrange(12, 24)]
    copied = copied[: len(own) - at]
    if len(copied) < 12:
        return None
    rest = own[at + len(copied) :] if extent in ("prompt", "span and own text") else []
    tokens = [*own[:at], *copied, *rest]
    first = next((n for n, (a, b) in enumerate(zip(own, tokens, strict=False)) if a != b), None)
    if first is None or first >= at + len(copied) - 8:
        return None
    visible = tokens[first : at + len(copied)]
    holders = frozenset(
        one.key.request
        for one in capture
        if one.key.request != receiver.key.request
        and (_holds(one.token_ids.tolist(), visible) or _holds(one.prompt_token_ids.tolist(), visible))
    )
    if not holders or _holds([*receiver.prompt_token_ids.tolist(), *own], visible):
        return None
    in_loop = loop_period(np.array(tokens[: at + len(copied)])) is not None
    return Leaked(extent, receiver.key, donor.key.request, tuple(tokens), first, len(visible), in_loop, holders)


def leaks(capture: Capture, seed: int, count: int) -> Iterator[Leaked]:
    """`count` of each extent, half of them from donors that end in a loop."""
    rng = random.Random(seed)
    for extent in EXTENTS:
        for number in range(count):
            wanted = number % 2 == 0
            tries = (leak(capture, rng, extent, loops=wanted if attempt < 50 else None) for attempt in range(100))
            yield from islice((one for one in tries if one is not None), 1)


def completion_of(leaked: Leaked, receiver: Completion) -> Completion:
    """The receiver with the tokens of the leak."""
    return Completion(
        leaked.receiver,
        receiver.prompt_token_ids,
        np.array(leaked.tokens, dtype=np.int64),
        None,
        receiver.finish_reason if leaked.tokens[-1] == receiver.token_ids[-1] else "length",
        None,
    )
