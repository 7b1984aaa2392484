"""Habits of whoever made a capture, normalised before anything is compared: they are no faults of an engine.

Logprobs that are not those the comparison knows (raw logits, after masks and temperature); an EOS token that one side
keeps in `token_ids` and the other drops; tokens in a list that the request forbade (bans.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from functools import cache

import numpy as np
from msgspec import Struct

from parity.comparator.inputs.asked import requests_of
from parity.comparator.inputs.bans import terminators, without_banned
from parity.comparator.inputs.questions import highest_own_temperature, temperature_in
from parity.comparator.inputs.servers import by_others
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, Header, Key, ScoreKey, Scores, TopLogprobs
from parity.records.engine_settings import draft_tokens

RAW = (None, "raw_logprobs")
"""`logprobs_mode` in a header's `engine` that gives log-softmax of the logits as the model made them."""


def says_raw(header: Header) -> bool:
    """Does it say that the arm's logprobs are those of the model, which no parameter of a request changes?"""
    return header.engine.get("logprobs_mode") == RAW[1]


CERTAIN_TOKENS = 32
"""Tokens that must all have been certain (logprob 0) before lists count as saying nothing."""

FEW_ENDS = 2
"""Completions of a greedy arm that stopped, and none at a token that it gives, for that to be its habit where no equal
pair shows it: of one alone it may be a fault."""

LIKE_IT = 0.95
"""Share of the completions that must have a habit: some of the others may have a fault besides."""

LOOKED_AT = 256
"""Completions looked at to learn a habit."""


def habit_note(arm: Capture, what: Message) -> Remarks:
    """A note that names a habit of an arm."""
    return Remarks(notes=(message("inputs.habit", "{arm}: {what}", arm=arm.header.arm, what=what),))


class SameHabits(Struct, frozen=True):
    """Both captures and all scores without what is mere habit."""

    baseline: Capture
    candidate: Capture
    scores: Scores
    notes: tuple[Message, ...]
    """What was left out or taken as equal."""
    candidate_drops_eos: bool
    """The candidate leaves out the token that it stopped at, and the baseline keeps it."""
    ends_of_one_arm: frozenset[int]
    """Tokens that completions stop at, which one arm gives and the other never; empty where both do as the other."""


def same_habits(baseline: Capture, candidate: Capture, scores: Scores) -> SameHabits:
    """Both captures and all scores without what is mere habit, and notes on what was left out."""
    merged = scores
    baseline, candidate, notes = _without_other_logprobs(baseline, candidate)
    baseline, candidate, count = _without_masked_logprobs(baseline, candidate, scores)
    if count:
        notes += (
            message(
                "inputs.masked_logprobs",
                "{count} completion under a grammar has scores: its own logprobs, which vLLM takes from what the "
                "grammar leaves, are left out",
                plural="{count} completions under a grammar have scores: their own logprobs, which vLLM takes from "
                "what the grammar leaves, are left out",
                count=count,
            ),
        )
    known = _without_dropped_eos(baseline, candidate, merged)
    drops = _drops_eos(baseline, candidate, shown=known is not None)
    ends = _ends_of_one_arm((baseline, candidate))
    if known is not None:
        baseline, candidate, merged, count = known
        notes += (
            message(
                "inputs.eos_kept_by_one",
                "{count} completion is the same but for the EOS token, which only one of the arms keeps: taken as "
                "equal",
                plural="{count} completions are the same but for the EOS token, which only one of the arms keeps: "
                "taken as equal",
                count=count,
            ),
        )
    baseline, candidate, merged, count = _without_rest_of_step(baseline, candidate, merged)
    if count:
        notes += (
            message(
                "inputs.rest_of_step",
                "{count} completion is the same but for tokens after its stop string, made in the same speculative "
                "step: taken as equal",
                plural="{count} completions are the same but for tokens after their stop strings, made in the same "
                "speculative step: taken as equal",
                count=count,
            ),
        )
    baseline, candidate, possible = without_banned(baseline, candidate, merged)
    return SameHabits(baseline, candidate, possible, notes, drops, ends)


# ------------------------------------------------------------------ logprobs of another kind


def _without_other_logprobs(baseline: Capture, candidate: Capture) -> tuple[Capture, Capture, tuple[Message, ...]]:
    arms, notes = [baseline, candidate], []
    for index, arm in enumerate(arms):
        mode = arm.header.engine.get("logprobs_mode")
        if mode not in RAW and arm.has_logprobs:
            notes.append(
                message(
                    "inputs.other_logprobs",
                    "the logprobs of {arm} are {mode}, not raw_logprobs: left out",
                    arm=arm.header.arm,
                    mode=str(mode),
                )
            )
            arms[index] = _without_logprobs(arm)
    if all(says_nothing(arm) for arm in arms):
        notes.append(
            message(
                "inputs.certain_logprobs",
                "both arms' logprobs call every token certain (processed_logprobs of greedy decoding?): left out",
            )
        )
        arms = [_without_logprobs(arm) for arm in arms]
    return arms[0], arms[1], tuple(notes)


