"""From a comparison's pairs, scores and findings to the numerics of the arm as a whole, and the finding about them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from parity.comparator.detect.pairs import Judged
from parity.comparator.inputs import settings
from parity.comparator.inputs.conventions import says_raw
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.population import numerics, rates
from parity.comparator.population.fresh_gaps import Fresh
from parity.comparator.population.numerics_said import numerics_findings
from parity.comparator.population.parts import NUMBERED
from parity.comparator.population.stretches import Looked, Sample
from parity.comparator.reference.floor import NOT_NOISE, best_differences, logit_unit
from parity.comparator.reference.gaps import FloatArray, TokenGaps
from parity.comparator.reference.references import References
from parity.comparator.reference.residuals import PairedResiduals, Residuals, paired_residuals
from parity.comparator.reference.stored import changed, gaps_alone, overlaid
from parity.comparator.stats import Drift, Numerics
from parity.comparator.streams.contexts import context_of, repeated_until
from parity.comparator.streams.pairing import Pairs, at_rows
from parity.comparator.types import Spread
from parity.messages import Message, message
from parity.records import Capture, Finding, Key
from parity.records.many_findings import corrupt_of, heads
from parity.unnamed import kept

OWN_KIND = 0.05
"""Nats of median residual from which an arm's own logprobs are of another kind than the scores (a temperature,
penalties, another base of the logarithm): those of healthy arms are below 0.01."""

OTHER_KIND = 0.2
"""The same of the candidate alone, where the baseline's are of the right kind."""

FEW_SCORED = 0.5
"""Share of the tokens that both arms say alike, below which the scores leave most of these out."""

COARSE = 0.02
"""Nats between neighbouring logprobs from which their rounding hides what residuals would show."""

COARSE_ALONE = 0.003
"""The same where there are no scores, so that no residuals of the baseline have the same rounding: of tokens that are
nearly sure, a step of 0.01 nats looks like noise of several bf16 units."""

EXACT = 1e-9
"""Nats: a residual of that size is none."""

ALL_BUT_FEW = 0.99
"""Share of an arm's logprobs from which on all count as rounded alike."""

AGAINST_BASELINE: Final = message(
    "whole_arm.against_baseline",
    "the scores reject the baseline and support the candidate, so a difference is not the candidate's",
)

OTHER_TEXT: Final = message(
    "whole_arm.other_text",
    "the baseline draws otherwise than asked, and a text that is more or less certain has other noise",
)

FEW_STEPS = 16
"""Residuals that it takes to say how coarse logprobs are."""

DECIMALS = (0.01, 0.001)
"""Steps of logprobs that are written with two or three decimals; of natural logarithms, nats. Beside an
arm that writes them whole their rounding looks like noise of its logits."""

HALVES = (("bf16", 0xFFFF), ("fp16", 0x1FFF))
"""Formats of logprobs, and the bits of single precision that a number of theirs leaves empty."""

BASES = (1.0, math.log(2), math.log(10))
"""By what the numbers of an arm were multiplied, if they were logarithms to another base."""

REPEATED = 0.1
"""Of the tokens that are looked at, that stand after what another round or sample has said before: from so many on each
round is asked with all that it has."""

GRIDS = (1.0, 0.5, 0.25, 0.2, 0.125, 0.1, 0.0625, 0.05, 0.04, 0.03125, 0.025)
"""Steps of an arm's own numbers that are looked for; of natural logarithms, nats."""

MAY_COUNT = 0.05
"""Chance of a drift in the gaps, below which it is asked of tokens after tokens of their own too."""

LISTS_SAMPLED = 512
"""Scores looked at for the unit of the logits and for how near the two best tokens lie."""


class Part(Struct, frozen=True):
    """The tokens of each pair that may speak for the arm as a whole: those that repeat no other pair's, before anything
    that is wrong."""

    since: Mapping[Key, int]
    until: Mapping[Key, int]

    def of(self, key: Key) -> slice:
        return slice(self.since.get(key), self.until.get(key))


class WholeArm(Struct, frozen=True):
    """The numerics of a run: the numbers, the finding, and why a number is missing."""

    numerics: Numerics | None
    drift: Drift | None
    findings: tuple[Finding, ...] = ()
    missing: Message | None = None
    """Why residuals could not be tested."""


