"""Finds, for a completion, the best reference there is: its score, a score of the same tokens, or logprobs.

Scores are keyed by arm and completion. Where both arms carry one name (an arm compared with itself), and where
two completions are the same token sequence (scored once), a score is taken for a completion only if it fits
it: one entry per token, the chosen token listed.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.inputs.questions import temperature_in
from parity.comparator.reference.gaps import (
    EXACT,
    FloatArray,
    TokenGaps,
    batched_token_gaps,
    bounds_instead,
    no_gaps,
    token_gaps,
)
from parity.comparator.reference.logit_range import logit_range
from parity.comparator.reference.penalties import Penalised, Penalties
from parity.comparator.reference.shaping import Shaping, shaping_of
from parity.comparator.reference.stored import GapShelf, ScoredGaps, packed
from parity.comparator.reference.tolerance import DOUBT
from parity.comparator.sums import most_together
from parity.comparator.types import Remarks, Spread, alone
from parity.messages import Message, message
from parity.records import (
    DEFAULT_TOLERANCE,
    Capture,
    Completion,
    Json,
    Key,
    Lazy,
    ScoreKey,
    Scores,
    TokenIds,
    TopLogprobs,
)
from parity.records.score_table import ArmScores, ScoreTable, Shelf
from parity.unnamed import blank

ABOUT = message("spread.scores", "tokens and their scores")

LIKELY = -5.0
"""Nats. Below this logprob two kernels disagree by more than the tolerance without a fault."""

MORE_THAN_HALF = float(np.log(0.5))
"""Nats: a token with more than half of the probability is the best one, whatever else there is."""


class Reference:
    """The scores of a comparison, looked up by completion."""

    def __init__(
        self,
        baseline: Capture,
        candidate: Capture,
        scores: Scores,
        masked: frozenset[str] = frozenset(),
        spread: Spread = alone,
    ) -> None:
        """`scores`: all there are, those of the captures among them (`conventions.same_habits`); `masked`: parameters
        whose forbidden tokens these do not list (`Inputs.masked`)."""
        self._spread = spread
        self._scores: Mapping[ScoreKey, TopLogprobs] = scores
        self._baseline = baseline
        self.chosen_alone = bool(scores) and all(top.ids.shape[1] <= 1 for top in scores.values())
        """The scores list nothing but the chosen tokens: how good the best one was, they do not say."""
        self._ambiguous = baseline.header.arm == candidate.header.arm
        self._sampling = {**baseline.header.sampling, **candidate.header.sampling}
        knows_prompts = bool(baseline.prompts.total or candidate.prompts.total)
        shaping = partial(shaping_of, masked=masked, knows_prompts=knows_prompts)
        self._shaping = shaping(self._sampling)
        each = (arm.completions[key].sampling for arm in (baseline, candidate) for key in arm.own_sampling)
        own = {_name_of(one): one for one in each}
        self._own_shaping = {name: shaping({**self._sampling, **sampling}) for name, sampling in own.items()}
        self._by_arm: Mapping[str, Mapping[Key, TopLogprobs]] = _by_arm(scores)
        self._shelves: dict[str, _Shelved] = {}
        self._known: dict[tuple[str, Key], tuple[Completion, TokenGaps]] = {}
        self._learn_logits(baseline, candidate)
        self.remarks = Remarks(notes=self._notes(baseline, candidate))

    def __bool__(self) -> bool:
        return bool(self._scores)

    @property
    def can_reject(self) -> bool:
        """Are there scores that can say of a token that it is not supported? Those of chosen tokens alone cannot."""
        return bool(self._scores) and not self.chosen_alone

    def _learn_logits(self, baseline: Capture, candidate: Capture) -> None:
        """Where a repetition penalty needs the logits and the scores do not record them, the baseline's own choices say
        where they lie."""
        shapings = (self._shaping, *self._own_shaping.values())
        if all(one.penalties.is_additive for one in shapings):
            return
        found = logit_range(self._chosen_by_baseline(baseline, candidate))
        self._shaping = self._shaping.within(found)
        self._own_shaping = {name: shaping.within(found) for name, shaping in self._own_shaping.items()}

    def _chosen_by_baseline(
        self, baseline: Capture, candidate: Capture
    ) -> Iterator[tuple[TopLogprobs, TokenIds, Penalised]]:
        """Lists of tokens that the baseline chose as the best: its scores, those of the candidate as far as it said the
        same, and its own logprobs. Of drawn tokens none need be that."""
        for one in baseline:
            penalised = self.shaping(one).penalised(one)
            if penalised is None or penalised.penalties.is_additive or temperature_in(baseline.sampling_of(one)) > 0:
                continue
            top, until = self.score(baseline.header.arm, one), len(one.token_ids)
            other = candidate.completions.get(one.key)
            if top is None and other is not None and np.array_equal(other.prompt_token_ids, one.prompt_token_ids):
                top = self.score(candidate.header.arm, other)
                together = min(len(one.token_ids), len(other.token_ids))
                same = one.token_ids[:together] == other.token_ids[:together]
                until = together if same.all() else int(same.argmin())
            if top is None and _fits(one):
                top, until = one.lists, len(one.token_ids)
            if top is not None and until:
                yield top, one.token_ids[:until], penalised

    @property
    def scores(self) -> Scores:
        """All that are used."""
        return self._scores

    def shaping(self, completion: Completion) -> Shaping:
        """What the request's parameters did to the logits that this completion was chosen from."""
        return self._own_shaping[_name_of(completion.sampling)] if completion.sampling else self._shaping

    @property
    def penalises(self) -> bool:
        """Some request asked for a penalty."""
        return any(one.penalises for one in (self._shaping, *self._own_shaping.values()))

    @property
    def penalties_asked(self) -> tuple[Penalties, ...]:
        """What the requests of the run asked for, each once."""
        return tuple(dict.fromkeys(one.penalties for one in (self._shaping, *self._own_shaping.values())))

    @property
    def shaped_by(self) -> tuple[str, ...]:
        """Sampling parameters by which the engines chose from other logits than scores and lists show."""
        return tuple(sorted({name for one in (self._shaping, *self._own_shaping.values()) for name in one.hidden}))

    def gaps(self, arm: str, completion: Completion) -> TokenGaps | None:
        """The gaps of this completion by its score, penalties allowed for; None without a score."""
        found = self.all_gaps(arm, [completion]).get(completion.key)
        return None if found is None else found[0]

    def _as_far_as_known(self, gaps: TokenGaps, shaping: Shaping) -> TokenGaps:
        """Where a list holds the chosen token alone, it is the best one for sure only with more than half of all; where
        the engine chose from other logits, a token that is not the best of these says nothing."""
        if self.chosen_alone:
            gaps = replace(gaps, gap=np.where(gaps.chosen >= MORE_THAN_HALF, gaps.gap, np.nan))
        return _without_unknown(gaps, shaping)

    def all_gaps(self, arm: str, completions: Sequence[Completion]) -> Mapping[Key, tuple[TokenGaps, TopLogprobs]]:
        """`gaps` and `score` of all of `completions` that are scored. Each is computed once, whoever asks."""
        if arm not in self._by_arm:
            return {}
        table = self._by_arm[arm]
        if isinstance(table, ArmScores):
            return self._shelved(arm, table, completions)
        scored = [(one, top) for one in completions if (top := self.score(arm, one)) is not None]
        new = [(one, top) for one, top in scored if not self._knows(arm, one)]
        for (one, _), gaps in zip(new, self._computed(new), strict=True):
            self._known[arm, one.key] = one, gaps
        return {one.key: (self._known[arm, one.key][1], top) for one, top in scored}

    def _shelved(
        self, arm: str, table: ArmScores[Key], completions: Sequence[Completion]
    ) -> Mapping[Key, tuple[TokenGaps, TopLogprobs]]:
        """`all_gaps` where the scores are a table: none of it is held."""
        assert isinstance(self._scores, ScoreTable)
        if arm not in self._shelves:
            self._shelves[arm] = _Shelved.empty(len(table), self._scores.shelf())
        shelved, order = self._shelves[arm], array("i")
        if len(completions) <= _AT_ONCE:
            scored, rows, new = self._new(arm, table, completions)
            shelved.put(new)
            found = [shelved.shelf.at(place) for place in shelved.places[rows].tolist()]
            return {one.key: (gaps, top) for (one, top), gaps in zip(scored, found, strict=True)}

        def work(begin: int) -> tuple[list[int], list[_New]]:
            return self._new(arm, table, completions[begin : begin + _AT_ONCE])[1:]

        for rows, new in self._spread(range(0, len(completions), _AT_ONCE), work, ABOUT):
            order.extend(rows)
            shelved.put(new)
        places = blank((len(table),), np.int64)
        places[:] = -1
        places[order] = shelved.places[order]
        return ScoredGaps(table, shelved.shelf, order, places)

    def _new(
        self, arm: str, table: ArmScores[Key], some: Sequence[Completion]
    ) -> tuple[list[tuple[Completion, TopLogprobs]], list[int], list[_New]]:
        """Those that are scored, the rows of their scores, and of which the gaps are not on the shelf yet."""
        shelved = self._shelves[arm]
        scored = [(one, top) for one in some if (top := self.score(arm, one)) is not None]
        rows = [row for one, _ in scored if (row := table.row(one.key)) is not None]
        digests = [_digest(one) for one, _ in scored]
        new = [at for at, row in enumerate(rows) if not shelved.knows(row, digests[at])]
        computed = self._computed([scored[at] for at in new])
        return scored, rows, [_New(rows[at], digests[at], packed(gaps)) for at, gaps in zip(new, computed, strict=True)]

    def _knows(self, arm: str, one: Completion) -> bool:
        """Are the gaps those of this completion? Another one of its key may be cut, or asked otherwise."""
        known = self._known.get((arm, one.key), (None,))[0]
        return known is one or (
            known is not None
            and np.array_equal(known.token_ids, one.token_ids)
            and np.array_equal(known.prompt_token_ids, one.prompt_token_ids)
            and known.sampling == one.sampling
        )

    def _computed(self, scored: Sequence[tuple[Completion, TopLogprobs]]) -> Iterator[TokenGaps]:
        shapings = [self.shaping(one) for one, _ in scored]
        if any(shaping.penalises for shaping in shapings):
            found = [
                token_gaps(top, one.token_ids, shaping.penalised(one))
                for (one, top), shaping in zip(scored, shapings, strict=True)
            ]
        else:
            found = batched_token_gaps([(top, one.token_ids) for one, top in scored])
        return map(self._as_far_as_known, found, shapings)

    @property
    def arms(self) -> Set[str]:
        """Names that scores are given under."""
        return self._by_arm.keys()

    def scored(self, arm: str) -> Mapping[Key, TopLogprobs]:
        """Everything that is scored under this arm's name; whether it fits a completion, `score` says."""
        return self._by_arm.get(arm, {})

    def score(self, arm: str, completion: Completion) -> TopLogprobs | None:
        """The score of this completion in this arm, or None."""
        top = self.scored(arm).get(completion.key)
        if top is None or not self._ambiguous:
            return top
        return top if len(top) == len(completion.token_ids) and _lists_all(top, completion) else None

    @cached_property
    def own_noise(self) -> OwnNoise | None:
        """How far the baseline's own logprobs of likely tokens lie from their scores; None where the baseline has no
        own logprobs or is not scored."""
        return noise_of(self._scored_with_own())

    def _scored_with_own(self) -> Iterator[tuple[Completion, TokenGaps]]:
        with_own = (one for one in self._baseline if _fits(one))
        while some := list(islice(with_own, _AT_ONCE)):
            scored = self.all_gaps(self._baseline.header.arm, some)
            yield from ((one, scored[one.key][0]) for one in some if one.key in scored)

    def _notes(self, baseline: Capture, candidate: Capture) -> tuple[Message, ...]:
        notes = []
        if self.chosen_alone:
            notes.append(
                message(
                    "reference.chosen_alone",
                    "the scores list the chosen tokens alone: only those with more than half of the probability count",
                )
            )
        for arm in () if self._ambiguous else (baseline, candidate):
            scored = self.scored(arm.header.arm)
            of = arm.completions
            if isinstance(scored, ArmScores) and isinstance(of, Lazy):
                sizes, lengths = arm.tokens.sizes, ((of.row(key), key, size) for key, size in scored.lengths())
                misfits = {key for row, key, size in lengths if row is not None and sizes[row] != size}
            else:
                misfits = {
                    key
                    for key, top in scored.items()
                    if (one := of.get(key)) is not None and len(top.ids) != len(one.token_ids)
                }
            notes += [
                _misfit(arm.header.arm, of[key], scored[key]) for key in (of if misfits else ()) if key in misfits
            ]
        return tuple(notes)


