"""Is what the engine says of its own output true? Token ids, logprobs and text, each against the others."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

from parity.comparator.detect.structure import Event
from parity.comparator.reference.gaps import BoolArray, FloatArray, TokenGaps
from parity.comparator.streams.alignment import common_prefix
from parity.records import Column, Completion, Kind, TokenIds

LOGPROB_TOLERANCE = 0.5
"""Nats between an engine's own logprob of its token and the score. vLLM's tests use 0.5 (`logprob_atol`,
tests/v1/e2e/general/async_scheduling_utils.py), clean runs there stay below 0.38."""

ALONE = 2.0
FEW = 1
"""Positions in a completion at which logprobs may disagree by up to ALONE times the tolerance: on the embedded
checkpoint one clean token in some 10,000 comes to 0.49 nats."""

LIKELY = -5.0
"""Nats. Below this logprob two kernels disagree by more than the tolerance without a fault."""

UNLISTED = "the chosen token is not among the engine's own logprobs"

INT32_MAX = 2**31 - 1


def invalid_rows(tokens: Column, vocab_size: int | None) -> set[int]:
    """Streams with a token id outside the vocabulary."""
    limit = vocab_size if vocab_size is not None else INT32_MAX
    # Seen as unsigned, a negative id is larger than any limit: one pass over the tokens.
    if not len(tokens.flat) or int(tokens.flat.view(np.uint64).max()) < limit:
        return set()
    return set(tokens.rows_with(tokens.flat.view(np.uint64) >= limit))


def invalid_tokens(tokens: TokenIds, vocab_size: int | None) -> list[Event]:
    """Ids outside [0, vocab_size), one event for each run of them. Unknown vocabulary: outside int32."""
    limit = vocab_size if vocab_size is not None else INT32_MAX
    bad = np.flatnonzero((tokens < 0) | (tokens >= limit))
    events = []
    for run in np.split(bad, np.flatnonzero(np.diff(bad) > 1) + 1):
        if len(run):
            ids = tokens[run].tolist()
            why = f"token id {ids[0]} is outside the vocabulary of {limit}"
            events.append(
                Event(
                    Kind.INVALID_TOKEN,
                    int(run[0]),
                    len(run),
                    {"why": why, "token_ids": ids[:16], "vocab_size": vocab_size},
                )
            )
    return events


def logprob_mismatch(
    completion: Completion,
    reference: TokenGaps | None,
    until: int,
    tolerance: float = LOGPROB_TOLERANCE,
    baseline: Completion | None = None,
) -> Event | None:
    """The engine's own logprobs: as many as tokens, numbers, of the chosen tokens, and near the scores.

    Where only FEW are off, and by little, the `baseline`'s own logprobs decide, if it has some: those of two engines
    that both decoded lie nearer to each other than to a score.

    Looks at positions before `until` only: behind a fault the engine's state is not the reference's.
    """
    own = completion.logprobs
    if own is None:
        return None
    tokens = completion.token_ids
    if len(own) != len(tokens):
        at = min(len(own), len(tokens))
        why = f"{len(own)} logprobs for {len(tokens)} tokens"
        return Event(Kind.LOGPROB_MISMATCH, at, abs(len(own) - len(tokens)), {"why": why})
    until = min(until, len(tokens))
    if until == 0:
        return None
    ids, values = own.ids[:until], own.values[:until]
    is_chosen = ids == tokens[:until, None]
    listed = is_chosen.any(axis=1)
    chosen = np.where(is_chosen, values, -np.inf).max(axis=1) if ids.shape[1] else np.full(until, np.nan)
    broken = broken_logprobs(completion)
    if broken is not None and broken.position < until:
        return broken
    if not listed.all():
        return _event(~listed, chosen, None, UNLISTED)
    if reference is None:
        return None
    expected = reference.chosen[:until]
    with np.errstate(invalid="ignore"):
        apart = np.abs(chosen - expected)
        off = apart > tolerance
        off &= np.maximum(chosen, expected) > LIKELY
    off &= np.isfinite(expected)
    few = int(off.sum()) <= FEW and not bool((apart[off] > ALONE * tolerance).any())
    if off.any() and (not few or _baseline_differs(chosen, off, tokens, baseline, tolerance)):
        return _event(off, chosen, expected, "the engine's logprobs disagree with the scores")
    return None


def _baseline_differs(
    chosen: FloatArray, off: BoolArray, tokens: TokenIds, baseline: Completion | None, tolerance: float
) -> bool:
    """Is the baseline's own logprob of the same token, after the same tokens, another one as well?"""
    if baseline is None or baseline.logprobs is None or len(baseline.logprobs) != len(baseline.token_ids):
        return False
    same = common_prefix(tokens, baseline.token_ids)
    for place in np.flatnonzero(off).tolist():
        if place < same:
            listed = baseline.logprobs.ids[place] == tokens[place]
            values = baseline.logprobs.values[place][listed]
            if len(values) and abs(float(values[0]) - float(chosen[place])) > tolerance:
                return True
    return False