def whole_arm(
    inputs: Inputs,
    references: References,
    pairs: Pairs,
    judged: Judged,
    gaps: Mapping[Key, TokenGaps],
    findings: Sequence[Finding],
    alpha: float,
    spread: Spread,
) -> WholeArm:
    """`gaps`: of the candidate's scored completions; `findings`: those of completions."""
    if references.against_baseline:
        return WholeArm(None, None, missing=AGAINST_BASELINE)
    if judged.baseline_draws_at is not None:
        return WholeArm(None, None, missing=OTHER_TEXT)
    speak = inputs.baseline.has_logprobs and inputs.candidate.has_logprobs
    # Without residuals and without gaps there is nothing whose parts could count twice.
    since = repeated_until(pairs) if speak or references.baseline else {}
    part = Part(since, _until(findings, judged))
    paired, missing = _paired(inputs, references, pairs, gaps, part)
    are_raw = says_raw(inputs.baseline.header) and says_raw(inputs.candidate.header)
    if paired is not None and are_raw and references.lookup.scores:
        unscored, _ = _paired(inputs, references, pairs, gaps, part, scored=False)
        if unscored is not None and paired.most < FEW_SCORED * unscored.most and _contradict(unscored):
            paired = unscored  # of those that differ alone a few are scored: the others say more
    if paired is None and not (references.baseline and gaps):
        return WholeArm(None, None, missing=missing)  # nothing to test
    unit, differences = _lists(references, inputs)
    residuals = None
    if paired is not None:
        residuals, missing = _usable(inputs, Looked(paired, unit or numerics.UNIT, spread=spread))
    drift, of_gaps = _gaps(inputs, references, pairs, judged, gaps, part, differences, unit or numerics.UNIT, spread)
    keys = at_rows(pairs.keys, kept(np.flatnonzero(pairs.same_prompt)))

    def by_number(looked: Looked) -> dict[str, Looked]:
        if sum(since.values()) < REPEATED * looked.tokens:
            return {}
        whole, _ = _paired(inputs, references, pairs, gaps, Part({}, part.until))
        return {} if whole is None else _by_number(whole, keys, unit or numerics.UNIT, spread)

    found = numerics.measure_numerics(residuals, of_gaps, unit, alpha, keys, by_number, inputs.vocab_size)
    if found is None:
        return WholeArm(None, drift, missing=missing)
    headers = inputs.baseline.header, inputs.candidate.header
    kernels, hidden = settings.other_kernels(*headers, inputs.differences), settings.hide_their_kernels(*headers)
    found = structs.replace(found, other_kernels=kernels, unknown_kernels=hidden and not kernels)
    said = numerics_findings(inputs, found, drift, of_gaps)
    return WholeArm(found, drift, said, missing)


def _by_number(whole: Residuals, keys: Sequence[Key], unit: float, spread: Spread) -> dict[str, Looked]:
    """The residuals of a run with those after contexts that other rounds, or samples, have as well: by what is
    numbered, where there is more than one."""
    found = {}
    for by in NUMBERED:
        numbers = np.array([getattr(key, by) for key in keys], dtype=np.int64)
        if len(numbers) and int(numbers.min()) < int(numbers.max()):
            found[by] = Looked(whole, unit, partial(_at_rows_of, numbers), spread)
    return found


def _at_rows_of(numbers: npt.NDArray[np.int64], residuals: PairedResiduals) -> npt.NDArray[np.int64]:
    return numbers[residuals.row]


def _contradict(unscored: Residuals) -> bool:
    """Are the arms' own logprobs of the same tokens far apart throughout? By the first stretch that has some."""
    some = next((one for at in range(unscored.count) if len(one := unscored.at(at))), None)
    return some is not None and float(np.median(np.abs(some.candidate))) > OTHER_KIND


def _until(findings: Sequence[Finding], judged: Judged) -> dict[Key, int]:
    """Tokens of a pair that may speak for the arm as a whole: those before anything that is wrong in it, none where the
    baseline is wrong, for another text has other noise."""
    at_fault = (*judged.contradicted, *judged.baseline_ends, *judged.broken.baseline)
    found: dict[Key, int] = dict.fromkeys(at_fault, 0)
    for one in heads(corrupt_of(findings)):
        found[one.key] = min(found.get(one.key, one.position or 0), one.position or 0)
    return found


# ------------------------------------------------------------------ residuals