NEAR = 0.1
"""Nats, up to which the distance of an own logprob from its score is of no matter: of millions of tokens the others
alone are held."""


class OwnNoise(Struct, frozen=True):
    """`distances` in nats, an array a completion, as `own_distance` gives them: those beyond NEAR, at `places`."""

    distances: tuple[FloatArray, ...]
    places: tuple[npt.NDArray[np.int64], ...]

    @staticmethod
    def of(distances: Iterable[FloatArray]) -> OwnNoise:
        """distances: of every token of a completion, each."""
        wide = ((far[beyond], beyond) for far in distances if len(beyond := np.flatnonzero(far > NEAR)))
        found = list(wide)
        return OwnNoise(tuple(far for far, _ in found), tuple(places for _, places in found))

    @property
    def farthest(self) -> float:
        return max((float(each.max()) for each in self.distances), default=0.0)

    def most_beyond(self, nats: float) -> int:
        """Positions farther than that in the completion that has the most of them."""
        return max((int((each > nats).sum()) for each in self.distances), default=0)

    def most_together(self, within: int) -> float:
        """The largest sum over `within` tokens in a row, nats."""
        both = zip(self.places, self.distances, strict=True)
        return max((most_together(places, distances, within) for places, distances in both), default=0.0)

    def with_as_many(self, count: int, nats: float, within: int) -> int:
        """Completions in which so many positions of `within` in a row, two or more, lie as far off."""
        far = (places[distances >= nats] for places, distances in zip(self.places, self.distances, strict=True))
        return sum(bool((one[count - 1 :] - one[: 1 - count] < within).any()) for one in far)


