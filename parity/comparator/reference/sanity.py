"""Are the scores those of these arms? The tokens that an engine itself has chosen say so.

A greedy engine takes the best token, and a drawn one is likely. Scores that reject such tokens throughout are of other
tokens, other places or another model, and accuse nobody: all of them are left out, and the verdict says what seems to
be wrong with them. What their numbers are, base and sign, is asked before (`inputs/numbers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.inputs.normalise import Inputs
from parity.comparator.reference.floor import NOT_NOISE
from parity.comparator.reference.rivals import Rivals
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.shaping import Shaping
from parity.comparator.streams.pairing import Pairs
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, Scores, TokenIds, TopLogprobs

_LOOKED_AT = 256
"""Completions looked at."""

_PARTED_LOOKED_AT = 64
"""Of those that part: whose tokens the scores name is the same in all of them."""

FEW_TOKENS = 16
"""Tokens that it takes to say anything."""

FEW_COMPLETIONS = 4
"""Completions from which on it counts how many of them have a rejected token."""

REJECTED = 0.5
"""Share of the completions with a token of the engines' own that is rejected, from which on all scores are left out;
where there are few completions, share of the tokens."""

ACCEPTED = 0.8
"""Share that must be accepted another way round to say that this is what went wrong."""


PARTED, NEARLY_ALL = 8, 0.9
"""Tokens in which a pair must differ to say whose its score is, and the share of the other arm's tokens that it then
names: after a prefix of its own it would name few of them."""


class Wrong(Struct, frozen=True):
    """Scores of which none can be used."""

    why: Message
    """And what to do."""
    against_baseline: bool = False
    """They reject what the baseline has chosen, and support the candidate."""


def wrong_scores(inputs: Inputs, pairs: Pairs, reference: Reference, rivals: Rivals) -> Wrong | None:
    """None where the scores are of these arms. `rivals`: the baseline's tokens where its greedy completions part."""
    if not inputs.scores:
        return None
    if why := _of_others(inputs, inputs.scores):
        return Wrong(why)
    if why := _of_the_other(inputs, pairs, reference):
        return Wrong(why)
    if found := _rejecting(inputs, pairs, reference, rivals):
        return found
    why = _not_naming(inputs, reference)
    return None if why is None else Wrong(why)


# ------------------------------------------------------------------ whose they are


def _of_others(inputs: Inputs, scores: Scores) -> Message | None:
    """Scores that name no completion of either arm."""
    arms = {capture.header.arm: capture for capture in inputs.given}
    if any(key.arm in arms and Key(*key[1:]) in arms[key.arm].completions for key in scores):
        return None
    if not _are_needed(inputs):
        return None
    named = sorted({key.arm for key in scores})
    if not arms.keys() & set(named):
        near = [match[0] for name in named if (match := get_close_matches(name, arms, n=1, cutoff=0.6))]
        return message(
            "scores.other_arms",
            "the scores are of {named}, and neither of the arms has that name ({arms}): none was used. Write "
            '`"arm": "{near}"` in each score record, and compare again',
            named=named,
            arms=list(arms),
            near=near[0] if near else inputs.candidate.header.arm,
        )
    return message(
        "scores.other_requests",
        "the scores name requests, rounds or samples that neither capture has (first: {first}): none was used. Score "
        "these captures (`parity run --score all`), or name the right file",
        first=str(Key(*next(iter(scores))[1:])),
    )


def misspelt(inputs: Inputs, reference: Reference) -> Message | None:
    """Score records with nearly the name of the candidate, which has none of its own."""
    arms, arm = {capture.header.arm for capture in inputs.given}, inputs.candidate.header.arm
    near = get_close_matches(arm, reference.arms - arms, n=1, cutoff=0.8)
    if not near or arm in reference.arms or not _are_needed(inputs):
        return None
    return message(
        "scores.misspelt",
        "there are scores of {named}, which is neither of the arms, and none of {arm}: is the name misspelt?",
        named=near[0],
        arm=arm,
    )


