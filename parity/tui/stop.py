"""A place that somebody looks at."""

from __future__ import annotations

from typing import NamedTuple

from parity.records import Key
from parity.store import FindingRow


class Stop(NamedTuple):
    """A completion of a candidate arm, at one of its findings or at none."""

    arm: str
    key: Key
    finding: FindingRow | None

    @staticmethod
    def at(finding: FindingRow) -> Stop:
        return Stop(finding.arm, finding.key, finding)