class _Shelved(NamedTuple):
    """The gaps of an arm that are computed, by the row of the score: where they are, and of which completion."""

    shelf: GapShelf
    places: npt.NDArray[np.int64]
    of: npt.NDArray[np.int64]

    @staticmethod
    def empty(count: int, shelf: Shelf) -> _Shelved:
        places, of = blank((2, count), np.int64)
        places[:] = of[:] = -1
        return _Shelved(GapShelf(shelf), places, of)

    def knows(self, row: int, digest: int) -> bool:
        return bool(self.places[row] >= 0 and self.of[row] == digest)

    def put(self, new: Sequence[_New]) -> None:
        for row, digest, piece in new:
            self.places[row], self.of[row] = self.shelf.put(piece), digest


class _New(NamedTuple):
    """Gaps for the shelf: the row of the score, the `_digest` of the completion, what is put there."""

    row: int
    digest: int
    piece: bytes


_AT_ONCE = 256
"""Completions whose scores are looked at together."""


def _name_of(sampling: Mapping[str, Json]) -> str:
    """The same for requests of which the same tokens were likely."""
    return repr([(name, value) for name, value in sampling.items() if name not in ("seed", "max_tokens")])


def _digest(one: Completion) -> int:
    """Of all that gaps depend on besides the score."""
    return hash((one.token_ids.tobytes(), one.prompt_token_ids.tobytes(), repr(one.sampling) if one.sampling else ""))


