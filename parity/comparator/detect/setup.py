"""What is to be known of a greedy run before its pairs are looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from parity.comparator.detect import stops, trust
from parity.comparator.detect.cases import Setup
from parity.comparator.detect.invalid_tokens import invalid_rows
from parity.comparator.detect.leak import Donors
from parity.comparator.detect.rules import Requested
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.tolerance import Doubt
from parity.comparator.streams.pairing import Pairs
from parity.records import Capture


def setup_of(
    baseline: Capture,
    candidate: Capture,
    pairs: Pairs,
    reference: Reference,
    tolerance: float,
    doubt: Doubt,
    donors: Callable[[], Donors],
    requested: Requested,
    *,
    drops_eos: bool = False,
) -> Setup:
    """`tolerance`: nats, in force. `drops_eos`: the candidate leaves out the token that it stopped at."""
    rules = stops.stop_rules(candidate.header, baseline)
    vocab_size = candidate.header.vocab_size or baseline.header.vocab_size
    arms = baseline.header.arm, candidate.header.arm
    return Setup(
        baseline=baseline,
        candidate=candidate,
        pairs=pairs,
        reference=reference,
        rules=replace(rules, keeps_terminator=False) if drops_eos else rules,
        vocab_size=vocab_size,
        invalid=frozenset(pairs.keys[row] for row in invalid_rows(pairs.candidate_tokens, vocab_size)),
        tolerance=tolerance,
        doubt=doubt,
        lists_show_choices=trust.lists_show_choices(baseline, reference, tolerance, plain=not reference.penalises),
        scores_show_lists=trust.scores_show_lists(pairs, reference, *arms),
        donors=donors,
        writer=requested.writer,
        broken=requested.broken,
    )
