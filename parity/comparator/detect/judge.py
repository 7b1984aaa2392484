"""What is wrong with each completion: greedy ones against the baseline's tokens, drawn ones by their likelihood."""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from parity.comparator.detect.leak import Donors
from parity.comparator.detect.logprobs import of_other_tokens
from parity.comparator.detect.pairs import Judged, judge_pairs
from parity.comparator.detect.rules import requested
from parity.comparator.detect.sampled import judge_sampled
from parity.comparator.detect.setup import setup_of
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.reference.gaps import BoolArray
from parity.comparator.reference.references import References
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompareOptions
from parity.records import Key
from parity.records.crossings import Crossed


def judge(inputs: Inputs, references: References, pairs: Pairs, options: CompareOptions, crossed: Crossed) -> Judged:
    """All pairs, by the rules of their requests, and then by what the reference says."""
    greedy, drawn = pairs.where(~pairs.random), pairs.where(pairs.random)
    of_draws = frozenset(drawn.keys)

    def rejected(key: Key) -> BoolArray | None:
        found = None if key in of_draws else references.lookup.gaps(inputs.arms[1], inputs.candidate.completions[key])
        return None if found is None else found.unsupported(references.tolerance)

    @cache
    def donors() -> Donors:
        return Donors(inputs.baseline, inputs.candidate, pairs, rejected)

    rules = requested(inputs, pairs)
    judged = Judged()
    if greedy.keys or not inputs.is_random:
        judged = judge_pairs(
            setup_of(inputs.greedy_alone(drawn.keys), references, greedy, options, donors, rules), options.spread
        )
    judged = replace(judged, broken=rules.broken, baseline_logprobs=of_other_tokens(greedy))
    if not inputs.is_random:
        return judged
    part = inputs.drawn_alone(greedy.keys)
    return judged + judge_sampled(part, references.lookup, drawn, options, donors, rules, crossed)