def _by_arm(scores: Scores) -> Mapping[str, Mapping[Key, TopLogprobs]]:
    if isinstance(scores, ScoreTable):
        return scores.by_arm()
    found: dict[str, dict[Key, TopLogprobs]] = {}
    for key, top in scores.items():
        found.setdefault(key.arm, {})[Key(*key[1:])] = top
    return found


def gaps_of(completion: Completion, score: TopLogprobs, sampling: Mapping[str, Json]) -> TokenGaps:
    """The gaps of one completion by its score, without the captures around it; `sampling`: its parameters by name."""
    shaping = shaping_of(sampling)
    return _without_unknown(token_gaps(score, completion.token_ids, shaping.penalised(completion)), shaping)


def _without_unknown(gaps: TokenGaps, shaping: Shaping) -> TokenGaps:
    """Where the engine chose from other logits: the best token stays the best one where tokens were only taken away or
    nothing is known, and one near it is near what was left."""
    if not shaping.unknown:
        return gaps
    if not shaping.only_takes_away:
        return replace(gaps, gap=np.where(gaps.gap > 0, np.nan, gaps.gap))
    near = (gaps.gap == 0) | (gaps.most <= DEFAULT_TOLERANCE)
    return replace(gaps, gap=np.where(near, 0.0, np.nan))