def _usable(inputs: Inputs, found: Looked) -> tuple[Looked | None, Message | None]:
    """(residuals, why they are none to test)."""
    if found.by_scores and not found.baseline.residual.squares:  # as where they stand in for it (golden)
        return None, message(
            "numerics.no_noise",
            "{arm}: its own logprobs are its scores to the last digit, so that its noise is not known",
            arm=inputs.baseline.header.arm,
        )
    sizes = [float(np.median(np.abs(one))) for one in found.sample.residuals]
    are_raw = says_raw(inputs.baseline.header) and says_raw(inputs.candidate.header)
    if sizes[0] > OWN_KIND or (sizes[1] > OTHER_KIND and not are_raw):
        return None, message(
            "numerics.other_kind",
            "the arms' own logprobs are of another kind than what they are compared with (half of them differ by more "
            "than {size:.3f} nats: a temperature, penalties, or scores that are not theirs)",
            size=max(sizes),
        )
    step = _step(found.sample)
    decimals = 0.0 if found.by_scores else max(map(_decimals, found.sample.own))
    if decimals > COARSE_ALONE:
        step = max(step, decimals)
    if step > COARSE or decimals > COARSE_ALONE:
        return None, message(
            "numerics.coarse",
            "the logprobs come in steps of about {step:.3f} nats: residuals that small could not be tested",
            step=step,
        )
    forms = [_form(one) for one in found.sample.own]
    if forms[0] != forms[1]:
        return None, message(
            "numerics.forms",
            "the logprobs of one arm are rounded ({form}), those of the other are not, or otherwise: their residuals "
            "cannot be compared",
            form=forms[1] or forms[0],
        )
    return found, None


def _paired(
    inputs: Inputs,
    references: References,
    pairs: Pairs,
    gaps: Mapping[Key, TokenGaps],
    part: Part,
    *,
    scored: bool = True,
) -> tuple[Residuals | None, Message | None]:
    """(residuals of the pairs with the same prompt, by all scores that there are of them; why there are none). Not
    `scored`: by the baseline's own logprobs."""
    silent = sorted({arm.header.arm for arm in (inputs.baseline, inputs.candidate) if not arm.has_logprobs})
    if silent or not pairs.keys:
        return None, _silent(silent) if pairs.keys else None
    rows = kept(np.flatnonzero(pairs.same_prompt))
    sides = at_rows(pairs.baseline, rows), at_rows(pairs.candidate, rows)
    own = gaps_alone(references.baseline)
    others, arm = gaps, inputs.candidate.header.arm
    if not scored:
        own, others = {}, {}
    elif references.lookup.scored(arm):
        keys = ((row, pairs.keys[row]) for row in rows.tolist())
        alone = [row for row, key in keys if key not in gaps and key not in own]
        known = references.lookup.all_gaps(arm, at_rows(pairs.candidate, np.array(alone, dtype=np.int64)))
        others = overlaid(gaps, gaps_alone(known))
    parts_at = kept(pairs.parts_at[rows])
    found = paired_residuals(sides, parts_at, (own, others), part.since, part.until, inputs.vocab_size)
    missing = message(
        "numerics.no_token", "no token has a logprob of its own in both arms and a score: nothing could be tested"
    )
    if found is None and all(part.until.get(pairs.keys[row]) == 0 for row in rows.tolist()):
        return None, message(
            "numerics.nothing_left", "in every completion a fault comes before the first token that could be tested"
        )
    return found, missing if found is None else None


def _step(some: Sample) -> float:
    """The least size of a residual that is not 0, nats, but for one in a hundred: a rounding of all logprobs. 0 where
    too few say so."""
    sizes = np.abs(np.concatenate(some.residuals))
    sizes = sizes[sizes > EXACT]
    least = float(np.quantile(sizes, 0.01)) if len(sizes) >= FEW_STEPS else 0.0
    return max(least, *(_grid(one) for one in some.own))


def _grid(logprobs: FloatArray) -> float:
    """The step (nats) of which nearly all logprobs of an arm are multiples, as where they are written with one decimal;
    0 where they are not, or too few say so."""
    known = logprobs[logprobs < -EXACT]
    if len(known) < FEW_STEPS:
        return 0.0
    return next((step for step in _in_nats(GRIDS) if _steps(known, step, 1e-5) > ALL_BUT_FEW), 0.0)


def _in_nats(steps: Sequence[float]) -> Iterator[float]:
    """Steps of numbers in any base."""
    return (base * step for base in BASES for step in steps)


def _form(logprobs: FloatArray) -> str:
    """What the logprobs of an arm are rounded to: a format of 16 bits, or a step in nats; "" for neither."""
    known = logprobs[logprobs < -EXACT]
    if len(known) < FEW_STEPS:
        return ""
    bits = known.astype(np.float32).view(np.uint32)
    of_format = (name for name, empty in HALVES if ((bits & empty) == 0).mean() > ALL_BUT_FEW)
    of_step = (f"{step:.2g}" for step in [_decimals(logprobs)] if step)
    of_probability = (f"p {step:g}" for step in DECIMALS if _steps(np.exp(known), step, 1e-3) > ALL_BUT_FEW)
    return next(of_format, next(of_step, next(of_probability, "")))


