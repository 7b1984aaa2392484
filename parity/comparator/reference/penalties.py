"""Penalties and biases as engines apply them to logits, recomputed from logprobs.

Presence and frequency penalties and biases are differences of logits, so logprobs show them exactly. A repetition
penalty divides the logit itself (multiplies a negative one): the logit is the logprob plus the log of the sum over the
vocabulary of exp(logit), one number for each position. Where a score records that number all is exact; elsewhere it
lies in a range that the run itself shows (logit_range.py).

Source of the order and the counting: `apply_penalties` in vllm/model_executor/layers/utils.py and `Sampler` in
vllm/v1/sample/sampler.py (0.32.0): biases, then the repetition penalty (tokens of prompt and output), frequency and
presence penalties (tokens of the output). A draft position counts the drafts before it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from parity.records import TokenIds

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IdArray = npt.NDArray[np.int64]

ANY_LOGIT = (0.0, 60.0)
"""Nats: the log of the sum of exp(logit), where nothing is known of it. Checkpoints lie between 5 and 40."""

LATEST = 4
"""Tokens by which a fault may count late that are tried: as many as are drafted in a step, and one."""

GRID = 5
"""Values tried over a range of it."""

TURNS, ASIDE = 3, 1e-9
"""Tokens of a position whose logits are tried close to 0, and how close."""


def _nothing() -> TokenIds:
    return np.empty(0, dtype=np.int64)


class Penalties(Struct, frozen=True):
    """What a request asked for; as vLLM's `SamplingParams` names it."""

    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    """Token ids and what is added to their logits."""
    counts_prompt: bool = False
    """Presence and frequency penalties count the prompt as well, as some servers do."""
    skips_prompt: bool = False
    """The repetition penalty leaves tokens of the prompt alone."""
    late_by: int = 0
    """Tokens of the output that are not counted yet: what a fault would do."""

    def __bool__(self) -> bool:
        return self.repetition != 1.0 or bool(self.presence or self.frequency or self.bias)

    @property
    def is_additive(self) -> bool:
        """Logprobs alone show everything."""
        return self.repetition == 1.0


