"""From findings and reasons to the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parity.messages import Message
from parity.records import RUN, Kind, Verdict
from parity.records.many_findings import Placed


def decide(corrupt: Iterable[Placed], inconclusive: Sequence[Message]) -> Verdict:
    """corrupt: what is no noise. DIVERGED if anything is; INCONCLUSIVE if something keeps the run from saying PASS.

    Arms that were asked different things (an input_mismatch of the whole run) leave nothing to conclude.
    """
    found = False
    for one in corrupt:
        if one.kind is Kind.INPUT_MISMATCH and one.request == RUN:
            return Verdict.INCONCLUSIVE
        found = True
    if found:
        return Verdict.DIVERGED
    return Verdict.INCONCLUSIVE if inconclusive else Verdict.PASS
