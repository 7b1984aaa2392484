"""Do the numerics of a whole arm differ from the baseline's, though no single token shows it?

What is tested is small and everywhere: residuals (reference/residuals.py) and gaps, each pair of completions a unit,
since the tokens of one completion depend on each other. Each test asks for more than a clean arm shows (the constants
here and in residual_tests.py), so that no number of tokens makes one of arms that only round in another order. Every
p-value is adjusted for all tests of the run (Holm).

There are two sizes. `ROUNDING`: more than arms of the same kernels differ by, but no more than one bf16 unit of
noise on every logit would do, which moves each logit by itself, up as often as down, in every token. `BEYOND`: more
than that, or otherwise: to one side, by id or place, or in few tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, structs

from parity.comparator.population import leaning, parts, residual_tests, spots
from parity.comparator.population.detectable import detectable_effects
from parity.comparator.population.leaning import BOTH, GROUPINGS, Leaning, leanings
from parity.comparator.population.leaning_patterns import leaning_pattern
from parity.comparator.population.odd_rows import Rows, odd_rows, row_sums, rows_seen
from parity.comparator.population.parts import noisy_part
from parity.comparator.population.residual_tests import (
    BASELINE,
    CANDIDATE,
    Fresh,
    Groups,
    Rare,
    Shifts,
    block_sums,
    not_fresh,
    numbered,
    scale,
    shift,
    tail,
    tail_alone,
)
from parity.comparator.population.stretches import Looked, Stretch, in_one_pass
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.statistics import holm, mcnemar_more
from parity.comparator.stats import Drift, NoisySpots, Numerics
from parity.comparator.sums import Added, Products
from parity.records import Key

Names = tuple[str, ...]

BEYOND = ("shift", "ids", "places", "spots", "unit", "tail_alone", "mid_tail", "far_tail", "gaps_beyond", "doubt")
"""Tests that one bf16 unit of noise on every logit does not fail."""

DOUBT = "doubt"
"""Tokens a little beyond the tolerance, in one arm alone."""

ROUNDING = ("scale", "tail", "gaps")
"""Tests that it fails, and arms of the same kernels do not."""

OF_ANY_KERNELS = ("gaps_beyond",)
"""Tests of BEYOND that kernels which round otherwise do not fail either, where the bf16 unit of the logits is measured:
noise of one unit makes up to 2.9 times the gap that it should, and three times is asked of the baseline's as well. How
residuals lean, or which tokens have large ones, may be a kernel's own."""

SHOWN = 8
"""Spots and tokens that the statistics name."""

UNIT = 1 / 16
"""Nats: the bf16 unit of logits between 8 and 16, where nothing shows it."""

ONE_UNIT = 0.65
"""bf16 units of mean logit noise that noise of one unit on every logit stays below (0.29 to 0.55)."""

MID_RATE, FAR_RATE = 2.5e-3, 8e-4
"""Share of tokens beyond MID and FAR units that one unit of noise may leave (6 to 17, and 0.8 to 7.6, in 10,000)."""

GAP_FACTOR = 3.0
"""Ratio of mean gaps. Clean arms: up to 1.5."""


BEYOND_ONE_UNIT = 2.5
"""Times the mean gap that one bf16 unit of noise makes, from which it is more than that. Few tokens are so near a tie
that noise turns them, so the ratio scatters: up to 2.05 in 12 runs with such noise."""


class Gaps(Struct, frozen=True):
    """What the gaps of the arms say: `drift` as in the statistics, completions with a token a little beyond the
    tolerance in one arm alone, and the mean gap (nats) that one bf16 unit of noise on every logit would make."""

    drift: Drift | None = None
    only_candidate: int = 0
    only_baseline: int = 0
    of_one_unit: float = 0.0
    farther_in_candidate: int = 0
    farther_in_baseline: int = 0
    """Such tokens by the scores alone, whatever is said of the completions that they are in, in one arm alone."""


class _Sums(Added, frozen=True):
    """What the tests add up in their first pass over the tokens."""

    blocks: Products
    shifts: Shifts
    new_shifts: Shifts
    wide: Rare
    mid: Rare
    far: Rare
    baseline: Fresh
    candidate: Fresh
    rows: Rows


