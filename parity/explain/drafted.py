"""What was drafted for each completion, token for token: an acceptance trace has the counts alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from parity.capture.steps import RowSteps
from parity.explain.ledger import Ledger
from parity.records import Key, SpecTrace, TokenIds


class Drafted(Struct, frozen=True):
    """Of one completion. handed: the tokens that its steps handed out, those after a stop token too."""

    key: Key
    trace: SpecTrace
    handed: TokenIds


def drafted(steps: RowSteps) -> Iterator[Drafted]:
    """Of each completion all of whose steps are there: a prefill that makes one token, then decode steps."""
    if not len(steps) or not steps.has("request", "drafts", "handed"):
        return
    ledger = Ledger(steps)
    rows = ledger.order[(ledger.known & (ledger.emitted > 0))[ledger.order]]
    request = ledger.request[rows]
    handed, drafts = ledger.handed.take(rows), ledger.lists("drafts").take(rows)
    handed_at, drafts_at = handed.starts, drafts.starts
    first = np.flatnonzero(np.diff(request, prepend=-1))
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(rows)], strict=False):
        key = steps.requests[int(request[begin])].key
        if key is None or drafts.counts[begin] or handed.counts[begin] != 1:
            continue
        trace = SpecTrace(
            handed.counts[begin + 1 : end] - 1,
            drafts.counts[begin + 1 : end],
            drafts.values[drafts_at[begin + 1] : drafts_at[end]],
        )
        yield Drafted(key, trace, handed.values[handed_at[begin] : handed_at[end]])
