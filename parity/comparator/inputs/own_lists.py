"""Lists of logprobs that an arm writes in a way of its own: numbers of which kind, and what they leave out.

What can be turned into natural logarithms is, and stays under all checks; the rest is left out. Each is a habit only
where the whole arm has it: in one completion it is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from parity.comparator.inputs.best_alone import of_the_best_alone
from parity.comparator.inputs.conventions import LOOKED_AT, habit_note, says_nothing
from parity.comparator.inputs.list_lengths import one_per_token
from parity.comparator.inputs.list_ratios import (
    CLOSE,
    OTHER_TEMPERATURE,
    beside_arm,
    beside_scores,
    constant,
    is_constant,
    ratios_of,
    surer_throughout,
)
from parity.comparator.inputs.numbers import (
    BASE_2,
    BASE_10,
    PROBABILITIES,
    Numbers,
    kind_of_numbers,
)
from parity.comparator.inputs.servers import by_others, served
from parity.comparator.inputs.unnumbered import without_unnumbered
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, Lazy, Scores, TopLogprobs


def as_natural_logs(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Remarks]:
    """Both captures with one list of natural logarithms per token, or without any. `scores`: natural ones."""
    baseline, counts = one_per_token(baseline)
    candidate, more = one_per_token(candidate)
    baseline, candidate, unnumbered = without_unnumbered(baseline, candidate)
    remarks = counts + more + unnumbered
    for rule in (partial(_numbers, scores=scores), _certain, _unsaid):
        baseline, of_baseline = rule(baseline)
        candidate, of_candidate = rule(candidate)
        remarks += of_baseline + of_candidate
    odd = of_the_best_alone(baseline, candidate, scores)
    baseline, candidate = (
        arm if some is None else _without_lists(arm, some) for arm, some in zip((baseline, candidate), odd, strict=True)
    )
    remarks += Remarks(notes=tuple(_best_alone(odd, baseline.header.arm, candidate.header.arm)))
    candidate, of_candidate = _by_ratio(baseline, candidate, scores)
    baseline, of_baseline = _by_ratio(candidate, baseline, scores)
    return baseline, candidate, remarks + of_candidate + of_baseline


# ------------------------------------------------------------------ of which kind

RATIOS = {1 / float(np.log(2)): BASE_2, 1 / float(np.log(10)): BASE_10}
"""By what natural logarithms are multiplied in another base."""


def _numbers(arm: Capture, scores: Scores) -> tuple[Capture, Remarks]:
    """Numbers that cannot be natural logarithms of probabilities; but where most are those of the scores, it is a few
    lists that are wrong."""
    if not arm.has_logprobs:
        return arm, Remarks()
    kind = kind_of_numbers(_some(arm), arm.header.vocab_size)
    if kind is PROBABILITIES and _rounded_to_nothing(arm):
        what = message(
            "inputs.rounded_probabilities",
            "its probabilities are rounded, those of some chosen tokens to 0: its logprobs are left out",
        )
        return _without_lists(arm), habit_note(arm, what)
    if kind is None or is_constant(ratios_of(beside_scores(arm, scores))[0], 1.0):
        return arm, Remarks()
    return _converted(arm, kind)


DIGITS = 1000
"""One over the finest step that rounded probabilities are looked for in."""


def _rounded_to_nothing(arm: Capture) -> bool:
    """Is the probability of a chosen token 0, where all are written with a few decimals?"""
    some = [one for one in islice(arm, LOOKED_AT) if one.logprobs is not None]
    steps = np.concatenate([one.logprobs.values.ravel() for one in some if one.logprobs is not None]) * DIGITS
    steps = steps[np.isfinite(steps)]
    return bool((np.abs(steps - np.round(steps)) < 1e-6).all()) and any(_gives_chosen(one, 0.0) for one in arm)


def _converted(arm: Capture, kind: Numbers) -> tuple[Capture, Remarks]:
    changed = {
        key: replace(one, logprobs=replace(one.logprobs, values=kind.as_natural(one.logprobs.values)))
        for key, one in arm.completions.items()
        if one.logprobs is not None
    }
    what = message("inputs.other_numbers", "its logprobs are {what}: taken as such", what=kind.name)
    return arm.but(changed), habit_note(arm, what)


def _by_ratio(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Remarks]:
    """The candidate's logprobs beside the baseline's of the same tokens, or where that has none beside its scores:
    another base, or another temperature."""
    if not candidate.has_logprobs:
        return candidate, Remarks()
    chosen, spread = ratios_of(beside_arm(candidate, baseline) if baseline.has_logprobs else ())
    base = constant(chosen)
    others = base is not None and by_others(candidate.header) and bool(scores)
    if base is None or others:  # it is the baseline's that may be of another kind, or both
        of_scores = ratios_of(beside_scores(candidate, scores))
        if (other := constant(of_scores[0])) is not None or base is None:
            base, spread = other, of_scores[1]
    scale = constant(spread)
    for ratio, kind in RATIOS.items():
        # Another base changes the distances within a list as much; another temperature does not.
        if base is not None and abs(base / ratio - 1) < CLOSE and (scale is None or abs(scale / ratio - 1) < CLOSE):
            return _converted(candidate, kind)
    if served(candidate.header) and scale is not None and abs(scale - 1) > OTHER_TEMPERATURE:
        what = message(
            "inputs.other_temperature",
            "its logprobs are those of another temperature ({temperature:.2g}): left out",
            temperature=1 / scale,
        )
        return _without_lists(candidate), habit_note(candidate, what)
    if served(candidate.header) and scale is None and surer_throughout(baseline, candidate, scores):
        what = message(
            "inputs.as_other_temperature",
            "its logprobs differ from the reference's to one side throughout, as those of another temperature do: left "
            "out",
        )
        return _without_lists(candidate), habit_note(candidate, what)
    return candidate, Remarks()


def _certain(arm: Capture) -> tuple[Capture, Remarks]:
    """An arm that calls every token certain (processed logprobs of greedy decoding)."""
    if not by_others(arm.header) or arm.header.engine.get("logprobs_mode") is not None or not says_nothing(arm):
        return arm, Remarks()
    what = message("inputs.certain", "its logprobs call every token certain: left out")
    return _without_lists(arm), habit_note(arm, what)


UNSAID = -9999.0
"""What OpenAI gives, and those who do as it does, for a token that is not among the likeliest: no logprob."""


def _unsaid(arm: Capture) -> tuple[Capture, Remarks]:
    """An arm that does not say how likely its own token was where others were likelier. Without those tokens alone the
    rest would look as if drawn too carefully."""
    if not by_others(arm.header) or not arm.has_logprobs:
        return arm, Remarks()
    # A generator costs a call for each.
    some = [one for one in arm.with_logprobs() if one.logprobs is not None and UNSAID in one.logprobs.values]
    if not (any(_gives_chosen(one, UNSAID) for one in some) or _column_leaves_unsaid(arm)):
        return arm, Remarks()
    what = message(
        "inputs.unsaid", "it gives -9999 for chosen tokens that are not among the likeliest: its logprobs are left out"
    )
    return _without_lists(arm), habit_note(arm, what)


def _gives_chosen(one: Completion, number: float) -> bool:
    """Does it have this number for one of its own tokens?"""
    top = one.logprobs
    if top is None:
        return False
    size = min(len(top), len(one.token_ids))
    return bool(((top.ids[:size] == one.token_ids[:size, None]) & (top.values[:size] == number)).any())


def _column_leaves_unsaid(arm: Capture) -> bool:
    """The same of completions whose logprobs are a column, of chosen tokens alone."""
    if not isinstance(arm.completions, Lazy):
        return False
    rows = np.flatnonzero(arm.completions.has_own)
    parts = (rows[begin : begin + _AT_ONCE] for begin in range(0, len(rows), _AT_ONCE))
    return any(UNSAID in arm.completions.own_logprobs(part) for part in parts)


_AT_ONCE = 4096
"""Completions of which logprobs are looked at together."""


_BEST_ALONE = message(
    "inputs.best_alone",
    "both arms list the best tokens alone, and some that were chosen are not among them: their logprobs are left out",
)


def _best_alone(odd: tuple[frozenset[Key] | None, frozenset[Key] | None], *arms: str) -> Iterator[Message]:
    """`odd`: of each of the arms, as `of_the_best_alone` has it."""
    named = [arm for arm, some in zip(arms, odd, strict=True) if some is not None]
    if len(named) == 2:
        yield _BEST_ALONE
    elif named:
        yield message(
            "inputs.best_alone_in_one",
            "{arm} lists the best tokens alone, and some that were chosen are not among them: its logprobs are left "
            "out",
            arm=named[0],
        )


def _without_lists(arm: Capture, but: frozenset[Key] = frozenset()) -> Capture:
    completions = {key: one if key in but else replace(one, logprobs=None) for key, one in arm.completions.items()}
    return replace(arm, completions=completions)


def _some(arm: Capture) -> Iterator[TopLogprobs]:
    return islice((one.logprobs for one in arm if one.logprobs is not None), LOOKED_AT)