def _sums(part: Stretch) -> _Sums:
    baseline, candidate = part.arms
    rare = partial(Rare.of, block=part.block, completion=part.completion)
    return _Sums(
        blocks=block_sums(part.arms, part.block),
        shifts=Shifts.of(baseline.capped, candidate.capped, part.completion),
        new_shifts=_new_shifts(part),
        wide=rare((baseline.wide, candidate.wide)),
        mid=rare((baseline.mid, candidate.mid)),
        far=rare((baseline.far, candidate.far)),
        baseline=Fresh.of(baseline, part.new),
        candidate=Fresh.of(candidate, part.new),
        rows=row_sums(part),
    )


def _new_shifts(part: Stretch) -> Shifts:
    """Of the tokens after tokens of their own."""
    new = part.new
    own, other = (arm.capped[new] for arm in part.arms)
    return Shifts.of(own, other, Groups(numbered(part.completion.of[new])))


def measure_numerics(
    looked: Looked | None,
    gaps: Gaps,
    unit: float | None,
    alpha: float,
    keys: Sequence[Key] = (),
    by_number: Callable[[Looked], Mapping[str, Looked]] = lambda _: {},
    vocab_size: int | None = None,
) -> Numerics | None:
    """All tests and the numbers they rest on. looked: the residuals of the run; unit: the bf16 unit of the chosen
    tokens' logits (nats), None where nothing shows it; `keys`: of the pairs that the residuals are of; `by_number`: the
    same with all that each round, or each sample, says, where much of it repeats others. None where there is nothing to
    test."""
    p_values = _gap_tests(gaps)
    if looked is None:
        if gaps.drift is None:
            return None
        found = Numerics(
            source="gaps",
            unit=unit,
            unit_is_measured=unit is not None,
            gaps_of_one_unit=gaps.of_one_unit,
            baseline_off=_in_doubt(gaps, alpha / len(p_values)),
            farther_in_baseline=gaps.farther_in_baseline,
            farther_in_candidate=gaps.farther_in_candidate,
        )
        return _with_failed(found, p_values, alpha)
    step = UNIT if unit is None else unit
    numbered_ones = by_number(looked) if looked.by_scores else {}
    sums, by_part, *learned = in_one_pass(looked, _first_questions(looked, keys, numbered_ones))
    second = _SecondPass(looked, by_part, learned, step, keys)
    of_numbers = parts.of_numbers(numbered_ones, keys, step)
    leans, where = second.leans, second.spots
    noise = looked.noise
    tests = {
        **p_values,
        **{name: one.p_value for name, one in leans.items()},
        "spots": where.p_value,
        "shift": _shift(sums, alpha),
        "unit": scale(sums.blocks, ONE_UNIT * step, step),
        "mid_tail": tail(sums.mid, MID_RATE),
        "far_tail": tail(sums.far, FAR_RATE),
    }
    if looked.by_scores:
        tests |= {
            "scale": scale(sums.blocks, 0.0, step),
            "tail": tail(sums.wide, residual_tests.TAIL_RATE),
            "tail_alone": tail_alone(sums.wide, noise),
        }
        tests |= {name: 1.0 for name in not_fresh(sums.baseline, sums.candidate) if name in tests}
        if noise[CANDIDATE] < residual_tests.ALONE * noise[BASELINE]:
            # Noise that moves gaps makes residuals larger: where they are as usual, few near-ties fell otherwise.
            tests["gaps"] = 1.0
    adjusted = holm(dict(tests))
    both = [name for name in TWO_SIDED if adjusted[name] < alpha and looked.by_scores]
    off = of_baseline(both, looked) if both else ()
    tests |= dict.fromkeys(off, 1.0)
    if looked.by_scores:
        repeated = set(not_fresh(sums.candidate, sums.baseline))
        off += _noisier(sums, step, alpha / len(tests), repeated)
    off += _in_doubt(gaps, alpha / len(tests))
    found = Numerics(
        source="scores" if looked.by_scores else "own",
        tokens=looked.tokens,
        completions=looked.completions,
        unit=step,
        unit_is_measured=unit is not None,
        baseline=looked.baseline.summary(looked.sample.residuals[0]) if looked.by_scores else None,
        candidate=looked.candidate.summary(looked.sample.residuals[1]),
        mean_shift=looked.candidate.capped.mean - looked.baseline.capped.mean,
        leaning={name: one.size for name, one in leans.items()},
        baseline_off=off,
        farther_in_baseline=gaps.farther_in_baseline,
        farther_in_candidate=gaps.farther_in_candidate,
        spots=NoisySpots(size=where.size, found=where.found[:SHOWN], by_context=where.by_context),
        odd_rows=odd_rows(sums.rows, noise[BASELINE], step, alpha, keys) if looked.by_scores else None,
        noisy_part=noisy_part(
            [*second.asked_parts, *of_numbers[0]], parts.joined(second.of_parts, of_numbers[1]), alpha
        ),
        rows_seen=rows_seen(sums.rows, noise[BASELINE], step, alpha, len(keys)) if looked.by_scores else (),
        scale_ratio=_ratio(noise[CANDIDATE], noise[BASELINE]) if looked.by_scores else None,
        extra_wide_per_10_000=(looked.candidate.wide - looked.baseline.wide) * 1e4,
        logit_noise_in_units=noise[CANDIDATE] / step,
        gaps_of_one_unit=gaps.of_one_unit,
        detectable=detectable_effects(sums.shifts, sums.blocks, looked.baseline.wide, len(tests), alpha),
    )
    found = _with_failed(found, tests, alpha)
    if "ids" not in found.failed:
        return found
    variance = looked.baseline.capped.variance + looked.candidate.capped.variance
    by_id = dict(zip(GROUPINGS, learned, strict=False))["ids"]
    return structs.replace(
        found,
        leaning_tokens=leaning.leaning_tokens(by_id, variance)[:SHOWN],
        leaning_pattern=leaning_pattern(by_id, variance, vocab_size),
    )