def broken_logprobs(completion: Completion) -> Event | None:
    """Logprobs of chosen tokens that are NaN, infinite or above zero, anywhere in the completion."""
    own = completion.logprobs
    if own is None:
        return None
    length = min(len(own), len(completion.token_ids))
    ids, values = own.ids[:length], own.values[:length]
    is_chosen = ids == completion.token_ids[:length, None]
    bad = (is_chosen & (np.isnan(values) | (values > 1e-3) | np.isneginf(values))).any(axis=1)
    if not bad.any():
        return None
    chosen = np.where(is_chosen, values, -np.inf).max(axis=1)
    return _event(bad, chosen, None, "the logprob of the chosen token is not a logprob")


def unlisted_logprobs(completion: Completion) -> Event | None:
    """The engine's own lists leave the chosen token out, anywhere in the completion. vLLM always adds it."""
    own = completion.logprobs
    if own is None or len(own) != len(completion.token_ids):
        return None
    listed = (own.ids == completion.token_ids[:, None]).any(axis=1)
    if listed.all():
        return None
    return _event(~listed, np.full(len(listed), np.nan), None, UNLISTED)


def _event(
    bad: np.typing.NDArray[np.bool_],
    own: np.typing.NDArray[np.float64],
    expected: np.typing.NDArray[np.float64] | None,
    why: str,
) -> Event:
    positions = np.flatnonzero(bad)
    first = int(positions[0])
    worst = first
    if expected is not None:
        worst = int(positions[np.abs(own - expected)[positions].argmax()])
    value = float(own[worst])
    evidence = {
        "why": f"{why} at {len(positions)} positions",
        "positions": positions[:16].tolist(),
        "logprob": round(value, 4) if np.isfinite(value) else None,
        "score": None if expected is None else round(float(expected[worst]), 4),
        "worst_position": worst,
    }
    return Event(Kind.LOGPROB_MISMATCH, first, int(positions[-1]) - first + 1, evidence)


def text_mismatch(
    completion: Completion, detokenize: Callable[[Sequence[int]], str], *, cut_short: bool = False
) -> Event | None:
    """The text is not what the token ids say.

    Engines detokenise as tokens come: bytes that do not yet make a character are held back at the end, and a
    stop string is cut off. Both are allowed for. `cut_short`: stop strings were asked for, so that a text that ended
    by "stop" may be cut though the capture does not say at which.
    """
    if completion.text is None:
        return None
    ids = [int(token) for token in completion.token_ids if 0 <= token <= INT32_MAX]
    expected = detokenize(ids)
    if same_text(completion.text, expected):
        return None
    may_be_cut = isinstance(completion.stop_reason, str) or (
        cut_short and completion.finish_reason == "stop" and completion.stop_reason is None
    )
    if may_be_cut and expected.startswith(completion.text):
        return None
    at = next(
        (n for n, (x, y) in enumerate(zip(completion.text, expected, strict=False)) if x != y),
        min(len(completion.text), len(expected)),
    )
    position = _token_at(ids, at, detokenize)
    evidence = {
        "why": "the text is not what the token ids detokenise to",
        "character": at,
        "text": completion.text[max(0, at - 20) : at + 40],
        "expected": expected[max(0, at - 20) : at + 40],
    }
    return Event(Kind.TEXT_MISMATCH, position, max(1, len(ids) - position), evidence)


def same_text(text: str, expected: str, *, normalised: bool = False) -> bool:
    """Are two texts of one token stream the same, but for what detokenisers differ in?

    Bytes that make no character become one replacement character or several, and at the end none.
    `normalised`: composed and decomposed characters (Unicode NFC, NFD) count as equal too.
    """
    if text == expected:
        return True
    plain = [_UNREADABLE.sub("\ufffd", one).rstrip("\ufffd") for one in (text, expected)]
    if normalised:
        plain = [unicodedata.normalize("NFC", one) for one in plain]
    return plain[0] == plain[1]


_UNREADABLE = re.compile("\ufffd+")


def _token_at(ids: list[int], character: int, detokenize: Callable[[Sequence[int]], str]) -> int:
    """The token whose text covers a character: by bisection over prefixes, whose texts only grow."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(detokenize(ids[: middle + 1]).rstrip("\ufffd")) > character:
            high = middle
        else:
            low = middle + 1
    return min(low, max(0, len(ids) - 1))
