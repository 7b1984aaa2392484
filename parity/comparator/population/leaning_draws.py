"""Are some tokens drawn oftener than at their probability, whatever the place?

A sampler that weighs a part of the vocabulary wrongly (every other id, a shard, a single id) leaves each token likely
enough: only over the run do too many of these come. For a set of ids and a factor, the likelihood of what was drawn, if
these tokens weighed so many times as much, over that as asked, is an e-value: 1 on average at most. So is the mean over
all sets and factors. Only the listed tokens count, as if no other could have come; where a cut-off, a penalty or a ban
decided as well, nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.reference.drawn_lists import best_of, listed_width, logs_listed
from parity.comparator.statistics import FloatArray
from parity.comparator.sums import sums_of_rows
from parity.messages import Message, message
from parity.records import Completion, TokenIds, TopLogprobs

FACTORS: Final = (0.5, 0.77, 1.3, 2.0)
"""Times as much as asked that a set of tokens weighs. Rounding moves a logit by a tenth of what the nearest of them
does: under it each of them loses."""

EVERY: Final = (2, 3, 4, 8, 16, 32, 64)
"""Each of these many ids."""

SHARDS: Final = (2, 4, 8, 16, 32)
"""Parts of the vocabulary, one after another, as cards share it."""

HABIT: Final = 4.0
"""Times what the same set and factor win on the baseline, that must be won on top."""

PROVEN: Final = 30.0
"""Nats won, from which on it is a finding: less than one chance in 10¹², beside the error rate of the tests."""

MOST: Final = 16_384
"""Tokens of an arm that are looked at."""

FEWEST: Final = 256
"""Tokens that it takes."""

Ids = npt.NDArray[np.int64]


class Leaning(Struct, frozen=True):
    """What was won, in nats, and by which set: ids `part` of `of`, in turn or in one piece (`in_turn`); of 0: the id
    `part` alone. drawn: how often these came; due: how often they were to; tokens: looked at."""

    nats: float
    part: int
    of: int
    in_turn: bool
    drawn: int
    due: float
    tokens: int

    @property
    def which(self) -> Message:
        if not self.of:
            return message("leaning.one", "token {token}", token=self.part)
        if self.in_turn:
            return message(
                "leaning.every", "an id that leaves {part} when divided by {number}", part=self.part, number=self.of
            )
        return message(
            "leaning.shard", "a token of shard {part} of {number} of the vocabulary", part=self.part + 1, number=self.of
        )


class Listed(Struct, frozen=True):
    """N drawn tokens that are listed: ids (N, K), their shares among these (N, K), 0 for none, and the drawn (N,)."""

    ids: Ids
    shares: FloatArray
    drawn: Ids


def listed(scored: Sequence[tuple[Completion, TopLogprobs]], temperatures: Sequence[float]) -> Listed | None:
    """None where too few tokens are listed. What several completions of a prompt say alike counts once: rounds that
    draw by the same numbers are copies."""
    before: dict[bytes, list[TokenIds]] = {}
    width = listed_width([top for _, top in scored], [one.token_ids for one, _ in scored])
    parts, count = [], 0
    for (one, top), temperature in zip(scored, temperatures, strict=True):
        if width < 2 or count >= MOST:
            break
        length = min(len(one.token_ids), len(top))
        best = best_of(top, one.token_ids, width)
        order = np.argsort(-logs_listed(best), axis=1, kind="stable")[:, :width]
        logs = np.take_along_axis(logs_listed(best), order, 1) / temperature
        ids = np.take_along_axis(best.ids, order, 1).astype(np.int64)
        if ids.shape[1] < width:
            continue
        known = np.isfinite(logs).all(axis=1) & (ids == one.token_ids[:length, None]).any(axis=1)
        said = before.setdefault(one.prompt_token_ids.tobytes(), [])
        known[: max((_together(one.token_ids, other) for other in said), default=0)] = False
        said.append(one.token_ids)
        weights = np.exp(logs[known] - logs[known, :1])
        parts.append((ids[known], weights / sums_of_rows(weights)[:, None], one.token_ids[:length][known]))
        count += int(known.sum())
    if count < FEWEST:
        return None
    return Listed(*(np.concatenate([part[at] for part in parts]) for at in range(3)))


def _together(one: TokenIds, other: TokenIds) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    differ = one[:length] != other[:length]
    return int(differ.argmax()) if differ.any() else length


def leaning(baseline: Listed, candidate: Listed, vocab_size: int) -> Leaning:
    """The set that wins most on the candidate, and what all of them together have won."""
    size = max(vocab_size, *(int(one.ids.max()) + 1 for one in (baseline, candidate)))
    known = np.unique(np.concatenate([baseline.ids.ravel(), candidate.ids.ravel()]))
    pairs = zip(_won(baseline, size, known), _won(candidate, size, known), strict=True)
    best: tuple[float, int, tuple[int, bool], int] = (-np.inf, 0, (0, False), 0)
    logs = []
    for (kind, theirs), (_, mine) in pairs:
        net = mine - HABIT * np.maximum(theirs, 0.0)
        logs.append(net.ravel() - np.log(len(FACTORS) * (kind[0] or size)))  # each kind has as much as each other
        factor, at = divmod(int(net.argmax()), net.shape[1])
        best = max(best, (float(net.max()), at if kind[0] else int(known[at]), kind, factor))
    most = max(float(one.max()) for one in logs)
    nats = most + float(np.log(sum(np.exp(one - most).sum() for one in logs) / len(logs)))
    _, part, (of, in_turn), _ = best
    mine, every = (_classes(one, of, size, in_turn=in_turn) == part for one in (candidate.drawn, candidate.ids))
    due = float(np.where(every, candidate.shares, 0.0).sum())
    return Leaning(nats, part, of, in_turn, int(mine.sum()), due, len(candidate.drawn))


def _classes(ids: Ids, of: int, size: int, *, in_turn: bool) -> Ids:
    if not of:
        return ids
    return ids % of if in_turn else ids * of // size


def _won(some: Listed, size: int, known: Ids) -> Iterator[tuple[tuple[int, bool], FloatArray]]:
    """(which sets, nats that each wins by each factor, shape (F, sets)). known: the single ids that are looked at, in
    their order; the others are listed nowhere, and win nothing."""
    steps = np.log(np.array(FACTORS))
    more = np.array(FACTORS)[:, None, None] - 1.0
    rows = np.arange(len(some.drawn))[:, None]
    for of, in_turn in [*((number, True) for number in EVERY), *((number, False) for number in SHARDS)]:
        places = rows * of + _classes(some.ids, of, size, in_turn=in_turn)
        shares = np.bincount(places.ravel(), some.shares.ravel(), len(some.drawn) * of).reshape(-1, of)
        came = np.bincount(_classes(some.drawn, of, size, in_turn=in_turn), minlength=of)
        yield (of, in_turn), steps[:, None] * came - np.log1p(more * shares).sum(axis=1)
    drawn, listed_at = (np.searchsorted(known, ids.ravel()) for ids in (some.drawn, some.ids))
    came = np.bincount(drawn, minlength=len(known))
    lost = [np.bincount(listed_at, np.log1p((one - 1) * some.shares).ravel(), minlength=len(known)) for one in FACTORS]
    yield (0, False), steps[:, None] * came - np.stack(lost)


def of_arms(
    scored: Mapping[str, Sequence[tuple[Completion, TopLogprobs, float]]], arms: tuple[str, str], vocab_size: int | None
) -> Leaning | None:
    """`scored`: of each arm completions that were drawn and nothing else, their scores and temperatures. None where an
    arm has too few."""
    sides = [listed([(one, top) for one, top, _ in scored[arm]], [at for _, _, at in scored[arm]]) for arm in arms]
    baseline, candidate = sides
    return None if baseline is None or candidate is None else leaning(baseline, candidate, vocab_size or 0)