def _misfit(arm: str, completion: Completion, top: TopLogprobs) -> Message:
    return message(
        "reference.misfit",
        "the score of {arm} {completion} has {entries} entries for {tokens} tokens",
        arm=arm,
        completion=str(completion.key),
        entries=len(top),
        tokens=len(completion.token_ids),
    )


def _lists_all(top: TopLogprobs, completion: Completion) -> bool:
    return bool((top.ids == completion.token_ids[:, None]).any(axis=1).all())


class AtDivergence(Struct, frozen=True):
    """What the arms' own lists say of the token where they part; of all others nothing."""

    gaps: TokenGaps
    is_the_others: bool
    """The gap is that of the baseline's token, in the candidate's list."""
    is_at_most: bool
    """The gap is the largest that the penalties allow: beyond the tolerance, and the smallest is within it."""


def gaps_at_divergence(
    baseline: Completion,
    candidate: Completion,
    position: int,
    tolerance: float,
    shaping: Shaping,
) -> AtDivergence | None:
    """Without a score: both sides' own logprobs, at the first divergent token alone.

    The baseline's list there is what the score would be: the text before it is the same. Where the baseline
    gave none, or one too short to say, the candidate's own list says whether it saw the baseline's token as a
    near-tie, and the gap is that token's. None when neither says anything, nor where both have one raw
    logprob of the baseline's token: what parts them then is what either made of its penalties.
    """
    length = len(candidate.token_ids)
    if position >= length or position >= len(baseline.token_ids):
        return None
    chosen, other = int(candidate.token_ids[position]), int(baseline.token_ids[position])
    penalised, said = shaping.penalised(candidate), candidate.token_ids[:position]
    for source, token, own in ((baseline, chosen, other), (candidate, other, chosen)):
        lists = source.lists if _fits(source) else None
        view = bounds_instead(lists, position, token, said, penalised, own=own)
        if lists is None or view is None:
            continue
        least, most = view
        is_exact = most <= least + EXACT
        # Little below for certain: nothing that the other list leaves out says otherwise.
        is_little = source is baseline and most <= DOUBT * tolerance
        is_at_most = is_little and not is_exact and least <= tolerance < most
        if is_little:
            least = most
        if not (is_exact or is_little or least > tolerance):
            continue
        if source is candidate and penalised is not None and least > tolerance:
            listed_by = (_listed(one, position, other) for one in (baseline, candidate))
            if abs(next(listed_by) - next(listed_by)) <= tolerance:
                continue
        result = no_gaps(length)
        result.gap[position], result.bounded[position] = max(0.0, least), most > least + EXACT
        result.most[position] = max(most, result.gap[position])
        ids, values = lists.ids[position], lists.values[position]
        column = int(np.nanargmax(np.where(values <= 1e-3, values, -np.inf)))
        result.best_id[position], result.best[position] = ids[column], values[column]
        listed = values[ids == chosen]
        if len(listed):
            result.chosen[position] = listed[0]
        return AtDivergence(result, is_the_others=source is candidate, is_at_most=is_at_most)
    return None