def _of_the_other(inputs: Inputs, pairs: Pairs, reference: Reference) -> Message | None:
    """Scores of the candidate that are of the baseline's tokens: they name these where the arms have parted, and not
    the candidate's own."""
    looked = mixed = 0
    arm = inputs.candidate.header.arm
    for row in np.flatnonzero(~pairs.identical & pairs.same_prompt)[:_PARTED_LOOKED_AT].tolist():
        a, b = pairs.baseline[row], pairs.candidate[row]
        top = reference.score(arm, b)
        size = 0 if top is None else min(len(a.token_ids), len(b.token_ids), len(top))
        places = np.flatnonzero(a.token_ids[:size] != b.token_ids[:size])
        if top is None or len(places) < PARTED:
            continue
        ids = top.ids[places]
        looked += 1
        mixed += _share_named(ids, a.token_ids[places]) > NEARLY_ALL and (
            _share_named(ids, b.token_ids[places]) < REJECTED
        )
    if not mixed or mixed < REJECTED * looked:
        return None
    return message(
        "scores.other_side",
        "the scores of {arm} name the tokens of {other} where the two differ, and not its own: the arms of the score "
        "records are mixed up. None was used",
        arm=arm,
        other=inputs.baseline.header.arm,
    )


def _share_named(ids: npt.NDArray[np.int64], tokens: TokenIds) -> float:
    """Share of the tokens (T,) that stand in their lists; ids: shape (T, K)."""
    return float((ids == tokens[:, None]).any(axis=1).mean())


def _are_needed(inputs: Inputs) -> bool:
    """Is there a pair that scores would decide?"""
    baseline, candidate = inputs.baseline.completions, inputs.candidate.completions
    return any(
        not np.array_equal(one.token_ids, candidate[key].token_ids) for key, one in baseline.items() if key in candidate
    )


# ------------------------------------------------------------------ what they say of an engine's own tokens


class _Own(Struct, frozen=True):
    """Tokens that the baseline chose, and the lists of the score that is about them."""

    tokens: TokenIds
    top: TopLogprobs


def _rejecting(inputs: Inputs, pairs: Pairs, reference: Reference, rivals: Rivals) -> Wrong | None:
    """Scores that reject what both engines chose, or the baseline alone."""
    parts_at = pairs.by_key()
    own, rejections = _own_tokens(inputs, parts_at, reference)
    tokens = sum(len(one.tokens) for one in own)
    rejected = int(rejections.sum())
    if tokens < FEW_TOKENS:
        return None
    hit = int((rejections > 0).sum())
    share = hit / len(own) if len(own) >= FEW_COMPLETIONS else rejected / tokens
    if share < REJECTED:
        why = _rejecting_at_partings(inputs, pairs, reference, rivals)
        return None if why is None else Wrong(why, against_baseline=_support_candidate(inputs, reference))
    if _support_candidate(inputs, reference):
        return Wrong(
            message(
                "scores.reject_baseline",
                "the scores reject {share:.0%} of the tokens that the baseline has chosen, and support the "
                "candidate's: the baseline is at fault, or the scores are not of its engine. None was used, and nobody "
                "is accused",
                share=rejected / tokens,
            ),
            against_baseline=True,
        )
    return Wrong(
        message(
            "scores.reject_all",
            "the scores reject {share:.0%} of the tokens that the engines themselves have chosen: none was used, and "
            "nobody is accused by them. {why}",
            share=rejected / tokens,
            why=_why(own),
        )
    )


def _support_candidate(inputs: Inputs, reference: Reference) -> bool:
    """Do they support what the candidate has chosen, in nearly all of its completions?"""
    own = _scored_tokens(inputs.candidate, reference, only=lambda one: not inputs.is_drawn(one))
    rejected = [_rejected(one.tokens, one.top, 0) > 0 for one in own]
    return len(rejected) >= FEW_COMPLETIONS and sum(rejected) <= (1 - ACCEPTED) * len(rejected)


def _rejecting_at_partings(inputs: Inputs, pairs: Pairs, reference: Reference, rivals: Rivals) -> Message | None:
    share = _at_partings(inputs, pairs, reference, rivals)
    if share < REJECTED:
        return None
    return message(
        "scores.reject_partings",
        "where the arms part, the candidate's scores reject {share:.0%} of the tokens that the baseline "
        "has chosen: none was used, and nobody is accused by them. {why}",
        share=share,
        why=_why(_scored_tokens(inputs.candidate, reference)),
    )


