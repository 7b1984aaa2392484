"""The finding about the numerics of an arm as a whole, in words: by how much, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence

from parity.comparator.detect.off_logprobs import LOGPROB_TOLERANCE
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.population.numerics import Gaps, beyond_any_kernels
from parity.comparator.stats import Drift, LeaningPattern, LeaningToken, Numerics
from parity.comparator.types import run_finding
from parity.messages import Message, message
from parity.records import Finding, Kind, Severity
from parity.records.evidence import NumericsEvidence


def numerics_findings(inputs: Inputs, found: Numerics, drift: Drift | None, gaps: Gaps) -> tuple[Finding, ...]:
    if not found.failed:
        return ()
    same = not (found.other_kernels or found.unknown_kernels)
    evidence = NumericsEvidence(
        why=_why(found, drift, gaps),
        tests=found.failed,
        p_value=min(found.adjusted[name] for name in found.failed),
        more_than_one_unit=found.more_than_one_unit,
        tokens=found.tokens or None,
        completions=found.completions or None,
        scale_ratio=_rounded(found.scale_ratio),
        logit_noise_in_units=_rounded(found.logit_noise_in_units),
        mean_shift=_rounded(found.mean_shift, 6),
        extra_wide_per_10_000=_rounded(found.extra_wide_per_10_000, 2),
        largest_residual=None if found.candidate is None else _rounded(found.candidate.largest),
        mean_gap_ratio=None if drift is None else _rounded(drift.ratio),
        leaning_tokens=tuple((one.token, round(one.nats, 4), one.places) for one in found.leaning_tokens) or None,
        other_kernels=found.other_kernels or None,
    )
    open_without_scores = of_few_tokens(found)
    severity = Severity.CORRUPT if same and found.more_than_one_unit and not open_without_scores else Severity.BENIGN
    return (run_finding(*inputs.arms[::-1], Kind.NUMERICS, evidence, severity),)


def of_few_tokens(found: Numerics) -> bool:
    """Are some tokens far off between the arms, and nothing else, where no score says in which of them, nor how far
    this model's own rounding goes?

    Experts at near-ties of their router do that in sound arms: base and mtp of `parity model tiny --arch qwen3_next`
    (vLLM 0.32 on CPU) differ by more than 0.1 nats in 4 tokens of 100, by 0.8 at most. Where they move single logprobs
    by more than LOGPROB_TOLERANCE they make up the mean noise too, of the run and of its places.
    """
    far = found.candidate is not None and found.candidate.largest > LOGPROB_TOLERANCE
    of_noise = {"mid_tail", "far_tail", "unit", "spots"} if far else {"mid_tail", "far_tail"}
    return found.source == "own" and set(found.failed) <= of_noise


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def _why(found: Numerics, drift: Drift | None, gaps: Gaps) -> Message:
    """By how much, whether rounding explains it, and what follows."""
    return message(
        "numerics.why",
        "{sizes} (p = {p_value:.2g}); {rounding}; {kernels}",
        sizes=_sizes(found, drift, gaps),
        p_value=min(found.adjusted[name] for name in found.failed),
        rounding=message("numerics.more", "noise of one bf16 unit on every logit would not explain all of that")
        if found.more_than_one_unit
        else message("numerics.no_more", "noise of one bf16 unit on every logit would explain that"),
        kernels=_kernels(found),
    )


def _leaning(tokens: Sequence[LeaningToken]) -> Message | str:
    if not tokens:
        return ""
    each = [
        message(
            "numerics.token",
            "{token} by {nats:+.3f} nats in {places} places",
            token=one.token,
            nats=one.nats,
            places=one.places,
        )
        for one in tokens[:NAMED]
    ]
    return message("numerics.tokens", " (surest of the ids {tokens})", tokens=each)


def _pattern(found: LeaningPattern | None) -> Message | str:
    if found is None:
        return ""
    which = (
        message("numerics.modulo", "{number} modulo {of}", number=found.number, of=found.of)
        if found.by == "modulo"
        else message("numerics.shard", "of shard {number} of {of}", number=found.number, of=found.of)
    )
    return message(
        "numerics.pattern",
        " (ids {which} by {nats:+.4f} nats, all others by {others:+.4f}, p = {p_value:.2g})",
        which=which,
        nats=found.nats,
        others=found.others,
        p_value=found.p_value,
    )


NAMED = 3
"""Tokens in the sentence; the evidence has more."""


def _kernels(found: Numerics) -> Message:
    if found.unknown_kernels:
        return message(
            "numerics.unknown_kernels",
            "the captures do not say what the servers run, and other kernels may be all there is to it",
        )
    if not found.other_kernels:
        return message(
            "numerics.same_kernels",
            "nothing that the captures say makes the arms run other kernels, and the same ones differ by less",
        )
    settings = list(found.other_kernels)
    if beyond_any_kernels(found):
        return message("numerics.kernels", "the arms differ in {settings}, and so in their kernels", settings=settings)
    return message(
        "numerics.other_kernels",
        "the arms differ in {settings}, and so in their kernels, which may be all there is to it",
        settings=settings,
    )


def _sizes(found: Numerics, drift: Drift | None, gaps: Gaps) -> list[Message]:
    said = []
    if found.scale_ratio is not None and {"scale", "unit"} & set(found.failed):
        said.append(
            message(
                "numerics.scale",
                "the logits are {ratio:.2f} times as noisy as the baseline's ({units:.2f} bf16 units on average)",
                ratio=found.scale_ratio,
                units=found.logit_noise_in_units,
            )
        )
    elif "unit" in found.failed:
        said.append(
            message(
                "numerics.unit",
                "the logits differ by {units:.2f} bf16 units from the baseline's",
                units=found.logit_noise_in_units,
            )
        )
    if "shift" in found.failed:
        said.append(message("numerics.shift", "the logprobs are shifted by {shift:+.4f} nats", shift=found.mean_shift))
    if "ids" in found.failed:
        said.append(
            message(
                "numerics.ids",
                "the logprobs of the same tokens are off the same way each time, by {size:.4f} nats{which}",
                size=found.leaning["ids"],
                which=_pattern(found.leaning_pattern) or _leaning(found.leaning_tokens),
            )
        )
    if "places" in found.failed:
        said.append(
            message(
                "numerics.places",
                "the logprobs at the same places of the completions are off the same way, by {size:.4f} nats",
                size=found.leaning["places"],
            )
        )
    if "spots" in found.failed and found.spots is not None:
        said.append(
            message(
                "numerics.spots_by_context",
                "after {spots} tokens of prompt and output the logits are noisier than elsewhere, by {size:.1f} times "
                "the usual noise",
                spots=list(found.spots.found),
                size=found.spots.size,
            )
            if found.spots.by_context
            else message(
                "numerics.spots",
                "at the output tokens {spots} the logits are noisier than elsewhere, by {size:.1f} times the usual "
                "noise",
                spots=list(found.spots.found),
                size=found.spots.size,
            )
        )
    if {"tail", "tail_alone", "mid_tail", "far_tail"} & set(found.failed):
        said.append(
            message(
                "numerics.tail",
                "{extra:.1f} more tokens in 10,000 have a logprob that is off by more than 0.1 nats",
                extra=found.extra_wide_per_10_000,
            )
        )
    if drift is not None and {"gaps", "gaps_beyond"} & set(found.failed):
        said.append(
            message(
                "numerics.gaps",
                "the mean gap is {candidate:.4f} nats, the baseline's {baseline:.4f}",
                candidate=drift.candidate_mean_gap,
                baseline=drift.baseline_mean_gap,
            )
        )
    if "doubt" in found.failed:
        said.append(
            message(
                "numerics.doubt",
                "{candidate} completions have a token or two a little beyond the tolerance where the baseline's has "
                "none, and {baseline} the other way round",
                candidate=gaps.only_candidate,
                baseline=gaps.only_baseline,
            )
        )
    return said
