"""Tokens that the request itself forbade: `allowed_token_ids`, `bad_words`, stop tokens before `min_tokens`.

They are masked in vLLM before anything is chosen (`vllm/v1/sample/sampler.py`), so that neither rounding nor a score
excuses one. Where the rules of a request together leave nothing to choose, any token may come, and none is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parity.comparator.detect.events import Event
from parity.comparator.inputs.asked import Asked
from parity.comparator.inputs.bad_words import Word
from parity.messages import Message, message
from parity.records import Completion, Kind
from parity.records.evidence import RuleEvidence

MOST_NAMED = 8
"""Stretches of forbidden tokens that are named in one completion, for each rule."""


def not_allowed(completion: Completion, asked: Asked, words: Sequence[Word]) -> Iterator[Event]:
    """Tokens that `allowed_token_ids` leaves out."""
    if asked.allowed is None:
        return
    tokens = completion.token_ids
    bad = [
        place
        for place in np.flatnonzero(~np.isin(tokens, list(asked.allowed)) & (tokens >= 0)).tolist()
        if is_any_left(tokens, place, asked, words)
    ]
    if not bad:
        return
    for run in np.split(np.array(bad, dtype=np.int64), np.flatnonzero(np.diff(bad) > 1) + 1)[:MOST_NAMED]:
        why = message(
            "forbidden.allowed",
            "token {token} is not one of those in allowed_token_ids ({known} of them)",
            token=int(tokens[run[0]]),
            known=len(asked.allowed),
        )
        named = tuple(tokens[run[:16]].tolist())
        yield _event(int(run[0]), why, "allowed_token_ids", named, length=len(run))


def bad(completion: Completion, asked: Asked, words: Sequence[Word]) -> Iterator[Event]:
    """Tokens that complete one of `bad_words`."""
    tokens = completion.token_ids
    found = sorted((start + len(word) - 1, word) for word in words for start in _starts(tokens, word))
    for place, word in found[:MOST_NAMED]:
        if is_any_left(tokens, place, asked, words):
            why = message(
                "forbidden.bad_word", "token {token} completes {word!r}, one of bad_words",
                token=word[-1], word=word.text,
            )  # fmt: skip
            yield _event(place, why, "bad_words", tuple(word), word.text)


def before_min_tokens(completion: Completion, asked: Asked, words: Sequence[Word]) -> Iterator[Event]:
    """Tokens that end a completion before `min_tokens`; the last one is an end that came too early."""
    tokens = completion.token_ids
    if not asked.enders:
        return
    for place in np.flatnonzero(np.isin(tokens[: asked.min_tokens], list(asked.enders))).tolist():
        if not is_any_left(tokens, place, asked, words) or (
            place == len(tokens) - 1 and completion.finish_reason == "stop"
        ):
            continue
        why = message(
            "forbidden.min_tokens",
            "token {token} ends a completion, and stands at position {position} of a request with min_tokens {least}",
            token=int(tokens[place]), position=place, least=asked.min_tokens,
        )  # fmt: skip
        yield _event(place, why, "min_tokens", (int(tokens[place]),))


def _event(
    place: int, why: Message, rule: str, forbidden: tuple[int, ...], word: str | None = None, length: int = 1
) -> Event:
    return Event(Kind.FORBIDDEN_TOKEN, place, length, RuleEvidence(why=why, rule=rule, forbidden=forbidden, word=word))


def _starts(tokens: np.ndarray, word: Sequence[int]) -> list[int]:
    count = len(tokens) - len(word) + 1
    if count < 1:
        return []
    hits = np.ones(count, dtype=np.bool_)
    for offset, token in enumerate(word):
        hits &= tokens[offset : offset + count] == token
    return [int(start) for start in np.flatnonzero(hits)]


def is_any_left(tokens: np.ndarray, place: int, asked: Asked, words: Sequence[Word]) -> bool:
    """Did the rules leave any token to choose at this position? All but `allowed_token_ids` leave nearly all."""
    if asked.allowed is None:
        return True
    return bool(asked.allowed - barred(tokens, place, asked, words))


def barred(tokens: np.ndarray, place: int, asked: Asked, words: Sequence[Word]) -> frozenset[int]:
    """Tokens that `min_tokens` and `bad_words` forbid at this position."""
    found = set(asked.stop_ids | asked.eos) if place < asked.min_tokens else set()
    said = tokens[:place].tolist()
    for word in words:
        before = list(word[:-1])
        if len(before) <= place and said[place - len(before) :] == before:
            found.add(word[-1])
    return frozenset(found)
