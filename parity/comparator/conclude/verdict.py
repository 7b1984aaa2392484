"""From findings and reasons to the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from parity.messages import Message
from parity.records import RUN, Finding, Kind, Severity, Verdict


def decide(findings: Sequence[Finding], inconclusive: Sequence[Message]) -> Verdict:
    """DIVERGED if anything is corrupt; INCONCLUSIVE if something keeps the run from saying PASS.

    Arms that were asked different things (an input_mismatch of the whole run) leave nothing to conclude.
    """
    if any(one.kind is Kind.INPUT_MISMATCH and one.request == RUN for one in findings):
        return Verdict.INCONCLUSIVE
    if any(finding.severity is Severity.CORRUPT for finding in findings):
        return Verdict.DIVERGED
    return Verdict.INCONCLUSIVE if inconclusive else Verdict.PASS
