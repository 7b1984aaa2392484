"""What is to be known of a greedy run before its pairs are looked at."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect import trust
from parity.comparator.detect.cases import Setup, Usual
from parity.comparator.detect.invalid_tokens import invalid_rows
from parity.comparator.detect.leak import Donors
from parity.comparator.detect.rules import Requested
from parity.comparator.detect.usual_logprobs import usual_between, usual_by_scores
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.settings import of_other_precision
from parity.comparator.reference.isolated import isolated
from parity.comparator.reference.moves import Moves, moves
from parity.comparator.reference.one_sided import one_sided
from parity.comparator.reference.own_logprobs import OwnNoise
from parity.comparator.reference.references import References
from parity.comparator.reference.stored import changed, gaps_alone
from parity.comparator.reference.tolerance import doubt_of
from parity.comparator.streams.contexts import context_of
from parity.comparator.streams.pairing import Pairs, at_rows
from parity.comparator.types import CompareOptions
from parity.records import Key


def setup_of(
    inputs: Inputs,
    references: References,
    pairs: Pairs,
    options: CompareOptions,
    donors: Callable[[], Donors],
    requested: Requested,
) -> Setup:
    """`inputs` and `pairs` are of greedy completions alone, `donors` of all."""
    rules = requested.ends
    reference, tolerance = references.lookup, references.tolerance
    invalid = invalid_rows(pairs.candidate_tokens, inputs.vocab_size)
    precision = of_other_precision(inputs.differences)
    doubt = doubt_of(options, references.floor, tolerance, reference.scores.values(), other_precision=precision)
    known = inputs.baseline.completions
    own = changed(gaps_alone(references.own.scored), lambda _, gaps: gaps, known.__contains__)
    floor = references.own.floor
    aside = None
    if floor is None and reference.can_reject:
        parted = at_rows(pairs.candidate, np.flatnonzero(~pairs.identical & pairs.same_prompt))
        theirs = gaps_alone(reference.all_gaps(inputs.arms[1], parted))
        aside = one_sided(pairs, theirs, references.rivals, tolerance)
    of_few = references.floor is not floor

    def context(key: Key, at: int) -> Hashable:
        return context_of(inputs.baseline.completions[key], at)

    alike = isolated(own, floor, tolerance, pairs.those(~pairs.identical & pairs.same_prompt), context, of_few=of_few)
    alike = alike if aside is None else aside.isolated
    plain = not reference.penalises

    def own_noise() -> OwnNoise | None:
        return reference.own_noise if aside is None else aside.own

    usual = Usual(usual_between(pairs), usual_by_scores(pairs, reference, inputs.arms[1], own_noise))

    @cache
    def moved() -> Moves:
        return Moves() if reference.can_reject else moves(pairs)

    show_choices = trust.lists_show_choices(inputs.baseline, inputs.candidate, reference, tolerance, plain=plain)
    return Setup(
        inputs=inputs,
        pairs=pairs,
        reference=reference,
        rivals=references.rivals,
        rules=replace(rules, keeps_terminator=False) if inputs.candidate_drops_eos else rules,
        vocab_size=inputs.vocab_size,
        invalid=frozenset(pairs.keys[row] for row in invalid),
        tolerance=tolerance,
        doubt=doubt,
        isolated=alike,
        own_noise=own_noise,
        knows_own_noise=not of_few,
        lists_show_choices=show_choices,
        lists_hide_choices=not (plain or show_choices) and any(True for _ in inputs.baseline.listing()),
        rejects_own=trust.rejects_own(inputs.baseline, reference, tolerance) if plain and not show_choices else None,
        scores_show_lists=trust.scores_show_lists((inputs.baseline, inputs.candidate), pairs, reference),
        moves=moved,
        usual=None if references.against_baseline else usual,
        donors=donors,
        writer=requested.writer,
        broken=requested.broken,
    )
