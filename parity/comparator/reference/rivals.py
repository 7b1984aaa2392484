"""The baseline's token where two streams part: how good is it by the candidate's score?

Both sides saw the same text up to there and the baseline chose that token. Where the score rejects it the baseline is
at fault there, or the score is not of these tokens: the candidate is not to blame for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from parity.comparator.reference.gaps import BoolArray, FloatArray, gap_instead
from parity.comparator.reference.listed import untold
from parity.comparator.reference.scores import Reference
from parity.comparator.streams.pairing import Pairs
from parity.records import Completion, Key


class Rival(NamedTuple):
    """A token that was not chosen."""

    gap: float
    """Nats below the best."""
    is_exact: bool
    """Else `gap` is a lower bound."""


class Rivals(Mapping[Key, Rival]):
    """By the keys of the pairs."""

    def __init__(self, rows: Mapping[Key, int], gaps: FloatArray, exact: BoolArray) -> None:
        """rows: of each key, where its numbers stand; gaps, exact: shape (N,)."""
        self._rows, self._gaps, self._exact = rows, gaps, exact

    @staticmethod
    def none() -> Rivals:
        return Rivals({}, *_NONE)

    def __getitem__(self, key: Key) -> Rival:
        row = self._rows[key]
        return Rival(self._gaps.item(row), self._exact.item(row))

    def find(self, key: Key) -> Rival | None:
        """`get`, which asks twice."""
        row = self._rows.get(key)
        return None if row is None else Rival(self._gaps.item(row), self._exact.item(row))

    def beyond(self, nats: float) -> Mapping[Key, float]:
        """Of those farther below the best: how far."""
        far = set(np.flatnonzero(self._gaps > nats).tolist())
        return {key: self._gaps.item(row) for key, row in self._rows.items() if row in far} if far else {}

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class Place(NamedTuple):
    """Where a pair parts: its number, the lists there (shape (K,)), the token that might stand there, and the one that
    does."""

    number: int
    ids: npt.NDArray[np.int64]
    values: FloatArray
    token: int
    chosen: int


def rivals_where_parted(
    pairs: Pairs, reference: Reference, arm: str, *, left_out: Callable[[Completion], bool] | None
) -> Rivals:
    """Of the pairs that part at a token of both; `arm`: the candidate's name, `left_out`: of which of the baseline's
    completions nothing is asked (None: of all). Where both were chosen from logits that no score shows, only a rival
    that is the best even so is one."""
    parted = np.flatnonzero(~pairs.identical) if reference.scored(arm) else np.empty(0, dtype=np.int64)
    pieces = (parted[begin : begin + _AT_ONCE] for begin in range(0, len(parted), _AT_ONCE))
    found = [_in_rows(pairs, piece, reference, arm, left_out) for piece in pieces]
    gaps, exact = map(np.concatenate, zip(_NONE, *found, strict=True))
    known = np.flatnonzero(gaps == gaps)
    return Rivals(pairs.numbered(parted[known], known), gaps, exact)


_NONE = (np.empty(0), np.empty(0, dtype=np.bool_))
_AT_ONCE = 1 << 10
"""Pairs whose lists are held together."""


def _in_rows(
    pairs: Pairs,
    rows: npt.NDArray[np.int64],
    reference: Reference,
    arm: str,
    left_out: Callable[[Completion], bool] | None,
) -> tuple[FloatArray, BoolArray]:
    """(nats below the best, is it exact) in each of these rows, NaN where there is no rival."""
    plain = []
    gaps, exact, unknown = np.full(len(rows), np.nan), *np.zeros((2, len(rows)), dtype=np.bool_)
    for number, (row, at) in enumerate(zip(rows.tolist(), pairs.parts_at[rows].tolist(), strict=True)):
        a, b = pairs.baseline[row], pairs.candidate[row]
        theirs, own = a.token_ids, b.token_ids
        if at >= len(theirs) or at >= len(own) or (left_out is not None and left_out(a)):
            continue
        top = reference.score(arm, b)
        if top is None or at >= len(top.ids):
            continue
        shaping = reference.shaping(b)
        if shaping.unknown:
            unknown[number] = True
        penalised = shaping.penalised(b)
        if penalised is None:
            plain.append(Place(number, top.ids[at], top.values[at], theirs.item(at), own.item(at)))
        elif found := gap_instead(top, at, theirs.item(at), own[:at], penalised, own=own.item(at)):
            gaps[number], exact[number] = found
    listed = [one.number for one in plain]
    gaps[listed], exact[listed] = gaps_of_rivals(plain)
    gaps[unknown & (gaps != 0)] = np.nan
    return gaps, exact


def gaps_of_rivals(places: Sequence[Place]) -> tuple[FloatArray, BoolArray]:
    """`gap_of_other` of each, all at once: nats, NaN where a list says nothing, and whether they are exact; shape
    (N,)."""
    gaps, exact = np.full(len(places), np.nan), np.zeros(len(places), dtype=np.bool_)
    widths = np.array([len(one.ids) for one in places], dtype=np.int64)
    for width in set(widths[widths > 0].tolist()):
        here = np.flatnonzero(widths == width)
        some = [places[number] for number in here.tolist()]
        gaps[here], exact[here] = _of_one_width(
            np.concatenate([one.ids for one in some]).reshape(-1, width),
            np.concatenate([one.values for one in some]).reshape(-1, width),
            np.array([one.token for one in some], dtype=np.int64),
            np.array([one.chosen for one in some], dtype=np.int64),
        )
    return gaps, exact


def _of_one_width(
    ids: npt.NDArray[np.int64], values: FloatArray, other: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]
) -> tuple[FloatArray, BoolArray]:
    """ids, values: shape (N, K); other, chosen: shape (N,). The gap is NaN where nothing is listed."""
    usable = (values > -np.inf) & (values <= 1e-3)
    is_other = usable & (ids == other[:, None])
    best = np.where(usable, values, -np.inf).max(axis=1)
    here = np.where(is_other, values, -np.inf).max(axis=1)
    # The chosen token stands in the list whatever its rank, so that others may lie between it and the rest.
    last = np.where(usable & ~is_other & (ids != chosen[:, None]), values, np.inf).min(axis=1)
    exact = here > -np.inf
    with np.errstate(invalid="ignore"):
        gap = np.where(exact, best - here, best - np.minimum(best, last))
    gap[(best == -np.inf) | untold(ids, values <= 1e-3, other)] = np.nan
    return gap, exact