def _first_questions(
    looked: Looked, keys: Sequence[Key], numbered_ones: Mapping[str, Looked]
) -> list[Callable[[Stretch], Any]]:
    by_part = _nothing
    if looked.by_scores:
        asked_apart = (*numbered_ones, *([parts.SINCE] if parts.NUMBERED[0] in numbered_ones else ()))
        kinds = [one for one in parts.kinds(keys) if one not in asked_apart]
        since = parts.last_rounds(keys) if parts.SINCE in kinds else ()
        by_part = partial(parts.measure, keys=keys, by_these=kinds, since=since)
    return [_sums, by_part, *(partial(leaning.learn, one, BOTH) for one in GROUPINGS.values()), *_SPOTS]


def _nothing(part: Stretch) -> parts.ByPart:
    return parts.ByPart({}, parts.NOTHING)


_SPOTS = tuple(partial(spots.learn, by_context=one) for one in (True, False))


class _SecondPass:
    """The tests that ask about what a first pass over the tokens has shown."""

    def __init__(
        self, looked: Looked, by_part: parts.ByPart, learned: Sequence[Any], step: float, keys: Sequence[Key]
    ) -> None:
        """learned: of each of GROUPINGS, and of both kinds of spots."""
        groups, by_spot = learned[: len(GROUPINGS)], learned[len(GROUPINGS) :]
        self.asked_parts = parts.asked_of(by_part, step)
        judged = [spots.judged(one, looked.noise[BASELINE], step) for one in by_spot]
        allowed = leaning.allowed_leaning(looked.baseline.capped, looked.candidate.capped)
        questions: list[Callable[[Stretch], Any]] = [
            *(partial(leaning.ask, one, BOTH, of, allowed) for one, of in zip(GROUPINGS.values(), groups, strict=True)),
            *(partial(spots.ask, one, by_context=kind) for one, kind in zip(judged, (True, False), strict=True)),
            partial(parts.ask, self.asked_parts, keys),
        ]
        *answers, self.of_parts = in_one_pass(looked, questions)
        of_groups, of_spots = answers[: len(GROUPINGS)], answers[len(GROUPINGS) :]
        self.leans: dict[str, Leaning] = {
            name: leaning.leaning(one) for name, one in zip(GROUPINGS, of_groups, strict=True)
        }
        self.spots = spots.worst(
            *(
                spots.spots_of(one, asked, by_context=kind)
                for one, asked, kind in zip(judged, of_spots, (True, False), strict=True)
            )
        )


