"""Completions to be teacher-forced, and how they are dealt out to an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.records import Json, ScoreKey, TokenIds
from parity.run.process import ProtocolError, printable

SCORE_CHUNK = 256
"""Items of one score command: enough to fill an engine's batch, small enough to lose little."""


@dataclass(frozen=True, slots=True)
class ScoreItem:
    """A completion of `arm` to be teacher-forced: each of its tokens gets the scoring engine's opinion."""

    arm: str
    request: str
    round: int
    sample: int
    prompt_token_ids: Sequence[int] | TokenIds
    token_ids: Sequence[int] | TokenIds

    @property
    def key(self) -> ScoreKey:
        return ScoreKey(self.arm, self.request, self.round, self.sample)

    def to_json(self) -> dict[str, Json]:
        return {
            **self.key._asdict(),
            "prompt_token_ids": _plain_ids(self.prompt_token_ids),
            "token_ids": _plain_ids(self.token_ids),
        }


def _plain_ids(ids: Sequence[int] | TokenIds) -> list[int]:
    """A list of Python integers, also from a numpy array."""
    plain: list[int] = ids.tolist() if isinstance(ids, np.ndarray) else [int(token) for token in ids]
    return plain


def _sequence(item: ScoreItem) -> bytes:
    """A digest of prompt and output: the streams themselves, once more, would be most of what scoring holds."""
    parts = [np.asarray(ids, dtype=np.int64) for ids in (item.prompt_token_ids, item.token_ids)]
    digest = hashlib.blake2b(len(parts[0]).to_bytes(8, "little"), digest_size=16)
    for part in parts:
        digest.update(part.tobytes())
    return digest.digest()


def unscored_entry(message: Mapping[str, Json], lengths: Mapping[ScoreKey, int]) -> list[Json]:
    try:
        key = ScoreKey(**message["key"])
        reason = str(message["reason"])
    except (KeyError, TypeError):
        raise ProtocolError("an unscored event without key and reason") from None
    if key not in lengths:
        raise ProtocolError(f"unscored: nobody asked for {key}")
    return [*key, plain(reason)[:300]]


def chunks(items: Sequence[ScoreItem], replicas: int = 1) -> Iterator[list[ScoreItem]]:
    """Commands' worth of items; the same sequence never in two of them, so it is computed once.

    Small enough that each of `replicas` gets one where there are few items.
    """
    size = max(1, min(SCORE_CHUNK, -(-len(items) // replicas)))
    groups: dict[bytes, list[ScoreItem]] = {}
    for item in items:
        groups.setdefault(_sequence(item), []).append(item)
    chunk: list[ScoreItem] = []
    for group in groups.values():
        chunk += group
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def plain(text: str) -> str:
    """One printable line, bounded."""
    return " ".join(printable(line) for line in text.splitlines())[:2000]
