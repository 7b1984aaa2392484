"""Token ids that no vocabulary has."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup, pair_by_pair
from parity.comparator.detect.events import Event
from parity.comparator.inputs.text import INT32_MAX
from parity.messages import Message, message
from parity.records import Kind, RaggedTokens, TokenIds
from parity.records.evidence import InvalidTokenEvidence


def invalid_rows(tokens: RaggedTokens, vocab_size: int | None) -> set[int]:
    """Streams with a token id outside the vocabulary."""
    limit = vocab_size if vocab_size is not None else INT32_MAX
    # Seen as unsigned, a negative id is larger than any limit: one pass over the tokens.
    return set() if tokens.all_below(limit) else set(tokens.beyond(limit))


def invalid_tokens(tokens: TokenIds, vocab_size: int | None) -> list[Event]:
    """Ids outside [0, vocab_size), one event for each run of them. Unknown vocabulary: outside int32."""
    limit = vocab_size if vocab_size is not None else INT32_MAX
    bad = np.flatnonzero((tokens < 0) | (tokens >= limit))
    events = []
    for run in np.split(bad, np.flatnonzero(np.diff(bad) > 1) + 1):
        if len(run):
            ids = tokens[run].tolist()
            evidence = InvalidTokenEvidence(
                why=_why(ids[0], vocab_size), token_ids=tuple(ids[:16]), vocab_size=vocab_size
            )
            events.append(Event(Kind.INVALID_TOKEN, int(run[0]), len(run), evidence))
    return events


def _why(token: int, vocab_size: int | None) -> Message:
    if vocab_size is None:
        return message(
            "invalid_token.of_none",
            "token id {token} is of no vocabulary: ids are neither negative nor {limit} and more",
            token=token,
            limit=INT32_MAX,
        )
    return message(
        "invalid_token.why", "token id {token} is outside the vocabulary of {limit}", token=token, limit=vocab_size
    )


def _is_asked(setup: Setup) -> bool:
    return bool(setup.invalid)


def _look(case: Case, setup: Setup) -> Case:
    b = case.b
    if b.key not in setup.invalid:
        return case
    return replace(case, events=(*case.events, *invalid_tokens(b.token_ids, setup.vocab_size)))


DETECTOR = Detector(frozenset({Kind.INVALID_TOKEN}), pair_by_pair(_look), is_asked=_is_asked)
