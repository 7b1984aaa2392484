"""Did the batch churn as the plan asked? Proof from an arm's counters that rows joined, left and moved."""

from __future__ import annotations

from parity.comparator.types import Remarks, note, reason
from parity.messages import Message, message
from parity.records import Capture
from parity.records.next_steps import NextStep, Step
from parity.records.objects import object_of

COUNTED = ("steps", "arrivals_while_decoding", "aborted", "rows_joined", "rows_left", "rows_moved", "preemptions")


def counted(candidate: Capture) -> dict[str, int | float]:
    """What the counters of an arm say of its batches."""
    counters = candidate.counters or {}
    return {name: counters[name] for name in COUNTED if isinstance(counters.get(name), int | float)}


def remarks(candidate: Capture) -> Remarks:
    """A reason where the batch did not churn as the plan asked, a note where that could not be proven.

    An arm that takes one request at a time (max_num_seqs 1) has no batch to churn: nothing is asked of it.
    """
    asked = object_of(candidate.header.extra.get("churn"))
    if not asked:
        return Remarks()
    arm, counters = candidate.header.arm, counted(candidate)
    arrives = asked.get("arrival", "together") != "together"
    if asked.get("kv_blocks") and not counters.get("preemptions"):
        return _reason(
            message(
                "inputs.nothing_preempted",
                "{arm}: the KV space was made small, and still no request was preempted",
                arm=arm,
            ),
            Step.FEWER_BLOCKS,
        )
    if asked.get("abort_share") and counters.get("aborted") == 0:
        return _reason(
            message("inputs.nothing_aborted", "{arm}: requests were to be aborted, and all had ended before", arm=arm)
        )
    if candidate.header.engine.get("max_num_seqs") == 1 or not (arrives or asked.get("abort_share")):
        return Remarks()
    if "arrivals_while_decoding" not in counters:
        return note(
            message(
                "inputs.churn_not_proven",
                "{arm} has no counters of its batches: that rows joined and moved is not proven",
                arm=arm,
            )
        )
    if arrives and not counters["arrivals_while_decoding"]:
        return _reason(
            message(
                "inputs.nothing_arrived",
                "{arm}: no request arrived while others were decoding: churn was not exercised",
                arm=arm,
            )
        )
    if "rows_moved" not in counters:
        return note(
            message(
                "inputs.rows_not_seen",
                "{arm}: the rows of its batches cannot be seen: that they moved is not proven",
                arm=arm,
            )
        )
    if not counters["rows_moved"]:
        return _reason(
            message("inputs.nothing_moved", "{arm}: no row moved in the batch: churn was not exercised", arm=arm)
        )
    return Remarks()


def _reason(one: Message, step: Step = Step.LONGER) -> Remarks:
    return reason(one, NextStep(step, one.id, 4 if step is Step.LONGER else None))