def _without_logprobs(arm: Capture) -> Capture:
    return replace(arm, completions={key: replace(one, logprobs=None) for key, one in arm.completions.items()})


def _without_masked_logprobs(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, int]:
    """Both arms without their own logprobs of completions under a grammar that scores are of, and how many these are.

    vLLM applies the mask of a grammar before its sampler, so that raw logprobs are those of the tokens that are left
    (`apply_grammar_bitmask`, `vllm/v1/worker/gpu_model_runner.py`, v0.32.0); scores know no grammar. Those that are no
    logprobs at all stay: they are wrong by themselves. Not so -inf where the rules of a request together leave nothing
    to choose: whatever token comes then has that.
    """
    arms = baseline, candidate
    left_out: set[Key] = set()

    @cache
    def scored() -> Set[Key]:  # most runs ask for no grammar, and a large one has many
        return {Key(*key[1:]) for key in scores}

    made = []
    for arm, other in (arms, arms[::-1]):
        requests = requests_of(arm, other.header)
        some = arm.completions if requests.of_all.grammar is not None else arm.own_sampling
        masked = {}
        for key in some if arm.has_logprobs else ():
            one = arm.completions[key]
            asked = requests.of(one)
            if one.logprobs is None or asked.grammar is None:
                continue
            is_usual = _are_logprobs(one)
            may_be_none = bool(asked.allowed or asked.bad_words or asked.min_tokens) and not is_usual
            if (is_usual and key in scored()) or (may_be_none and _are_logprobs(one, least=-np.inf)):
                masked[key] = replace(one, logprobs=None)
        left_out.update(key for key in masked if key in scored())
        made.append(arm.but(masked) if masked else arm)
    return made[0], made[1], len(left_out)


def _are_logprobs(one: Completion, least: float = -np.finfo(np.float64).max) -> bool:
    """One for each token, none of them below `least`, above 0 or nothing?"""
    top = one.logprobs
    if top is None or len(top) != len(one.token_ids) or not top.ids.shape[1]:
        return False
    is_chosen = top.ids == one.token_ids[:, None]
    values = top.values[is_chosen]
    return bool(is_chosen.any(axis=1).all() and ((values >= least) & (values <= 1e-3)).all())


def says_nothing(arm: Capture) -> bool:
    """Does every token of the arm, as far as looked at, have logprob 0?"""
    tokens = 0
    for one in _first(arm, LOOKED_AT) if arm.has_logprobs else ():
        top = one.logprobs
        if top is None:
            continue
        if len(top) != len(one.token_ids) or not top.ids.shape[1]:
            return False
        chosen = top.values[top.ids == one.token_ids[:, None]]
        if len(chosen) < len(one.token_ids) or not bool((chosen >= -1e-6).all()):
            return False
        tokens += len(one.token_ids)
    return tokens >= CERTAIN_TOKENS


def _first(arm: Capture, count: int) -> Iterable[Completion]:
    for index, one in enumerate(arm):
        if index == count:
            return
        yield one


# ------------------------------------------------------------------ EOS kept or dropped


def _without_dropped_eos(
    baseline: Capture, candidate: Capture, scores: Mapping[ScoreKey, TopLogprobs]
) -> tuple[Capture, Capture, dict[ScoreKey, TopLogprobs], int] | None:
    """Where one arm never keeps the token it stopped at and the other does: pairs that differ in nothing else get the
    shorter stream on both sides. None where the arms have one habit."""
    ends = terminators(baseline.header) | terminators(candidate.header)
    if not ends:
        return None
    kept = [_keeps(arm, ends) for arm in (baseline, candidate)]
    if kept not in ([True, False], [False, True]):
        return None
    keeper, other = (baseline, candidate) if kept[0] else (candidate, baseline)
    shorter: dict[Key, Completion] = {}
    trimmed = dict(scores)
    for key, one in keeper.completions.items():
        twin = other.completions.get(key)
        if twin is None or len(one.token_ids) != len(twin.token_ids) + 1:
            continue
        if not (_stopped(one, keeper) and _stopped(twin, other)):
            continue
        if int(one.token_ids[-1]) in ends and np.array_equal(one.token_ids[:-1], twin.token_ids):
            shorter[key] = replace(one, token_ids=one.token_ids[:-1], logprobs=_cut(one.logprobs, len(one.token_ids)))
            score_key = ScoreKey(keeper.header.arm, *key)
            if (top := _cut(trimmed.get(score_key), len(one.token_ids))) is not None:
                trimmed[score_key] = top
    if not shorter:
        return None
    keeper = keeper.but(shorter)
    pair = (keeper, other) if kept[0] else (other, keeper)
    return *pair, trimmed, len(shorter)


