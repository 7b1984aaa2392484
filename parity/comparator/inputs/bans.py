"""Tokens that a request forbade, taken out of scores and lists: the engine could not choose them.

EOS and stop tokens before `min_tokens`, and all that `allowed_token_ids` leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from msgspec import Struct

from parity.records import Capture, Completion, Header, Json, Key, ScoreKey, Scores, TokenIds, TopLogprobs

APPLIED = frozenset({"allowed_token_ids"})
"""Sampling parameters that move logits and need no more attention once the lists are without what they forbid."""


_READ = frozenset({"min_tokens", "stop_token_ids", "ignore_eos", "allowed_token_ids"})
"""Sampling parameters that `Bans` are made of."""


class Bans(Struct, frozen=True):
    """What one request forbade."""

    ending: frozenset[int] = frozenset()
    """Tokens that end a completion."""
    until: int = 0
    """Leading tokens at which these were forbidden."""
    allowed: frozenset[int] | None = None
    """The only tokens that were allowed; None: all."""

    def __bool__(self) -> bool:
        return bool(self.until and self.ending) or self.allowed is not None


def without_banned(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Scores]:
    """Captures and scores without what the requests forbade."""
    arms = (baseline, candidate)
    of_run = _bans(arms, [arm.header.sampling for arm in arms])
    own = {key for arm in arms for key in arm.own_sampling if not _READ.isdisjoint(arm.completions[key].sampling)}
    bans = {key: _bans_of(arms, key) for key in own}
    if not of_run and not any(bans.values()):
        return baseline, candidate, scores
    by_arm = {arm.header.arm: arm for arm in arms}

    def trimmed(key: ScoreKey, top: TopLogprobs) -> TopLogprobs:
        name = Key(*key[1:])
        arm = by_arm.get(key.arm)
        one = None if arm is None else arm.completions.get(name)
        return _without(top, bans.get(name, of_run), None if one is None else one.token_ids)

    return (
        _lists_without(baseline, bans, of_run),
        _lists_without(candidate, bans, of_run),
        {key: trimmed(key, top) for key, top in scores.items()},
    )


def terminators(header: Header) -> frozenset[int]:
    """EOS and stop token ids that the header names."""
    return frozenset(header.eos_token_ids or ()) | stop_tokens(header.sampling)


def stop_tokens(sampling: Mapping[str, Json]) -> frozenset[int]:
    """`stop_token_ids`, as far as they are token ids."""
    return token_ids(sampling.get("stop_token_ids"))


def token_ids(value: Json) -> frozenset[int]:
    return frozenset(one for one in value if isinstance(one, int)) if isinstance(value, list | tuple) else frozenset()


def _bans_of(arms: tuple[Capture, ...], key: Key) -> Bans:
    known = [arm for arm in arms if key in arm.completions]
    return _bans(arms, [arm.sampling_of(arm.completions[key]) for arm in known])


def _bans(arms: tuple[Capture, ...], samplings: list[Mapping[str, Json]]) -> Bans:
    """What no engine of the run was allowed to choose for a request with these parameters, by arm."""
    asked = [sampling.get("min_tokens") for sampling in samplings]
    until = min((one if isinstance(one, int) and one > 0 else 0 for one in asked), default=0)
    eos = frozenset(token for arm in arms for token in arm.header.eos_token_ids or ())
    ending = frozenset().union(
        *(stop_tokens(one) | (frozenset() if one.get("ignore_eos") else eos) for one in samplings)
    )
    allowed = [token_ids(one.get("allowed_token_ids")) for one in samplings]
    return Bans(ending, until, frozenset().union(*allowed) if allowed and all(allowed) else None)


def _lists_without(arm: Capture, bans: Mapping[Key, Bans], of_run: Bans) -> Capture:
    def trimmed(key: Key, one: Completion) -> Completion:
        if one.lists is None:
            return one
        return replace(one, logprobs=_without(one.lists, bans.get(key, of_run), one.token_ids, own=True))

    if next(arm.listing(), None) is None:
        return arm
    return replace(arm, completions={key: trimmed(key, one) for key, one in arm.completions.items()})


def _without(top: TopLogprobs, bans: Bans, tokens: TokenIds | None, *, own: bool = False) -> TopLogprobs:
    """The lists without forbidden tokens; `tokens`: those that they are of. An engine's `own` keep the chosen ones."""
    barred = np.zeros(top.ids.shape, dtype=np.bool_)
    if bans.ending:
        barred[: bans.until] = np.isin(top.ids[: bans.until], list(bans.ending))
    if bans.allowed is not None:
        barred |= ~np.isin(top.ids, list(bans.allowed)) | _ends_above(top, tokens)
    if own and tokens is not None and len(tokens) == len(top):
        barred &= top.ids != tokens[:, None]
    if not barred.any():
        return top
    ids, values = top.ids.copy(), top.values.copy()
    ids[barred], values[barred] = -1, np.nan
    return replace(top, ids=ids, values=values)


def _ends_above(top: TopLogprobs, tokens: TokenIds | None) -> np.typing.NDArray[np.bool_]:
    """Positions, shape (T, 1), whose list ends above the chosen token: an allowed token between may not be listed."""
    if tokens is None or len(tokens) != len(top):
        return np.zeros((len(top), 1), dtype=np.bool_)
    is_chosen = top.ids == tokens[:, None]
    chosen = np.where(is_chosen, top.values, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    last = np.where(is_chosen | np.isnan(top.values), np.inf, top.values).min(axis=1, keepdims=True, initial=np.inf)
    return np.asarray(chosen < last)
