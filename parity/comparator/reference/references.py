"""The second floor: the scores of a comparison, the noise they show, and the tolerance that follows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add

import numpy as np
from msgspec import Struct

from parity.comparator.inputs.normalise import Inputs
from parity.comparator.reference import tolerance as tolerances
from parity.comparator.reference.floor import Floor, FloorSums, floor_of, floor_sums
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.reference.rivals import Rivals, rivals_where_parted
from parity.comparator.reference.sanity import Wrong, misspelt, wrong_scores
from parity.comparator.reference.scores import ABOUT, Reference
from parity.comparator.reference.stored import pieces
from parity.comparator.reference.wrong_records import contradicting, nearly_all, records_at_fault, said, without
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompareOptions, Remarks, note, reason
from parity.records import DEFAULT_TOLERANCE, Key, TopLogprobs
from parity.records.next_steps import Step

EQUAL_SCORED = 0.5
"""Share of the baseline's completions that equal the candidate's, of which scores say what is usual: those of others
alone (`--score differing`) are few, and chosen by their near-ties. With several candidates some are scored for
another's sake."""


class Own(Struct, frozen=True):
    """The baseline's own completions that are scored."""

    scored: Mapping[Key, tuple[TokenGaps, TopLogprobs]]
    floor: Floor | None
    """The noise that the greedy ones show, None where there are none."""


class References(Struct, frozen=True):
    """What the reference says, before any pair is looked at."""

    lookup: Reference
    """Scores and gaps by completion."""
    baseline: Mapping[Key, tuple[TokenGaps, TopLogprobs]]
    """Gaps and scores of the baseline's own completions, where these are scored; none where only those are that differ
    from the candidate's."""
    floor: Floor | None
    """The noise of the method, by `baseline`. What is drawn at random may lie anywhere below the best: there is no
    floor then."""
    own: Own
    """The same by all that are scored, if only those that differ."""
    tolerance: float
    """Nats."""
    remarks: Remarks
    rivals: Rivals
    """The baseline's greedy tokens where the candidate's scored completions part from it."""
    against_baseline: bool = False
    """The scores were left out since they reject the baseline and support the candidate."""


def references_of(inputs: Inputs, pairs: Pairs, options: CompareOptions) -> References:
    """Raises ParityError for a tolerance that is none."""
    spread = options.spread
    lookup = Reference(inputs.baseline, inputs.candidate, inputs.scores, inputs.masked, spread)
    left_out = inputs.is_drawn if inputs.is_random else None
    rivals = rivals_where_parted(pairs, lookup, inputs.arms[1], left_out=left_out)
    wrong = wrong_scores(inputs, pairs, lookup, rivals)
    if wrong is None and (why := contradicting(inputs, lookup)) is not None:
        wrong = Wrong(why)
    faulty = {} if wrong is not None else records_at_fault(inputs, lookup)
    if (why := nearly_all(faulty, lookup)) is not None:
        wrong, faulty = Wrong(why), {}
    if wrong is not None:
        rivals = Rivals.none()
        lookup = Reference(inputs.baseline, inputs.candidate, {}, inputs.masked)
    elif faulty:
        kept = without(inputs.scores, faulty)
        lookup = Reference(inputs.baseline, inputs.candidate, kept, inputs.masked, spread)
        rivals = rivals_where_parted(pairs, lookup, inputs.arms[1], left_out=left_out)
    scored = lookup.all_gaps(inputs.baseline.header.arm, inputs.baseline.rows)
    own, random = inputs.baseline.completions, inputs.is_random

    def sums(piece: Mapping[Key, tuple[TokenGaps, TopLogprobs]]) -> FloorSums:
        greedy = (scored for key, scored in piece.items() if not (random and inputs.is_drawn(own[key])))
        return floor_sums(greedy, DEFAULT_TOLERANCE)

    known = Own(scored, floor_of(reduce(add, spread(pieces(scored), sums, ABOUT))))
    throughout = _scored_throughout(pairs, lookup.scored(inputs.baseline.header.arm))
    baseline, floor = (known.scored, known.floor) if throughout else ({}, None)
    remarks = lookup.remarks if wrong is None else _said(wrong)
    remarks += said(faulty)
    remarks += Remarks() if wrong is not None or (near := misspelt(inputs, lookup)) is None else note(near)
    if not inputs.is_random:
        remarks += tolerances.remarks(options, floor)
    return References(
        lookup,
        baseline,
        floor,
        known,
        tolerances.in_force(options, floor),
        remarks,
        rivals,
        wrong is not None and wrong.against_baseline,
    )


def _scored_throughout(pairs: Pairs, scored: Mapping[Key, TopLogprobs]) -> bool:
    """Are the baseline's completions scored whether they differ from the candidate's or not? `scored`: under its
    name."""
    equal = int(np.count_nonzero(pairs.identical & (pairs.candidate_tokens.sizes > 0)))
    if not scored or not equal or len(scored) >= len(pairs.keys):
        return True
    parted = sum(pairs.keys[row] in scored for row in np.flatnonzero(~pairs.identical).tolist())
    return len(scored) - parted >= EQUAL_SCORED * equal


def _said(wrong: Wrong) -> Remarks:
    return reason(wrong.why, Step.SWAP if wrong.against_baseline else Step.SCORE, Step.REFERENCE)