def _shift(sums: _Sums, alpha: float) -> float:
    """Of all tokens, and of those after tokens of their own: where completions lead to the same text they have the same
    residuals, which is one chance and not as many as there are completions."""
    found = shift(sums.shifts)
    return found if found >= alpha else max(found, shift(sums.new_shifts))


TWO_SIDED = ("shift", "ids", "places")
"""Tests that fail whichever arm lies off its scores."""


def of_baseline(failed: Sequence[str], looked: Looked) -> Names:
    """Of these of TWO_SIDED, the ones that the baseline fails by itself, against the scores alone, and the candidate
    not, or by less."""
    own, other = (_alone(looked, sides) for sides in ((True, False), (False, True)))
    return tuple(name for name in failed if own[name] < other[name])


def _alone(looked: Looked, sides: leaning.Sides) -> dict[str, float]:
    """The p-values of TWO_SIDED where the residuals of one arm count, and those of the other are taken for 0."""
    (shifts,) = in_one_pass(looked, [partial(_shifts_of, sides)])
    return {**{name: one.p_value for name, one in leanings(looked, sides).items()}, "shift": shift(shifts)}


def _shifts_of(sides: leaning.Sides, part: Stretch) -> Shifts:
    own, other = (
        arm.capped if counts else np.zeros(len(arm.capped)) for arm, counts in zip(part.arms, sides, strict=True)
    )
    return Shifts.of(own, other, part.completion)


def _noisier(sums: _Sums, step: float, alpha: float, but: Set[str]) -> Names:
    """The tests of ROUNDING, `but` for these, by which it is the baseline that is noisier, by more than clean arms
    are."""
    found = {
        "scale": scale(sums.blocks, 0.0, step, own=CANDIDATE),
        "tail": tail(sums.wide.swapped(), residual_tests.TAIL_RATE),
    }
    return tuple(name for name, p_value in found.items() if p_value < alpha and name not in but)


def beyond_any_kernels(found: Numerics) -> bool:
    """Is it more than kernels that are known to be others round?"""
    return found.unit_is_measured and not set(OF_ANY_KERNELS).isdisjoint(found.failed)


def _with_failed(found: Numerics, p_values: Mapping[str, float], alpha: float) -> Numerics:
    adjusted = holm(dict(p_values))
    failed = tuple(name for name in (*BEYOND, *ROUNDING) if adjusted.get(name, 1.0) < alpha)
    return structs.replace(
        found,
        p_values=dict(p_values),
        adjusted=adjusted,
        failed=failed,
        more_than_one_unit=any(name in BEYOND for name in failed),
    )


# ------------------------------------------------------------------ gaps


def _gap_tests(gaps: Gaps) -> dict[str, float]:
    """Mean gaps by the sign-flip test, and doubtful completions by McNemar's."""
    drift = gaps.drift
    if drift is None:
        return {}
    more = drift.candidate_mean_gap - drift.baseline_mean_gap
    wide = drift.ratio is None or drift.ratio >= GAP_FACTOR
    return {
        "gaps": drift.p_value if wide and more > gaps.of_one_unit / 2 else 1.0,
        "gaps_beyond": drift.p_value if wide and more > BEYOND_ONE_UNIT * gaps.of_one_unit else 1.0,
        DOUBT: mcnemar_more(gaps.only_candidate, gaps.only_baseline),
    }


def _in_doubt(gaps: Gaps, alpha: float) -> Names:
    """The test of doubt, where it is the baseline that has more such tokens."""
    more = mcnemar_more(gaps.farther_in_baseline, gaps.farther_in_candidate) < alpha
    return (DOUBT,) if more else ()


def gaps_of_one_unit(differences: FloatArray, unit: float) -> float:
    """The mean gap (nats) that noise of one bf16 unit on every logit makes.

    differences: nats between the two best tokens, shape (N,). Each logit moves by a unit up or down with chance 1/4, so
    their difference moves by two units with chance 1/16 and by one with 1/4.
    """
    if not len(differences):
        return 0.0
    chance = np.where(differences < unit, 5 / 16, np.where(differences < 2 * unit, 1 / 16, 0.0))
    return float((differences * chance).mean())


def _ratio(value: float, other: float) -> float | None:
    return value / other if other > 0 else None
