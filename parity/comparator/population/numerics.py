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

from collections.abc import Mapping, Sequence, Set

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from parity.comparator.population import residual_tests
from parity.comparator.population.detectable import detectable_effects
from parity.comparator.population.leaning import first_of_contexts, leanings
from parity.comparator.population.odd_rows import odd_rows, rows_seen
from parity.comparator.population.parts import noisy_part
from parity.comparator.population.residual_tests import (
    BLOCK,
    Arm,
    Groups,
    not_fresh,
    numbered,
    scale,
    shift,
    tail,
    tail_alone,
)
from parity.comparator.population.spots import spots
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.reference.residuals import PairedResiduals
from parity.comparator.statistics import holm, mcnemar_more
from parity.comparator.stats import Drift, NoisySpots, Numerics
from parity.records import Key

Bools = npt.NDArray[np.bool_]
Arms = tuple[Arm, Arm]
Names = tuple[str, ...]

BEYOND = ("shift", "ids", "places", "spots", "unit", "tail_alone", "mid_tail", "far_tail", "gaps_beyond", "doubt")
"""Tests that one bf16 unit of noise on every logit does not fail."""

ROUNDING = ("scale", "tail", "gaps")
"""Tests that it fails, and arms of the same kernels do not."""

SHOWN = 8
"""Spots that the statistics name."""

UNIT = 1 / 16
"""Nats: the bf16 unit of logits between 8 and 16, where nothing shows it."""

ONE_UNIT = 0.65
"""bf16 units of mean logit noise that noise of one unit on every logit stays below (0.29 to 0.55)."""

MID_RATE, FAR_RATE = 2.5e-3, 8e-4
"""Share of tokens beyond MID and FAR units that one unit of noise may leave (6 to 17, and 0.8 to 7.6, in 10,000)."""

NONE_THERE = 0.2
"""Times the candidate's usual noise, below which its first tokens have none, and count with the usual."""

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