class Penalised(Struct, frozen=True):
    """The penalties of one completion, ready to be applied to lists of logprobs."""

    penalties: Penalties
    prompt: TokenIds
    logit_range: tuple[float, float] = ANY_LOGIT
    """Nats between which the log of the sum of exp(logit) lies, where a list does not record it."""
    said: TokenIds = field(default_factory=_nothing)
    """Tokens of the output before the first one asked about."""

    def after(self, said: TokenIds) -> Penalised:
        return replace(self, said=said)

    @property
    def additive(self) -> Penalties:
        """All but the repetition penalty."""
        return replace(self.penalties, repetition=1.0)

    def but(self, penalties: Penalties) -> Penalised:
        return replace(self, penalties=penalties)

    def normalisers(self, recorded: FloatArray | None, length: int) -> list[FloatArray]:
        """Values to try for log(sum(exp(logits))), each of shape (T, 1); one where it is known or not needed."""
        if self.penalties.is_additive:
            return [np.zeros((length, 1))]
        grid = np.linspace(*self.logit_range, GRID)
        if recorded is None:
            return [np.full((length, 1), value) for value in grid]
        known = np.isfinite(recorded[:length])
        if known.all():
            return [recorded[:length, None]]
        return [np.where(known, recorded[:length], value)[:, None] for value in grid]

    def turns(self, values: FloatArray, seen: Seen, recorded: FloatArray | None) -> list[FloatArray]:
        """More values to try, each of shape (T, 1), where none is recorded and a repetition penalty below 1 raises what
        was said: just below and above those at which the logit of one of `values` (T, K) is 0, up to TURNS of them that
        it moves, the largest first.

        It multiplies on one side of 0 what it divides on the other, so that a gap has its least and its largest value
        there, or at an end of the range: between, what is moved and what is not part or come closer steadily. Above 1
        the grid does, where a logit of 0 is far from those that engines choose.
        """
        zeros = -np.sort(-np.where(seen.repeated & np.isfinite(values), values + seen.bias, -np.inf), axis=1)[:, :TURNS]
        low, high = self.logit_range
        found = []
        for zero in zeros.T:
            for side in (-ASIDE, ASIDE):
                value = np.clip(np.where(np.isfinite(zero), side - zero, low), low, high)
                if recorded is not None:
                    value = np.where(np.isfinite(recorded[: len(value)]), recorded[: len(value)], value)
                found.append(value[:, None])
        return found

    def seen(self, ids: IdArray, tokens: TokenIds) -> Seen:
        """How often each of `ids` (T, K) was said before position t of `tokens`, and which stand in the prompt."""
        penalties = self.penalties
        counts = counts_before(ids, tokens, penalties.late_by)
        if len(self.said):
            counts = counts + times_in(ids, self.said)
        repeated = counts > 0
        bias: FloatArray | float = 0.0
        if not penalties.skips_prompt:
            repeated |= np.isin(ids, self.prompt)
        if penalties.counts_prompt:
            counts = counts + times_in(ids, self.prompt)
        if penalties.bias:
            bias = np.zeros(ids.shape)
            for token, added in penalties.bias:
                bias[ids == token] = added
        return Seen(counts.astype(np.float64), repeated, bias)

    def pushed_down(self, ids: IdArray, tokens: TokenIds) -> FloatArray:
        """How far the penalties push each of `ids` (T, K) down before position t of `tokens`; of a repetition penalty
        only whether they do."""
        asked, seen = self.penalties, self.seen(ids, tokens)
        pushed = asked.frequency * seen.counts + asked.presence * (seen.counts > 0) - seen.bias
        return np.asarray(pushed + (asked.repetition - 1.0) * seen.repeated, dtype=np.float64)

    def most_said(self, tokens: TokenIds) -> FloatArray:
        """The most that any token was counted before each of `tokens` (T,)."""
        counted = [self.said, self.prompt] if self.penalties.counts_prompt else [self.said]
        start = sum(int(times_in(some, some).max(initial=0)) for some in counted)
        here = counts_before(tokens[:, None], tokens)[:, 0] + 1
        return start + np.maximum.accumulate(np.concatenate([[0], here]))[: len(tokens)].astype(np.float64)


class Seen(Struct, frozen=True):
    """What the penalties need to know of listed tokens; arrays of shape (T, K)."""

    counts: FloatArray
    """Times that presence and frequency penalties count."""
    repeated: BoolArray
    """Lowered by a repetition penalty."""
    bias: FloatArray | float


def counts_before(ids: IdArray, tokens: TokenIds, late_by: int = 0) -> IdArray:
    """For ids of shape (T, K): how often does the id stand before position t - late_by in `tokens` (T,)?"""
    length = len(tokens)
    known, first = np.unique(tokens, return_inverse=True)
    # Each occurrence as one number, ordered by token and then by place.
    places = np.sort(first.astype(np.int64) * (length + 1) + np.arange(length))
    token = np.searchsorted(known, ids)
    listed = known[np.minimum(token, len(known) - 1)] == ids if length else np.zeros(ids.shape, dtype=np.bool_)
    until = np.maximum(np.arange(len(ids)) - late_by, 0)[:, None]
    start = token * (length + 1)
    found = np.searchsorted(places, start + until) - np.searchsorted(places, start)
    return np.where(listed, found, 0)


def times_in(ids: IdArray, tokens: TokenIds) -> IdArray:
    """How often each of `ids`, of any shape, stands in `tokens`."""
    known, times = np.unique(tokens, return_counts=True)
    if not len(known):
        return np.zeros(ids.shape, dtype=np.int64)
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[place] == ids, times[place], 0)


