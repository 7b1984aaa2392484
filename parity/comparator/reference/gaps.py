"""Justification: does the reference support each token that the candidate chose?

In greedy decoding a token is justified when its logprob under the reference, which saw exactly the tokens
before it, lies within the tolerance of the best token's. The score of a completion (teacher-forced with
speculation off) answers that for every position; without it each side's own logprobs answer it for the first
divergent token only, because up to there both sides saw the same text.

Source of the rule: `check_first_divergence` in vLLM's tests/v1/e2e/general/async_scheduling_utils.py, which
also bounds a token outside the top-k by the k-th.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.reference.listed import Ids, descend, rows_of, untold
from parity.comparator.reference.penalties import Penalised, most_raised, penalise
from parity.records import TokenIds, TopLogprobs
from parity.records.evidence import Numbers

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

BATCH = 8_192
"""Tokens whose lists are looked at together: enough to make calls cheap, few enough to stay in the processor's
cache."""

EXACT = 1e-6
"""Nats between two bounds of a gap that are one number."""

ROUNDED = 1e-3
"""Probability that logprobs written with a few decimals may leave out."""


class TokenGaps(Struct, frozen=True):
    """What the reference says of the T tokens of one completion; arrays of shape (T,), nats.

    gap: best logprob minus the chosen token's, 0 where the chosen token is the best; NaN where unknown. Under penalties
        and biases it is what they leave of the logprobs, in units of the noise of a logit: where they multiply
        differences, it is divided by as much.
    bounded: `gap` is only a lower bound: the chosen token was not among the listed ones, or a penalty may have made
        one the best that is not listed.
    best, chosen: raw logprobs of the best token (after penalties) and of the chosen one.
    """

    gap: FloatArray
    bounded: BoolArray
    best_id: npt.NDArray[np.int64]
    best: FloatArray
    chosen: FloatArray
    most: FloatArray
    """The gap is at most this: infinite where nothing says so, `gap` where that is exact."""
    wanted: FloatArray | None = None
    """Under penalties: tokens that a list must hold at most, so that none can be missing; NaN where none is."""

    def unsupported(self, tolerance: float) -> BoolArray:
        return np.asarray(self.gap > tolerance)

    def supports(self, position: int, tolerance: float) -> bool | None:
        """Is the token at `position` justified? None where the reference has no say."""
        gap = self.gap.item(position)
        if gap > tolerance:
            return False
        return True if gap <= tolerance and self.most.item(position) < np.inf else None

    def undecided(self, tolerance: float) -> BoolArray:
        """Positions that are supported by what is known of the penalties, and might not be if more were known."""
        return np.asarray((self.gap <= tolerance) & (self.most > tolerance) & np.isfinite(self.most))

    def first(self, size: int) -> TokenGaps:
        """Of the first `size` tokens."""
        some = slice(size)
        return TokenGaps(
            self.gap[some],
            self.bounded[some],
            self.best_id[some],
            self.best[some],
            self.chosen[some],
            self.most[some],
            None if self.wanted is None else self.wanted[some],
        )

    def at(self, position: int) -> Numbers:
        """The numbers of one position, for evidence."""
        return Numbers(
            gap=_number(self.gap.item(position)),
            gap_is_lower_bound=self.bounded.item(position),
            best_token=self.best_id.item(position),
            best_logprob=_number(self.best.item(position)),
            chosen_logprob=_number(self.chosen.item(position)),
        )


def _number(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


class Decided(Struct, frozen=True):
    """What a tolerance makes of the gaps of one completion: positions, ascending."""

    rejected: list[int]
    """Tokens that the reference does not support."""
    unknown: list[int]
    """Tokens on which it has no say: nothing listed, or a bound that decides nothing."""

    def supports(self, position: int) -> bool | None:
        """As `TokenGaps.supports`."""
        if self.rejected_in(position, position + 1):
            return False
        at = bisect_left(self.unknown, position)
        return None if at < len(self.unknown) and self.unknown[at] == position else True

    def rejected_in(self, start: int, stop: int) -> list[int]:
        """Those from `start` to before `stop`."""
        found = self.rejected
        return found[bisect_left(found, start) : bisect_left(found, stop)] if found else found


def decided(views: Sequence[TokenGaps], tolerance: float) -> list[Decided]:
    """What a tolerance makes of the gaps of many completions, BATCH tokens at a time."""
    found: list[Decided] = []
    for rows in batches([len(view.gap) for view in views]):
        some = views[rows]
        gap = np.concatenate([view.gap for view in some])
        rejected = gap > tolerance
        if all(view.most is view.gap for view in some):  # all is exact
            unknown = ~(np.isfinite(gap) | rejected)
        else:
            unknown = np.isnan(gap) | (np.isinf(np.concatenate([view.most for view in some])) & ~rejected)
        ends = np.cumsum([len(view.gap) for view in some]).tolist()
        found += map(Decided, _by_row(np.flatnonzero(rejected), ends), _by_row(np.flatnonzero(unknown), ends))
    return found


def places_beyond(gaps: FloatArray, sizes: Sequence[int], nats: float) -> Iterator[list[int]]:
    """Of each of some completions: where its token lies farther below the best, ascending. gaps: of completions of
    these sizes, end to end."""
    return _by_row(np.flatnonzero(gaps > nats), np.cumsum(sizes).tolist())


def batches(sizes: Sequence[int]) -> Iterator[slice]:
    """Rows of these sizes that make up to BATCH together; one at least."""
    begin, total = 0, 0
    for row, size in enumerate(sizes):
        if row > begin and total + size > BATCH:
            yield slice(begin, row)
            begin, total = row, 0
        total += size
    if begin < len(sizes):
        yield slice(begin, len(sizes))


def end_to_end(arrays: Iterable[FloatArray]) -> Iterator[FloatArray]:
    """Arrays of shape (T,) put together, about BATCH numbers at a time."""
    some: list[FloatArray] = []
    size = 0
    for one in arrays:
        some.append(one)
        size += len(one)
        if size >= BATCH:
            yield np.concatenate(some)
            some, size = [], 0
    if some:
        yield np.concatenate(some)


def _by_row(places: npt.NDArray[np.int64], ends: Sequence[int]) -> Iterator[list[int]]:
    """Places in rows that lie end to end, row by row; `ends`: where each ends."""
    begin = first = 0
    for end, last in zip(ends, np.searchsorted(places, ends).tolist(), strict=True):
        yield (places[first:last] - begin).tolist() if last > first else []
        begin, first = end, last


def no_gaps(length: int) -> TokenGaps:
    """Nothing is known of `length` tokens."""
    nothing = np.full(length, np.nan)
    return TokenGaps(
        gap=nothing.copy(),
        bounded=np.zeros(length, dtype=np.bool_),
        best_id=np.full(length, -1, dtype=np.int64),
        best=nothing.copy(),
        chosen=nothing.copy(),
        most=np.full(length, np.inf),
    )


def token_gaps(top: TopLogprobs, token_ids: TokenIds, penalised: Penalised | None = None) -> TokenGaps:
    """The gaps of `token_ids` (T,), from the reference's top tokens per position.

    Positions that the logprobs do not cover are unknown, and so are those of which the chosen token's own value is no
    logprob. Values above zero or NaN are none and are left out.

    `penalised` is given where the engine chose from other logits than the lists show: by penalties or biases.
    """
    length = len(token_ids)
    covered = min(length, len(top))
    if not covered or not top.ids.shape[1]:
        return no_gaps(length)
    ids, values = top.ids[:covered], top.values[:covered]
    if penalised is None:
        result = _covered([ids], values, token_ids[:covered])
    else:
        result = _penalised(ids, values, top.logsumexp, token_ids[:covered], penalised)
    if covered == length:
        return result
    rest = no_gaps(length - covered)
    wanted = None if result.wanted is None else np.concatenate([result.wanted, rest.gap])
    return TokenGaps(
        np.concatenate([result.gap, rest.gap]),
        np.concatenate([result.bounded, rest.bounded]),
        np.concatenate([result.best_id, rest.best_id]),
        np.concatenate([result.best, rest.best]),
        np.concatenate([result.chosen, rest.chosen]),
        np.concatenate([result.most, rest.most]),
        wanted,
    )


def batched_token_gaps(scored: Sequence[tuple[TopLogprobs, TokenIds]]) -> list[TokenGaps]:
    """`token_gaps` of many completions without penalties; the arrays are computed BATCH tokens at a time."""
    result: list[TokenGaps | None] = [None] * len(scored)
    by_width: dict[int, list[int]] = {}
    for row, (top, tokens) in enumerate(scored):
        if len(top) == len(tokens) and len(tokens) and top.ids.shape[1]:
            by_width.setdefault(top.ids.shape[1], []).append(row)
        else:
            result[row] = token_gaps(top, tokens)
    for rows in by_width.values():
        for batch in batches([len(scored[row][1]) for row in rows]):
            some = [scored[row] for row in rows[batch]]
            whole = _covered(
                [top.ids for top, _ in some],
                np.concatenate([top.values for top, _ in some]),
                np.concatenate([tokens for _, tokens in some]),
            )
            at = 0
            for row, (_, tokens) in zip(rows[batch], some, strict=True):
                part = slice(at, at := at + len(tokens))
                gap = whole.gap[part]
                most = gap if whole.most is whole.gap else whole.most[part]
                result[row] = TokenGaps(
                    gap, whole.bounded[part], whole.best_id[part], whole.best[part], whole.chosen[part], most
                )
    return [one for one in result if one is not None]


def _covered(ids: Sequence[Ids], values: FloatArray, token_ids: TokenIds) -> TokenGaps:
    """`token_gaps` where every token has an entry: ids and values of shape (T, K), T and K above 0; `ids` in parts that
    lie end to end, since few of them are looked at."""
    with np.errstate(invalid="ignore"):
        best, best_id = values[:, 0].copy(), np.concatenate([part[:, 0] for part in ids])
        usable = best <= 1e-3  # NaN fails the test
        all_usable = bool(usable.all())
        if not all_usable:
            best[~usable] = -np.inf
        listed = best_id == token_ids
        own = best.copy()
        own[~listed] = -np.inf
        if best.min() == -np.inf:
            best_id[best == -np.inf] = -1
        if not (all_usable and descend(values)):
            # Rank by rank: a reduction over K values a row costs numpy ten times as much.
            for rank, logprobs in zip(np.concatenate(ids).T[1:], values.T[1:], strict=True):
                better = (logprobs > best) & (logprobs <= 1e-3)
                np.copyto(best, logprobs, where=better)
                np.copyto(best_id, rank, where=better)
        # A chosen token that stands first and is the best one gains nothing by standing there again.
        rest = np.flatnonzero(~listed | (own < best))
        if len(rest):
            others, again = values[rest, 1:], rows_of(ids, rest)[:, 1:] == token_ids[rest, None]
            listed[rest] |= again.any(axis=1)
            highest = np.where(again & (others <= 1e-3), others, -np.inf).max(axis=1, initial=-np.inf)
            own[rest] = np.maximum(own[rest], highest)
            impossible = rest[listed[rest] & np.isneginf(own[rest])]
            if len(impossible):
                some = impossible[untold(rows_of(ids, impossible), values[impossible] <= 1e-3, token_ids[impossible])]
                best[some] = -np.inf
                best_id[some] = -1
    if not listed.all():
        # A chosen token that is not listed is at most as likely as the last one listed.
        unlisted = values[~listed]
        usable_values = np.where(unlisted <= 1e-3, unlisted, np.inf)
        own[~listed] = np.where(np.isneginf(usable_values), np.inf, usable_values).min(axis=1)
    with np.errstate(invalid="ignore"):
        gap = best - own
    if best.min() == -np.inf:
        nothing = best == -np.inf
        gap[nothing] = best[nothing] = np.nan
        bounded = ~listed & ~nothing
    else:
        bounded = ~listed
    # Where all is exact, one array is both: for a million tokens they are 8 MB each.
    chosen, most = own, gap
    if not listed.all():
        chosen = np.where(listed, own, np.nan)
    if bounded.any():
        most = np.where(bounded, np.inf, gap)
    return TokenGaps(gap, bounded, best_id, best, chosen, most)


def _penalised(
    ids: npt.NDArray[np.int64],
    values: FloatArray,
    recorded: FloatArray | None,
    tokens: TokenIds,
    penalised: Penalised,
) -> TokenGaps:
    """`_covered` where the engine chose by what penalties leave of the logprobs.

    An upper and a lower bound of each gap come from what is not known: tokens that are not listed, and the
    normaliser of the logits where a repetition penalty needs it. `gap` is the lower one.
    """
    length = len(tokens)
    usable = values <= 1e-3
    raw = np.where(usable, values, -np.inf)
    is_chosen = ids == tokens[:, None]
    listed = (is_chosen & usable).any(axis=1)
    chosen = np.where(is_chosen, raw, -np.inf).max(axis=1)
    last = last_listed(usable, raw, is_chosen)
    own_raw = np.where(listed, chosen, last)
    seen, seen_own = penalised.seen(ids, tokens), penalised.seen(tokens[:, None], tokens)
    least, most = np.full(length, np.inf), np.full(length, -np.inf)
    place = np.zeros(length, dtype=np.int64)
    lowest, short = np.full(length, np.inf), np.zeros(length, dtype=np.bool_)
    rows = np.arange(length)
    tried = penalised.normalisers(recorded, length)
    if len(tried) > 1 and penalised.penalties.repetition < 1.0:
        tried += penalised.turns(raw, seen, recorded) + penalised.turns(own_raw[:, None], seen_own, recorded)
    for normaliser in tried:
        scores, noise = penalise(raw, seen, penalised.penalties, normaliser)
        scores = np.where(usable, scores, -np.inf)
        own_scores, own_noise = penalise(own_raw[:, None], seen_own, penalised.penalties, normaliser)
        own = own_scores[:, 0]
        at = scores.argmax(axis=1)
        best = scores[rows, at]
        unit = np.maximum(1.0, np.maximum(noise[rows, at], own_noise[:, 0]))
        unlisted = most_raised(last, ids, tokens, penalised, normaliser)
        with np.errstate(invalid="ignore"):
            gap = np.maximum(best - own, 0.0) / unit
            highest = np.maximum(best, unlisted) - own
            short |= unlisted - own > np.maximum(best - own, 0.0) + 1e-6
            lowest = np.fmin(lowest, own - (unlisted - last))  # raw logprobs that may be raised above its own
        place = np.where(gap < least, at, place)
        least, most = np.fmin(least, gap), np.fmax(most, np.maximum(highest / unit, gap))
    nothing = ~usable.any(axis=1) | ~np.isfinite(least) | untold(ids, usable, tokens)
    least[nothing] = np.nan
    most = np.where(nothing | ~listed, np.inf, most)
    bounded = ~nothing & (most > least + EXACT)
    wanted = np.where(bounded & listed & short, _tokens_above(lowest, usable, raw, is_chosen, chosen), np.nan)
    return TokenGaps(
        least,
        bounded,
        np.where(nothing, -1, ids[rows, place]),
        np.where(nothing, np.nan, raw[rows, place]),
        np.where(listed, chosen, np.nan),
        most,
        wanted,
    )


def last_listed(usable: BoolArray, raw: FloatArray, is_chosen: BoolArray) -> FloatArray:
    """The logprob (T,) that no unlisted token exceeds: that of the last of the best ones. A chosen token that is not
    among the best ones stands in the list as well, which makes it longer than others."""
    others = usable & ~is_chosen
    own = np.where(is_chosen & usable, raw, -np.inf).max(axis=1)
    rest = np.where(others, raw, np.inf).min(axis=1)
    rest = np.where(np.isposinf(rest), own, rest)
    count = others.sum(axis=1)
    inside = (own > rest) | (np.where(is_chosen & usable, 1, 0).sum(axis=1) > 1)
    # As long as the longest whose chosen token is among the best ones: this one is the last of them.
    shortest = (count[inside] + 1).max(initial=0)
    rest = np.where(~inside & (count < shortest) & np.isfinite(own), own, rest)
    return np.asarray(np.minimum(rest, np.log(_left(others, raw, own) + ROUNDED)))


def _tokens_above(
    level: FloatArray, usable: BoolArray, raw: FloatArray, is_chosen: BoolArray, own: FloatArray
) -> FloatArray:
    """At most so many tokens have a logprob above `level` (T,), by what probability is left beside those listed."""
    left = _left(usable & ~is_chosen, raw, own)
    with np.errstate(over="ignore"):
        return np.asarray(np.ceil(usable.sum(axis=1) + left * np.exp(np.minimum(-level, 50.0))))


def _left(others: BoolArray, raw: FloatArray, own: FloatArray) -> FloatArray:
    """Probability (T,) that is left to tokens not listed; `own`: logprob of the chosen token, which some lists have
    twice."""
    return np.asarray(np.clip(1.0 - np.exp(raw).sum(axis=1, where=others) - np.exp(own), 0.0, 1.0))


def gap_of_other(
    top: TopLogprobs | None,
    position: int,
    token_id: int,
    *,
    own: int | None = None,
) -> tuple[float, bool] | None:
    """How far `token_id` lies below the best token in the list of one position (nats), without penalties.

    `own`: the token that the list was made for, which stands in it whatever its rank, so that others may lie between it
    and the rest.

    (gap, exact); with exact False the token is not listed and the gap is a lower bound. None: no list there.
    """
    if top is None or position >= len(top):
        return None
    # One short list: plain Python is faster than arrays here.
    best = here = -math.inf
    last = math.inf
    is_there = is_told = False
    for listed, value in zip(top.ids[position].tolist(), top.values[position].tolist(), strict=True):
        if -math.inf < value <= 1e-3:
            if value > best:
                best = value
            if listed == token_id:
                here = max(here, value)
            elif value < last and listed != own:
                last = value
        if listed == token_id:
            is_there, is_told = True, is_told or value <= 1e-3
    if best == -math.inf or (is_there and not is_told):  # `untold`
        return None
    if here > -math.inf:
        return best - here, True
    return best - min(best, last), False


def gap_instead(
    top: TopLogprobs | None,
    position: int,
    token_id: int,
    said: TokenIds,
    penalised: Penalised | None,
    *,
    own: int | None = None,
) -> tuple[float, bool] | None:
    """`gap_of_other` under penalties: `said` are the tokens before `position`."""
    found = bounds_instead(top, position, token_id, said, penalised, own=own)
    return None if found is None else (found[0], found[1] <= found[0] + EXACT)


def bounds_instead(
    top: TopLogprobs | None,
    position: int,
    token_id: int,
    said: TokenIds,
    penalised: Penalised | None,
    *,
    own: int | None = None,
) -> tuple[float, float] | None:
    """(at least, at most) for `gap_instead`; at most infinitely far where the token is not listed."""
    if penalised is None or top is None or position >= len(top):
        found = gap_of_other(top, position, token_id, own=own)
        return None if found is None else (found[0], found[0] if found[1] else math.inf)
    here = slice(position, position + 1)
    ids, values = top.ids[here], top.values[here]
    if own is not None and own != token_id and not (ids == token_id).any():
        values = np.where(ids == own, np.nan, values)  # it says nothing of where the list ends
    recorded = None if top.logsumexp is None else top.logsumexp[here]
    history = said[:position]
    view = _penalised(ids, values, recorded, np.array([token_id]), penalised.after(history))
    gap = float(view.gap[0])
    return None if gap != gap else (gap, float(view.most[0]))