def _ends_of_one_arm(arms: tuple[Capture, Capture]) -> frozenset[int]:
    """As `SameHabits` has them; what parity ran itself has no such habit."""
    if not any(by_others(arm.header) for arm in arms):
        return frozenset()
    ends = terminators(arms[0].header) | terminators(arms[1].header)
    kept = [_keeps(arm, ends) for arm in arms]
    drops = (by_others(arm.header) and one is False for arm, one in zip(arms, kept, strict=True))
    return ends if True in kept and any(drops) else frozenset()


def _drops_eos(baseline: Capture, candidate: Capture, *, shown: bool) -> bool:
    """Does the candidate leave out the token that it stopped at, where the baseline keeps it? `shown`: by pairs that
    differ in nothing else. Where none does, an arm that parity did not run leaves it out if it never gave it: drawn
    completions have no equals."""
    ends = terminators(baseline.header) | terminators(candidate.header)
    if shown or _keeps(candidate, ends) is not False:
        return shown and not _keeps(candidate, ends)
    if not by_others(candidate.header) or _keeps(baseline, ends) is False:
        return False
    is_random = temperature_in(candidate.header.sampling) or highest_own_temperature(candidate)
    return sum(_stopped(one, candidate) for one in candidate) >= (1 if is_random else FEW_ENDS)


def _without_rest_of_step(
    baseline: Capture, candidate: Capture, scores: Scores
) -> tuple[Capture, Capture, Scores, int]:
    """Pairs that stop strings ended in one speculative step: the shorter stream, with its text, on both sides.

    vLLM up to v0.31 keeps the tokens after a stop string that the same step made, and where a step completes several
    stop strings it takes the first of the list, not of the text (`vllm/v1/engine/detokenizer.py`).
    """
    arms = [baseline, candidate]
    steps = [draft_tokens(arm.header.engine) for arm in arms]
    if not any(steps) or not all("stop" in arm.finish_reasons for arm in arms):
        return baseline, candidate, scores, 0
    trimmed = dict(scores)
    shorter: list[dict[Key, Completion]] = [{}, {}]
    for key, one in baseline.completions.items():
        other = candidate.completions.get(key) if _at_stop_string(one) else None
        if other is None or not _at_stop_string(other):
            continue
        pair = (one, other)
        longer = int(steps[1] > 0) if len(one.token_ids) == len(other.token_ids) else _longer(pair)
        kept, cut = pair[1 - longer], pair[longer]
        count, more = len(kept.token_ids), len(cut.token_ids) - len(kept.token_ids)
        another = one.stop_reason != other.stop_reason
        if not steps[longer] >= more >= 1 - another or (one.text != other.text and not another):
            continue
        if not np.array_equal(cut.token_ids[:count], kept.token_ids):
            continue
        lists = None if cut.logprobs is None else _first_lists(cut.logprobs, count)
        shorter[longer][key] = replace(
            cut, token_ids=cut.token_ids[:count], logprobs=lists, text=kept.text, stop_reason=kept.stop_reason
        )
        score_key = ScoreKey(arms[longer].header.arm, *key)
        if score_key in trimmed:
            trimmed[score_key] = _first_lists(trimmed[score_key], count)
    arms = [arm.but(cut) if cut else arm for arm, cut in zip(arms, shorter, strict=True)]
    return arms[0], arms[1], trimmed, sum(map(len, shorter))


def _at_stop_string(one: Completion) -> bool:
    return one.finish_reason == "stop" and isinstance(one.stop_reason, str)


def _longer(pair: tuple[Completion, Completion]) -> int:
    return int(len(pair[1].token_ids) > len(pair[0].token_ids))


def _first_lists(top: TopLogprobs, count: int) -> TopLogprobs:
    """The lists of the first `count` tokens."""
    rest = None if top.logsumexp is None else top.logsumexp[:count]
    return TopLogprobs(top.ids[:count], top.values[:count], rest)


def _stopped(one: Completion, arm: Capture) -> bool:
    """May it have stopped at a token? Of an arm that gives no reasons each may have."""
    reason = "stop" if "stop" in arm.finish_reasons else None
    return one.finish_reason == reason and not isinstance(one.stop_reason, str)


def _keeps(arm: Capture, ends: frozenset[int]) -> bool | None:
    """Does the arm keep the token it stops at, at least now and then? None where nothing stopped. Where some of these
    tokens are named besides (`stop_reason`), the others decide: they are the EOS."""
    kept: dict[bool, bool] = {}
    for one in arm if {"stop", None} & arm.finish_reasons else ():
        if _stopped(one, arm):
            keeps = bool(len(one.token_ids)) and int(one.token_ids[-1]) in ends
            is_named = one.stop_reason is not None
            if keeps and not is_named:
                return True
            kept[is_named] = kept.get(is_named, False) or keeps
    return kept.get(False, kept.get(True))


def _cut(top: TopLogprobs | None, length: int) -> TopLogprobs | None:
    """The lists of all but the last of `length` tokens."""
    return top if top is None or len(top) != length else _first_lists(top, length - 1)