def measure_numerics(
    residuals: PairedResiduals | None, gaps: Gaps, unit: float | None, alpha: float, keys: Sequence[Key] = ()
) -> Numerics | None:
    """All tests and the numbers they rest on; `unit`: the bf16 unit of the chosen tokens' logits (nats), None where
    nothing shows it; `keys`: of the pairs that the residuals are of. None where there is nothing to test."""
    p_values = _gap_tests(gaps)
    if residuals is None or not len(residuals):
        if gaps.drift is None:
            return None
        return _with_failed(Numerics(source="gaps", gaps_of_one_unit=gaps.of_one_unit), p_values, alpha)
    step = UNIT if unit is None else unit
    recorded = (
        Arm.of(residuals.baseline, residuals.baseline_score, step)
        if residuals.by_scores
        else Arm.of_none(len(residuals)),
        Arm.of(residuals.candidate, residuals.candidate_score, step),
    )
    baseline, candidate = arms = _comparable(recorded, residuals)
    completion = Groups(numbered(residuals.row))
    block = Groups(numbered(residuals.row.astype(np.int64) * 65_536 + residuals.place // BLOCK))
    firsts = np.concatenate([[True], residuals.row[1:] != residuals.row[:-1]])
    named = [keys[row] for row in residuals.row[firsts].tolist()] if keys else []
    new = first_of_contexts(residuals)
    leans = leanings(residuals, baseline, candidate, completion, new)
    where = spots(residuals, baseline, candidate, completion, step)
    tests = {
        **p_values,
        **{name: one.p_value for name, one in leans.items()},
        "spots": where.p_value,
        "shift": _shift(arms, completion, new, alpha),
        "unit": scale(baseline, candidate, block, ONE_UNIT * step, step),
        "mid_tail": tail(baseline.mid, candidate.mid, block, completion, MID_RATE),
        "far_tail": tail(baseline.far, candidate.far, block, completion, FAR_RATE),
    }
    if residuals.by_scores:
        tests |= {
            "scale": scale(baseline, candidate, block, 0.0, step),
            "tail": tail(baseline.wide, candidate.wide, block, completion, residual_tests.TAIL_RATE),
            "tail_alone": tail_alone(baseline, candidate, block, completion),
        }
        tests |= {name: 1.0 for name in not_fresh(baseline.where(new), candidate.where(new)) if name in tests}
        if float(candidate.noise.mean()) < residual_tests.ALONE * float(baseline.noise.mean()):
            # Noise that moves gaps makes residuals larger: where they are as usual, few near-ties fell otherwise.
            tests["gaps"] = 1.0
    adjusted = holm(dict(tests))
    both = [name for name in TWO_SIDED if adjusted[name] < alpha and residuals.by_scores]
    off = of_baseline(both, residuals, (baseline, candidate), completion, new) if both else ()
    tests |= dict.fromkeys(off, 1.0)
    if residuals.by_scores:
        repeated = set(not_fresh(candidate.where(new), baseline.where(new)))
        off += _noisier(candidate, baseline, block, completion, step, alpha / len(tests), repeated)
    found = Numerics(
        source="scores" if residuals.by_scores else "own",
        tokens=len(residuals),
        completions=completion.count,
        unit=step,
        unit_is_measured=unit is not None,
        baseline=recorded[0].summary() if residuals.by_scores else None,
        candidate=recorded[1].summary(),
        mean_shift=float((candidate.capped - baseline.capped).mean()),
        leaning={name: one.size for name, one in leans.items()},
        baseline_off=off,
        spots=NoisySpots(size=where.size, found=where.found[:SHOWN], by_context=where.by_context),
        odd_rows=odd_rows(arms, completion, residuals.place, new, step, alpha, named) if residuals.by_scores else None,
        noisy_part=noisy_part(residuals, arms, completion, new, step, alpha, named) if residuals.by_scores else None,
        rows_seen=rows_seen(arms, completion, new, step, alpha) if residuals.by_scores else (),
        scale_ratio=_ratio(float(candidate.noise.mean()), float(baseline.noise.mean()))
        if residuals.by_scores
        else None,
        extra_wide_per_10_000=float((candidate.wide.mean() - baseline.wide.mean()) * 1e4),
        logit_noise_in_units=float(candidate.noise.mean()) / step,
        gaps_of_one_unit=gaps.of_one_unit,
        detectable=detectable_effects(baseline, candidate, completion, block, len(tests), alpha),
    )
    return _with_failed(found, tests, alpha)


def _comparable(arms: Arms, residuals: PairedResiduals) -> Arms:
    """First tokens of outputs are without noise in the arm whose engine scores: they count as usual ones."""
    if not residuals.by_scores:
        return arms
    return arms[0].first_as_usual(residuals.place), arms[1].first_as_usual(residuals.place, below=NONE_THERE)


def _shift(arms: Arms, completion: Groups, new: Bools, alpha: float) -> float:
    """Of all tokens, and of those after tokens of their own (`new`): where completions lead to the same text they have
    the same residuals, which is one chance and not as many as there are completions."""
    found = shift(*arms, completion)
    if found >= alpha or new.all():
        return found
    baseline, candidate = (one.where(new) for one in arms)
    return max(found, shift(baseline, candidate, Groups(numbered(completion.of[new]))))


TWO_SIDED = ("shift", "ids", "places")
"""Tests that fail whichever arm lies off its scores."""


def of_baseline(failed: Sequence[str], residuals: PairedResiduals, arms: Arms, completion: Groups, new: Bools) -> Names:
    """Of these of TWO_SIDED, the ones that the baseline fails by itself, against the scores alone, and the candidate
    not, or by less."""
    baseline, candidate = arms
    found = []
    for sides in ((baseline, _silent(candidate)), (_silent(baseline), candidate)):
        leans = leanings(residuals, *sides, completion, new)
        found.append({**{name: one.p_value for name, one in leans.items()}, "shift": shift(*sides, completion)})
    return tuple(name for name in failed if found[0][name] < found[1][name])


def _noisier(
    arm: Arm, other: Arm, block: Groups, completion: Groups, step: float, alpha: float, but: Set[str]
) -> Names:
    """The tests of ROUNDING, `but` for these, by which it is the `other` arm that is noisier, by more than clean arms
    are."""
    found = {
        "scale": scale(arm, other, block, 0.0, step),
        "tail": tail(arm.wide, other.wide, block, completion, residual_tests.TAIL_RATE),
    }
    return tuple(name for name, p_value in found.items() if p_value < alpha and name not in but)


def _silent(arm: Arm) -> Arm:
    return structs.replace(arm, capped=np.broadcast_to(0.0, len(arm.capped)))


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
        "doubt": mcnemar_more(gaps.only_candidate, gaps.only_baseline),
    }


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
