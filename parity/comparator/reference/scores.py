"""Finds, for a completion, the best reference there is: its score, a score of the same tokens, or logprobs.

Scores are keyed by arm and completion. Where both arms carry one name (an arm compared with itself), and where
two completions are the same token sequence (scored once), a score is taken for a completion only if it fits
it: one entry per token, the chosen token listed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from parity.comparator.inputs.questions import temperature_in
from parity.comparator.reference.gaps import (
    TokenGaps,
    batched_token_gaps,
    token_gaps,
)
from parity.comparator.reference.logit_range import logit_range
from parity.comparator.reference.own_logprobs import OwnNoise, has_own, noise_of
from parity.comparator.reference.penalties import Penalised, Penalties
from parity.comparator.reference.shaping import Shaping, shaping_of
from parity.comparator.reference.stored import GapShelf, ScoredGaps, packed
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
            if top is None and has_own(one):
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
        with_own = (one for one in self._baseline if has_own(one))
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
