"""Did the batch churn as the plan asked? Proof from an arm's counters that rows joined, left and moved."""

from __future__ import annotations

from collections.abc import Mapping

from parity.records import Capture, Json

COUNTED = ("steps", "arrivals_while_decoding", "aborted", "rows_joined", "rows_left", "rows_moved", "preemptions")


def churned(candidate: Capture) -> tuple[dict[str, Json], str | None, str | None]:
    """(what is known, why the run is inconclusive or None, what could not be proven or None).

    An arm that takes one request at a time (max_num_seqs 1) has no batch to churn: nothing is asked of it.
    """
    asked = candidate.header.extra.get("churn")
    counters = candidate.counters or {}
    proof = {name: counters[name] for name in COUNTED if name in counters}
    if not isinstance(asked, Mapping) or not asked:
        return proof, None, None
    name = candidate.header.arm
    alone = candidate.header.engine.get("max_num_seqs") == 1
    if asked.get("kv_blocks") and not counters.get("preemptions"):
        return proof, f"{name}: the KV space was made small, and still no request was preempted", None
    if asked.get("abort_share") and counters.get("aborted") == 0:
        return proof, f"{name}: requests were to be taken back, and all had ended before", None
    if alone or not (asked.get("arrival", "together") != "together" or asked.get("abort_share")):
        return proof, None, None
    if "arrivals_while_decoding" not in counters:
        return proof, None, f"{name} has no counters of its batches: that rows joined and moved is not proven"
    if asked.get("arrival", "together") != "together" and not counters["arrivals_while_decoding"]:
        return proof, f"{name}: no request arrived while others were decoding: churn was not exercised", None
    if "rows_moved" not in counters:
        return proof, None, f"{name}: the rows of its batches cannot be seen: that they moved is not proven"
    if not counters["rows_moved"]:
        return proof, f"{name}: no row moved in the batch: churn was not exercised", None
    return proof, None, None