def _scored_tokens(
    arm: Capture, reference: Reference, *, only: Callable[[Completion], bool] | None = None
) -> list[_Own]:
    """The first completions of an arm that are scored; with `only`, of those of which it is true."""
    found = []
    for one in arm:
        top = None if only is not None and not only(one) else reference.score(arm.header.arm, one)
        size = 0 if top is None else min(len(top), len(one.token_ids))
        if top is not None and size and top.ids.shape[1]:
            found.append(_Own(one.token_ids[:size], top))
        if len(found) == _LOOKED_AT:
            break
    return found


# ------------------------------------------------------------------ whether they name what was drawn


def _not_naming(inputs: Inputs, reference: Reference) -> Message | None:
    """Scores of drawn completions that do not name their tokens: a score names its token, however unlikely that is."""
    for arm in (inputs.baseline, inputs.candidate) if inputs.is_random else ():
        own = _scored_tokens(arm, reference, only=inputs.is_drawn)
        if sum(len(one.tokens) for one in own) < FEW_TOKENS:
            continue
        named = np.array([_named(one.tokens, one.top, 0) for one in own])
        if float((named < REJECTED).mean()) >= REJECTED:
            return message(
                "scores.not_naming",
                "the scores of {arm} name {share:.0%} of the tokens that it has drawn: none was used, and nobody is "
                "accused by them. {why}",
                arm=arm.header.arm,
                share=float(np.average(named, weights=[len(one.tokens) for one in own])),
                why=_why_not_naming(own),
            )
    return None


def _named(tokens: TokenIds, top: TopLogprobs, shift: int) -> float:
    """Share of the tokens that the list `shift` places on names; of those with a list that names any."""
    rows = np.arange(len(tokens)) + shift
    inside = (rows >= 0) & (rows < len(top))
    ids = top.ids[rows[inside]]
    known = (ids >= 0).any(axis=1)
    return float((ids == tokens[inside][:, None])[known].any(axis=1).mean()) if known.any() else 1.0


def _why_not_naming(own: Sequence[_Own]) -> Message:
    for shift, why in _SHIFTED.items():
        if float(np.median([_named(one.tokens, one.top, shift) for one in own])) > ACCEPTED:
            return why
    some = own[:16]
    fitting = sum(
        any(len(other.tokens) == len(one.tokens) and _named(other.tokens, one.top, 0) > ACCEPTED for other in own)
        for one in some
    )
    return _MIXED_UP if fitting * 2 > len(some) else _OTHER_TOKENS


def _own_tokens(
    inputs: Inputs, parts_at: Mapping[Key, int], reference: Reference
) -> tuple[list[_Own], npt.NDArray[np.int64]]:
    """Of the first completions that have some; and how many of each are more than NOT_NOISE below the best or, without
    a penalty, not listed."""
    looked = list(islice(_chosen_by_baseline(inputs, parts_at, reference), _LOOKED_AT))
    gaps = {
        arm: reference.all_gaps(arm, [one for name, one, _ in looked if name == arm])
        for arm in {arm for arm, *_ in looked}
    }
    if not looked:
        return [], np.empty(0, dtype=np.int64)
    views = [gaps[arm][one.key] for arm, one, _ in looked]
    sizes = [size for _, _, size in looked]
    gap = np.concatenate([view.gap[:size] for (view, _), size in zip(views, sizes, strict=True)])
    unlisted = np.concatenate([view.bounded[:size] for (view, _), size in zip(views, sizes, strict=True)])
    # Under a penalty a list says less: what it leaves open is no rejection.
    unlisted &= np.repeat([not _is_shaped(reference.shaping(one)) for _, one, _ in looked], sizes)
    rejected = (gap > NOT_NOISE) | unlisted
    own = [_Own(one.token_ids[:size], top) for (_, one, size), (_, top) in zip(looked, views, strict=True)]
    return own, np.add.reduceat(rejected.astype(np.int64), np.cumsum([0, *sizes[:-1]]))


