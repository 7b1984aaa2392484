"""Small captures for tests, written down token by token: as objects and as files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.capture import write_capture
from parity.messages import Message
from parity.records import Capture, Completion, Header, Key, ScoreKey, Scores, SpecTrace, TopLogprobs

VOCABULARY = 1000
EOS = 0
TEXT = tuple(range(100, 160))
"""A stream in which no token stands twice."""


def header(
    arm: str,
    *,
    model: str = "m",
    vocab_size: int | None = VOCABULARY,
    engine: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    **sampling: Any,
) -> Header:
    """Of the arm `backend/variant`, or of a server's `variant`; a variant called mtp speculates."""
    backend, _, variant = arm.rpartition("/")
    if engine is None:
        engine = {"speculative_config": {"method": "mtp"}} if variant == "mtp" else {}
    asked = {"temperature": 0.0, "max_tokens": 60, "n": 1, **sampling}
    return Header(
        arm, backend or "server", variant, model, vocab_size, (EOS,), engine, asked, environment or {}, extra or {}
    )


def completion(
    tokens: Sequence[int] | np.ndarray,
    request: str = "p0",
    *,
    round: int = 0,
    sample: int = 0,
    finish: str | None = "length",
    stop: int | str | None = None,
    prompt: Sequence[int] = (1, 2, 3),
    text: str | None = None,
    logprobs: TopLogprobs | None = None,
    spec: SpecTrace | None = None,
    max_tokens: int | None = None,
    aborted: bool = False,
    server: Mapping[str, Any] | None = None,
    **sampling: Any,
) -> Completion:
    """`sampling`: the request's own parameters."""
    return Completion(
        Key(request, round, sample),
        np.array(prompt, dtype=np.int64),
        np.array(tokens, dtype=np.int64),
        text,
        finish,
        stop,
        logprobs,
        spec,
        max_tokens=max_tokens,
        aborted=aborted,
        server=server,
        sampling=sampling,
    )


def capture(
    arm: str | Header,
    *completions: Completion,
    scores: Scores | None = None,
    counters: Mapping[str, Any] | None = None,
    **head: Any,
) -> Capture:
    """`head`: what `header` takes, where `arm` is only a name."""
    made = arm if isinstance(arm, Header) else header(arm, **head)
    if counters is None:
        counters = {"draft_tokens": 20, "accepted_tokens": 15} if made.arm.endswith("mtp") else {}
    return Capture(made, {one.key: one for one in completions}, scores or {}, counters)


def written(path: Path, made: Capture) -> Path:
    """The capture as a file."""
    write_capture(path, made)
    return path


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
