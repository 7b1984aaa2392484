"""Did the candidate exercise what the run set out to test: speculation, and a batch that churns?"""

from __future__ import annotations

import re

import msgspec

from parity.comparator.inputs import churn
from parity.comparator.stats import Exercised
from parity.comparator.types import Remarks, reason
from parity.messages import message
from parity.records import Capture, engine_settings
from parity.records.next_steps import NextStep, Step


def speculates(capture: Capture) -> bool:
    """Did this arm set out to use speculative decoding?"""
    header = capture.header
    return engine_settings.speculates(header.engine) or header.variant.split("-")[0].lower() == "mtp"


def speculation_counts(capture: Capture) -> tuple[int, int] | None:
    """(draft tokens proposed, draft tokens accepted), from the counters or the per-step traces.

    Counters of other writers are recognised by name: proposed ones say `draft`, accepted ones `accept`.
    None when the capture says nothing about it.
    """
    proposed = accepted = -1
    for name, value in (capture.counters or {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float) or "rate" in name or "length" in name:
            continue
        if re.search("accept", name, re.IGNORECASE):
            accepted = max(accepted, int(value))
        elif re.search("draft|propos", name, re.IGNORECASE):
            proposed = max(proposed, int(value))
    if proposed == 0 or accepted >= 0:
        return max(proposed, accepted, 0), max(accepted, 0)
    traces = [completion.spec for completion in capture if completion.spec is not None]
    if not traces:
        return None
    return (
        sum(int(trace.drafted.sum()) for trace in traces),
        sum(int(trace.accepted.sum()) for trace in traces),
    )


def exercised(candidate: Capture) -> tuple[Exercised, Remarks]:
    """What is known of the path; a reason where it was not exercised, a note where that could not be proven."""
    proof = Exercised(speculates=speculates(candidate), **churn.counted(candidate))
    counts = speculation_counts(candidate)
    if counts is not None:
        proof = msgspec.structs.replace(proof, draft_tokens=counts[0], accepted_tokens=counts[1])
    return proof, _speculation(candidate, counts) + churn.remarks(candidate)


def _speculation(candidate: Capture, counts: tuple[int, int] | None) -> Remarks:
    arm = candidate.header.arm
    if not speculates(candidate):
        return Remarks()
    if counts is None:
        return Remarks(
            notes=(
                message(
                    "inputs.speculation_not_proven",
                    "{arm} has no counters: that drafts were proposed and accepted is not proven",
                    arm=arm,
                ),
            )
        )
    proposed, accepted = counts
    if not proposed and not accepted:
        none = message(
            "inputs.nothing_proposed", "{arm} proposed no draft tokens: speculation was not exercised", arm=arm
        )
        return reason(none, NextStep(Step.LONGER, none.id, 4))
    if not accepted:
        none = message(
            "inputs.nothing_accepted", "{arm} accepted no draft tokens: speculation was not exercised", arm=arm
        )
        return reason(none, NextStep(Step.LONGER, none.id, 4))
    return Remarks()