def _decimals(logprobs: FloatArray) -> float:
    """The step of DECIMALS, in nats, that the logprobs of an arm are rounded to; 0 for none."""
    known = logprobs[logprobs < -EXACT]
    if len(known) < FEW_STEPS:
        return 0.0
    return next((step for step in _in_nats(DECIMALS) if _steps(known, step, 1e-3) > ALL_BUT_FEW), 0.0)


def _steps(logprobs: FloatArray, step: float, off: float) -> float:
    """Share of logprobs that are multiples of this, but for so much of it."""
    return float((np.abs(logprobs / step - np.round(logprobs / step)) < off).mean())


def _silent(arms: list[str]) -> Message:
    return message(
        "numerics.no_logprobs",
        "{arms}: no logprobs of the chosen tokens to use (`--logprobs 0` records them; some may be left out)",
        arms=arms,
    )


# ------------------------------------------------------------------ gaps


def _lists(references: References, inputs: Inputs) -> tuple[float | None, FloatArray]:
    """(bf16 unit of the logits, nats between the two best tokens), from some of the scores."""
    scored = references.baseline
    step = max(1, len(scored or inputs.scores) // LISTS_SAMPLED)
    if scored:
        tops = [scored[key][1] for key in islice(scored, 0, None, step)]
    else:
        tops = [inputs.scores[name] for name in islice(inputs.scores, 0, None, step)]
    differences = best_differences(tops)
    return logit_unit(differences), differences


def _gaps(
    inputs: Inputs,
    references: References,
    pairs: Pairs,
    judged: Judged,
    gaps: Mapping[Key, TokenGaps],
    part: Part,
    differences: FloatArray,
    unit: float,
    spread: Spread,
) -> tuple[Drift | None, numerics.Gaps]:
    """What the gaps of greedy completions say of the arms."""
    if not references.baseline or not gaps:
        return None, numerics.Gaps()
    greedy = pairs.those(~pairs.random)

    theirs_scored = gaps_alone(references.baseline)

    def of_part(key: Key, one: TokenGaps) -> FloatArray:
        return one.gap[part.of(key)]

    def of_fresh(known: Fresh, key: Key, one: TokenGaps) -> FloatArray:
        return known.of(key, one.gap)[part.of(key)]

    own = changed(theirs_scored, of_part, greedy.__contains__)
    other = changed(gaps, of_part, greedy.__contains__)
    drift = rates.drift(own, other, pairs.keys, spread)
    if drift is None:
        return None, numerics.Gaps()
    if drift.p_value < MAY_COUNT:
        alone = rates.drift(
            changed(theirs_scored, partial(of_fresh, Fresh(inputs.baseline, own)), greedy.__contains__),
            changed(gaps, partial(of_fresh, Fresh(inputs.candidate, other)), greedy.__contains__),
            pairs.keys,
            spread,
        )
        drift = rates.no_more_than(drift, alone)
    doubtful = {
        key: one.position
        for key, one in judged.doubtful.items()
        if key in greedy and one.position >= part.since.get(key, 0) and one.gap < NOT_NOISE
    }
    theirs, ours = dict[Key, int](), dict[Key, int]()
    for key in pairs.those(~pairs.identical):
        if key in own and key in other:
            for of_arm, found in ((own, theirs), (other, ours)):
                if (at := _little_beyond(part, key, of_arm[key], references.tolerance)) is not None:
                    found[key] = at
    baseline, candidate = (partial(_contexts, arm) for arm in (inputs.baseline, inputs.candidate))
    return drift, numerics.Gaps(
        drift,
        only_candidate=candidate(doubtful, theirs),
        only_baseline=baseline(theirs, doubtful),
        of_one_unit=numerics.gaps_of_one_unit(differences, unit),
        farther_in_candidate=candidate(ours, theirs),
        farther_in_baseline=baseline(theirs, ours),
    )


def _little_beyond(part: Part, key: Key, gaps: FloatArray, tolerance: float) -> int | None:
    """The first token of a completion that lies beyond the tolerance, though no farther than noise may; `gaps`: of the
    part of it that speaks."""
    places = np.flatnonzero((gaps > tolerance) & (gaps < NOT_NOISE))
    return (part.since.get(key) or 0) + int(places[0]) if len(places) else None


def _contexts(arm: Capture, places: Mapping[Key, int], but: Container[Key]) -> int:
    """How many of these tokens, `but` for those of some completions, stand after tokens of their own."""
    alone = (arm.completions[key] for key in places if key not in but)
    return len({context_of(one, places[one.key]) for one in alone})
