"""Completions to be teacher-forced, and how they are dealt out to an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parity.records import ScoreKey, TokenIds

SCORE_CHUNK = 256
"""Items of one score command: enough to fill an engine's batch, small enough to lose little."""


@dataclass(frozen=True, slots=True)
class ScoreItem:
    """A completion of `arm` to be teacher-forced: each of its tokens gets the scoring engine's top logprobs."""

    arm: str
    request: str
    round: int
    sample: int
    prompt_token_ids: Sequence[int] | TokenIds
    token_ids: Sequence[int] | TokenIds

    @property
    def key(self) -> ScoreKey:
        return ScoreKey(self.arm, self.request, self.round, self.sample)


def _sequence(item: ScoreItem) -> bytes:
    """A digest of prompt and output: the streams themselves, once more, would be most of what scoring holds."""
    parts = [np.asarray(ids, dtype=np.int64) for ids in (item.prompt_token_ids, item.token_ids)]
    digest = hashlib.blake2b(len(parts[0]).to_bytes(8, "little"), digest_size=16)
    for part in parts:
        digest.update(part.tobytes())
    return digest.digest()


def longest_first(items: Sequence[ScoreItem]) -> list[ScoreItem]:
    """The longest sequence before all others, which stay in their order.

    Scoring takes memory that no profile run of an engine counts (vllm#5907), most of it for the longest prompt: if it
    does not fit, that is said before hours are spent.
    """
    if not items:
        return []
    longest = max(range(len(items)), key=lambda at: len(items[at].prompt_token_ids) + len(items[at].token_ids))
    return [items[longest], *items[:longest], *items[longest + 1 :]]


def chunks(items: Sequence[ScoreItem], replicas: int = 1) -> Iterator[list[ScoreItem]]:
    """Commands' worth of items; the same sequence never in two of them, so it is computed once.

    Small enough that each of `replicas` gets one where there are few items.
    """
    size = max(1, min(SCORE_CHUNK, -(-len(items) // replicas)))
    groups: dict[bytes, list[ScoreItem]] = {}
    for item in longest_first(items):
        groups.setdefault(_sequence(item), []).append(item)
    chunk: list[ScoreItem] = []
    for group in groups.values():
        chunk += group
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