def penalise(
    values: FloatArray, seen: Seen, penalties: Penalties, normaliser: FloatArray | float
) -> tuple[FloatArray, FloatArray]:
    """(logprobs as the penalties leave them, up to what all tokens of a position have in common; the factor by which
    they magnify the noise of a logit). `values`: raw logprobs of shape (T, K); `normaliser` of shape (T, 1)."""
    scores = values + seen.bias
    noise = np.ones(values.shape)
    if penalties.repetition != 1.0:
        with np.errstate(invalid="ignore"):
            logits = scores + normaliser
            factor = np.where(logits > 0, 1.0 / penalties.repetition, penalties.repetition)
            scores = np.where(seen.repeated, logits * factor - normaliser, scores)
        noise = np.where(seen.repeated, factor, 1.0)
    if penalties.frequency or penalties.presence:
        scores = scores - penalties.frequency * seen.counts - penalties.presence * (seen.counts > 0)
    return scores, noise


def most_raised(
    last: FloatArray, ids: IdArray, tokens: TokenIds, penalised: Penalised, normaliser: FloatArray
) -> FloatArray:
    """The best that a token may come to that is not among `ids` (T, K) and whose raw logprob is at most `last` (T,): it
    keeps that where it was not seen. `normaliser`: shape (T, 1)."""
    penalties = penalised.penalties
    added = np.zeros(len(last))
    for token, bias in penalties.bias:
        if bias > 0:
            added = np.where((ids == token).any(axis=1), added, np.maximum(added, bias))
    best = last + added
    if penalties.repetition < 1.0:
        logits = np.where(np.isfinite(best), best + normaliser[:, 0], 0.0)
        # Those below 0 are raised as well, towards it.
        best = best + logits * (np.where(logits > 0, 1.0 / penalties.repetition, penalties.repetition) - 1.0)
    if penalties.frequency < 0:
        best = best - penalties.frequency * penalised.most_said(tokens)
    return best + max(0.0, -penalties.presence)


def as_chosen(
    ids: IdArray, values: FloatArray, recorded: FloatArray | None, tokens: TokenIds, penalised: Penalised
) -> tuple[FloatArray, FloatArray] | None:
    """(what the penalties leave of logprobs of shape (T, K), up to what all tokens of a position have in common; nats
    (T,) by which they raise any other token at most). None where the lists do not say it exactly."""
    normalisers = penalised.normalisers(recorded, len(tokens))
    if len(normalisers) > 1:
        return None
    scores, _ = penalise(values, penalised.seen(ids, tokens), penalised.penalties, normalisers[0])
    return scores, most_raised(np.zeros(len(tokens)), ids, tokens, penalised, normalisers[0])


def few_raised(ids: IdArray, penalised: Penalised) -> IdArray | None:
    """How many tokens, shape (T,), that are not among `ids` (T, K) are raised: those with a bias. None where what was
    said is raised as well."""
    asked = penalised.penalties
    if asked.repetition < 1.0 or asked.frequency < 0 or asked.presence < 0:
        return None
    unlisted = [~(ids == token).any(axis=1) for token, bias in asked.bias if bias > 0]
    return np.sum(unlisted, axis=0, dtype=np.int64) if unlisted else np.zeros(len(ids), dtype=np.int64)


def other_ways(penalties: Penalties) -> Mapping[str, Penalties]:
    """What an engine at fault may have applied instead, by what that is called."""
    found = {"ignored": Penalties()}
    counted = bool(penalties.presence or penalties.frequency)
    if counted or penalties.repetition != 1.0:
        found |= {f"late_by_{tokens}": replace(penalties, late_by=tokens) for tokens in range(1, LATEST + 1)}
    if penalties.repetition != 1.0:
        found["prompt_skipped"] = replace(penalties, skips_prompt=True)
    if counted:
        found["prompt_counted"] = replace(penalties, counts_prompt=True)
    return found
