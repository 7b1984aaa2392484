"""One comparison from start to end: down the floors once, each giving the next a value."""

from __future__ import annotations

from parity.comparator.conclude.conclude import conclude
from parity.comparator.detect.found import found_in
from parity.comparator.detect.judge import judge
from parity.comparator.inputs.normalise import normalise
from parity.comparator.population.run import measure
from parity.comparator.reference.references import references_of
from parity.comparator.streams.pairing import pair_up
from parity.comparator.types import CompareOptions, Comparison
from parity.cycles import no_cycle_search
from parity.records import Capture, Scores
from parity.records.crossings import Crossed


@no_cycle_search()
def compare(
    baseline: Capture,
    candidate: Capture,
    scores: Scores | None = None,
    options: CompareOptions | None = None,
    crossed: Crossed | None = None,
) -> Comparison:
    """Compare the candidate's completions with the baseline's.

    `scores` are the reference's scores of either arm's completions (keyed by arm); those that stand in the captures
    are used as well. `crossed`: what it says of completions after the text of other requests, where it was asked
    (`detect/crossings.py`). Raises ParityError only for options that make no sense; whatever is wrong with the data
    becomes a finding or a reason.
    """
    options = options or CompareOptions()
    inputs = normalise(baseline, candidate, scores, options.detokenize)
    pairs = pair_up(inputs.baseline, inputs.candidate)
    references = references_of(inputs, pairs, options)
    judged = judge(inputs, references, pairs, options, crossed or {})
    found = found_in(inputs, references, pairs, judged, options.alpha)
    run = measure(inputs, references, pairs, judged, found, options)
    return conclude(inputs, references, pairs, judged, found, run)