def _listed(completion: Completion, position: int, token: int) -> float:
    """The raw logprob of a token in the completion's own list there; NaN where that does not name it."""
    top = completion.logprobs
    if top is None or not _fits(completion):
        return math.nan
    found = top.values[position][top.ids[position] == token]
    return float(found[0]) if len(found) else math.nan


def _fits(completion: Completion) -> bool:
    return completion.logprobs is not None and len(completion.logprobs) == len(completion.token_ids)


def noise_of(sides: Iterable[tuple[Completion, TokenGaps]]) -> OwnNoise | None:
    """How far own logprobs of likely tokens lie from the scores of these completions; None where none has both."""
    any_known = False

    def distances() -> Iterator[FloatArray]:
        nonlocal any_known
        for one, gaps in sides:
            if _fits(one):
                any_known = True
                yield own_distance(one, gaps)

    found = OwnNoise.of(distances())
    return found if any_known else None


def own_distance(completion: Completion, reference: TokenGaps) -> FloatArray:
    """Nats between the engine's own logprob of each token and the reference's, shape (T,); 0 where a token is unlikely
    to both or one of them says nothing."""
    own = own_gaps(completion)
    if own is None:
        return np.zeros(len(completion.token_ids))
    with np.errstate(invalid="ignore"):
        far = np.abs(own.chosen - reference.chosen)
        far = np.where(np.maximum(own.chosen, reference.chosen) > LIKELY, far, 0.0)
    return np.where(np.isfinite(far), far, 0.0)


def own_gaps(completion: Completion, penalised: Penalised | None = None) -> TokenGaps | None:
    """The completion's own decode-time logprobs as gaps, where there is one per token."""
    if completion.logprobs is None or not _fits(completion):
        return None
    return token_gaps(completion.logprobs, completion.token_ids, penalised)


def own_rejections(
    completion: Completion,
    view: TokenGaps | None,
    start: int,
    tolerance: float,
    shaping: Shaping,
) -> TokenGaps | None:
    """`view` with the tokens from `start` on added that lie below the best token of the engine's own list.

    Greedy decoding takes the best token, so a token further down than the tolerance was not chosen by the engine
    that made the list. A list that has its token on top proves nothing: a corrupt state makes corrupt lists.
    """
    if completion.lists is None or not _fits(completion):
        return view
    own = token_gaps(completion.lists, completion.token_ids, shaping.penalised(completion))
    rejected = own.unsupported(tolerance) & ~own.bounded
    rejected[:start] = False
    if not rejected.any():
        return view
    if view is None:
        view = no_gaps(len(completion.token_ids))
    rejected &= np.isnan(view.gap)
    return replace(
        view,
        gap=np.where(rejected, own.gap, view.gap),
        most=np.where(rejected, own.most, view.most),
        best_id=np.where(rejected, own.best_id, view.best_id),
        best=np.where(rejected, own.best, view.best),
        chosen=np.where(rejected, own.chosen, view.chosen),
    )
