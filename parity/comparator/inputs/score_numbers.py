"""The scores of a comparison, where what stands there can be logarithms of probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np

from parity.comparator.inputs.numbers import TOO_LITTLE, NoLogprobs, Numbers, blocks_of, kind_of_blocks, no_logprobs
from parity.comparator.types import Remarks, note, reason
from parity.messages import joined, message
from parity.records import Capture, ScoreKey, Scores, TopLogprobs, all_scores
from parity.records.next_steps import Step
from parity.records.score_table import ScoreTable

LOOKED_AT = 256
"""Scores of each arm that are looked at."""


def natural_scores(
    baseline: Capture, candidate: Capture, scores: Scores | None, echoed: Mapping[ScoreKey, int]
) -> tuple[Scores, Remarks]:
    """All scores there are, those in the captures among them. None where they cannot be natural logarithms of
    probabilities: whoever wrote them must say what they are.

    `echoed`: lengths of the outputs that came with their prompt. Where scores are of more tokens than that, whoever
    made them put the prompt there twice: they say nothing.
    """
    merged = all_scores((baseline.scores, candidate.scores, scores or {}))
    twice = [key for key, length in echoed.items() if key in merged and len(merged[key]) > length]
    remarks = Remarks()
    if twice:
        merged = {key: top for key, top in merged.items() if key not in set(twice)}
        remarks = note(
            message(
                "inputs.echo_scored",
                "{arms}: the scores are of outputs that begin with their prompt, which the model was given twice: not "
                "used. Score the outputs without it",
                arms=joined(sorted({key.arm for key in twice})),
            )
        )
    merged = _without_infinities(merged)
    size = candidate.header.vocab_size or baseline.header.vocab_size
    kinds = {arm: kind for arm, some in _by_arm(merged).items() if (kind := _kind(some, size)) is not None}
    if not kinds:
        return merged, remarks
    kind = next(iter(kinds.values()))
    arms = list(kinds)
    said = message(
        "inputs.scores_are",
        "the scores of {arms} are {what}: none was used; {remedy}, and compare again",
        arms=joined(arms),
        what=kind.name,
        remedy=kind.remedy,
    )
    return {}, reason(said, Step.SCORE, Step.REFERENCE)


def _kind(some: Iterable[TopLogprobs], vocab_size: int | None) -> Numbers | NoLogprobs | None:
    blocks = blocks_of(some)
    kind: Numbers | NoLogprobs | None = no_logprobs(blocks, vocab_size)
    if kind is None or kind is TOO_LITTLE:
        kind = kind_of_blocks(blocks, vocab_size) or kind
    return kind


def _by_arm(scores: Scores) -> Mapping[str, Iterable[TopLogprobs]]:
    """The first of each arm."""
    if isinstance(scores, ScoreTable):
        return {name: islice(some.values(), LOOKED_AT) for name, some in scores.by_arm().items()}
    found: dict[str, list[TopLogprobs]] = {}
    for key, top in scores.items():
        some = found.setdefault(key.arm, [])
        if len(some) < LOOKED_AT:
            some.append(top)
    return found


def _without_infinities(scores: Scores) -> Scores:
    """What is infinite is no opinion. Files hold none (`PackedScores`)."""
    if isinstance(scores, ScoreTable):
        return scores
    odd = {key: top.without_infinities() for key, top in scores.items() if np.isinf(top.values).any()}
    return {**scores, **odd} if odd else scores
