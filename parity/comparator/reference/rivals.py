"""The baseline's token where two streams part: how good is it by the candidate's score?

Both sides saw the same text up to there and the baseline chose that token. Where the score rejects it the baseline is
at fault there, or the score is not of these tokens: the candidate is not to blame for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from parity.comparator.reference.gaps import BoolArray, FloatArray, gap_instead
from parity.comparator.reference.scores import Reference
from parity.comparator.streams.pairing import Pairs
from parity.records import Completion, Key, TopLogprobs


class Rival(NamedTuple):
    """A token that was not chosen."""

    gap: float
    """Nats below the best."""
    is_exact: bool
    """Else `gap` is a lower bound."""


class Place(NamedTuple):
    """A token that might stand at a place of a completion, and the list there."""

    key: Key
    top: TopLogprobs
    at: int
    token: int
    chosen: int


def rivals_where_parted(
    pairs: Pairs, reference: Reference, arm: str, *, left_out: Callable[[Completion], bool]
) -> dict[Key, Rival]:
    """Of the pairs that part at a token of both; `arm`: the candidate's name, `left_out`: of which of the baseline's
    completions nothing is asked. Where both were chosen from logits that no score shows, only a rival that is the best
    even so is one."""
    places, found, unknown = [], {}, set()
    for b, one in _places(pairs, reference, arm, left_out):
        shaping = reference.shaping(b)
        if shaping.unknown:
            unknown.add(one.key)
        penalised = shaping.penalised(b)
        if penalised is None:
            places.append(one)
        elif gap := gap_instead(one.top, one.at, one.token, b.token_ids[: one.at], penalised, own=one.chosen):
            found[one.key] = Rival(*gap)
    found |= gaps_of_rivals(places)
    return {key: rival for key, rival in found.items() if not rival.gap or key not in unknown} if unknown else found


def _places(
    pairs: Pairs, reference: Reference, arm: str, left_out: Callable[[Completion], bool]
) -> Iterator[tuple[Completion, Place]]:
    if not reference.scored(arm):
        return
    rows = np.flatnonzero(~pairs.identical)
    for row, at in zip(rows.tolist(), pairs.parts_at[rows].tolist(), strict=True):
        a, b = pairs.baseline[row], pairs.candidate[row]
        if at >= min(len(a.token_ids), len(b.token_ids)) or left_out(a):
            continue
        top = reference.score(arm, b)
        if top is not None and at < len(top.ids):
            yield b, Place(b.key, top, at, a.token_ids.item(at), b.token_ids.item(at))


def gaps_of_rivals(places: Sequence[Place]) -> dict[Key, Rival]:
    """`gap_of_other` of each, all at once; where a list says nothing there is none."""
    found: dict[Key, Rival] = {}
    widths = np.array([one.top.ids.shape[1] for one in places], dtype=np.int64)
    for width in set(widths[widths > 0].tolist()):
        some = [places[row] for row in np.flatnonzero(widths == width).tolist()]
        gap, is_exact = _of_one_width(
            np.concatenate([one.top.ids[one.at] for one in some]).reshape(-1, width),
            np.concatenate([one.top.values[one.at] for one in some]).reshape(-1, width),
            np.array([one.token for one in some], dtype=np.int64),
            np.array([one.chosen for one in some], dtype=np.int64),
        )
        each = zip(some, gap.tolist(), is_exact.tolist(), strict=True)
        found |= {one.key: Rival(value, exact) for one, value, exact in each if value == value}
    return found


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
    gap[best == -np.inf] = np.nan
    return gap, exact
