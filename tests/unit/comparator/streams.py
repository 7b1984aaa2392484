"""Small captures for the unit tests of the comparison, written down token by token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from parity.messages import Message
from parity.records import Capture, Completion, Header, Key, ScoreKey, SpecTrace, TopLogprobs

VOCABULARY = 1000
EOS = 0
TEXT = tuple(range(100, 160))
"""A stream in which no token stands twice."""


def header(arm: str, **sampling: Any) -> Header:
    variant = arm.split("/")[1]
    engine = {"speculative_config": {"method": "mtp"}} if variant == "mtp" else {}
    asked = {"temperature": 0.0, "max_tokens": 60, "n": 1, **sampling}
    return Header(arm, "cpu", variant, "m", VOCABULARY, (EOS,), engine, asked)


def completion(
    tokens: Sequence[int],
    request: str = "p0",
    *,
    round: int = 0,
    sample: int = 0,
    finish: str | None = "length",
    prompt: Sequence[int] = (1, 2, 3),
    logprobs: TopLogprobs | None = None,
    spec: SpecTrace | None = None,
    **sampling: Any,
) -> Completion:
    """`sampling`: the request's own parameters."""
    ids = np.array(tokens, dtype=np.int64)
    key = Key(request, round, sample)
    return Completion(key, np.array(prompt, dtype=np.int64), ids, None, finish, None, logprobs, spec, sampling=sampling)


def capture(arm: str, *completions: Completion, **sampling: Any) -> Capture:
    counters = {"draft_tokens": 20, "accepted_tokens": 15} if arm.endswith("mtp") else {}
    return Capture(header(arm, **sampling), {one.key: one for one in completions}, {}, counters)


def score(tokens: Sequence[int], wrong: dict[int, float] | None = None, instead: Sequence[int] = ()) -> TopLogprobs:
    """A reference that has every token on top, but for `wrong`: position to nats below the best token.

    `instead` gives the best token at those positions where it has one, else 999 is the best.
    """
    wrong = wrong or {}
    entries = []
    for position, token in enumerate(tokens):
        if position in wrong:
            best = instead[position] if position < len(instead) else 999
            entries.append([[best, -0.1], [token, -0.1 - wrong[position]]])
        else:
            entries.append([[token, -0.1], [998, -4.0]])
    return TopLogprobs.from_json(entries)


def scores(arm: str, **by_request: TopLogprobs) -> dict[ScoreKey, TopLogprobs]:
    return {ScoreKey(arm, request, 0, 0): top for request, top in by_request.items()}


def texts(messages: Iterable[Message]) -> list[str]:
    return [str(one) for one in messages]