def _chosen_by_baseline(
    inputs: Inputs, parts_at: Mapping[Key, int], reference: Reference
) -> Iterator[tuple[str, Completion, int]]:
    """(arm, its completion, how many of its first tokens): scored by the baseline's own scores, else by the candidate's
    as far as both streams are equal. What is drawn at random may lie anywhere, and is no witness."""
    candidate = inputs.candidate
    for a in _scored(inputs, reference):
        arm, one, size = inputs.baseline.header.arm, a, len(a.token_ids)
        if reference.score(arm, one) is None and (b := candidate.completions.get(a.key)) is not None:
            arm, one, size = candidate.header.arm, b, parts_at.get(a.key, size)
        top = reference.score(arm, one)
        size = 0 if top is None else min(size, len(top))
        if size:
            yield arm, one, size


def _scored(inputs: Inputs, reference: Reference) -> Iterator[Completion]:
    """Greedy completions of the baseline that are scored, or whose pair is."""
    own, other = (reference.scored(arm.header.arm) for arm in (inputs.baseline, inputs.candidate))
    for key in inputs.baseline.keys:
        if key in other or key in own:
            one = inputs.baseline.completions[key]
            if not inputs.is_drawn(one):
                yield one


def _at_partings(inputs: Inputs, pairs: Pairs, reference: Reference, rivals: Rivals) -> float:
    """Share of the pairs that part in which the candidate's score rejects the token that the baseline has chosen there.
    0 where they are few."""
    looked = wrong = 0
    for row in np.flatnonzero(~pairs.identical).tolist() if rivals else ():
        found = rivals.find(pairs.keys[row])
        if found is None or _is_shaped(reference.shaping(b := pairs.candidate[row])):
            continue
        if pairs.same_prompt[row] or np.array_equal(b.prompt_token_ids, pairs.baseline[row].prompt_token_ids):
            looked += 1
            wrong += found.gap > NOT_NOISE
    return wrong / looked if looked >= FEW_COMPLETIONS else 0.0


def _is_shaped(shaping: Shaping) -> bool:
    return shaping.penalises or bool(shaping.unknown)


def _rejected(tokens: TokenIds, top: TopLogprobs, shift: int) -> float:
    """Share of the tokens more than NOT_NOISE below the best of the list `shift` places on, or not in it."""
    rows = np.arange(len(tokens)) + shift
    inside = (rows >= 0) & (rows < len(top))
    if not inside.any() or not top.ids.shape[1]:
        return 1.0
    ids, values = top.ids[rows[inside]], top.values[rows[inside]]
    usable = np.where(np.isfinite(values), values, -np.inf)
    own = np.where(ids == tokens[inside][:, None], usable, -np.inf).max(axis=1)
    known = np.isfinite(usable).any(axis=1)
    if not known.any():
        return 0.0
    return float((own[known] < usable[known].max(axis=1) - NOT_NOISE).mean())


def _why(own: Sequence[_Own]) -> Message:
    for shift, why in _SHIFTED.items():
        if float(np.median([_rejected(one.tokens, one.top, shift) for one in own])) < 1 - ACCEPTED:
            return why
    listed = [float((one.top.ids[: len(one.tokens)] == one.tokens[:, None]).any(axis=1).mean()) for one in own]
    if float(np.median(listed)) < 1 - ACCEPTED:
        if _fits_another(own):
            return _MIXED_UP
        return _OTHER_TOKENS
    return message(
        "scores.other_model",
        "They are of another model, or of other logits: score with the baseline's own engine "
        "(`parity run --score all`)",
    )


_MIXED_UP = message(
    "scores.mixed_up", "They fit other completions of the run: the requests of the score records are mixed up"
)
_OTHER_TOKENS = message(
    "scores.other_tokens",
    "Their lists do not hold these tokens at all: they are of other completions, or of another tokenizer. "
    "Score these captures (`parity run --score all`)",
)

_SHIFTED = {
    -1: message(
        "scores.early",
        "Each list stands one place too early: write the list that the first output token was chosen from at entry 0",
    ),
    1: message(
        "scores.late",
        "Each list stands one place too late (a model's output at t is about token t + 1): write the list that the "
        "first output token was chosen from at entry 0",
    ),
}
"""By the places from a token to the list that fits it."""


def _fits_another(own: Sequence[_Own]) -> bool:
    """Do most lists fit the tokens of another completion?"""
    some = own[:16]
    fitting = sum(
        any(_rejected(other.tokens, one.top, 0) < 1 - ACCEPTED for other in own if other is not one) for one in some
    )
    return fitting * 2 > len(some)
