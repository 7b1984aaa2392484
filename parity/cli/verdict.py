"""Verdicts as exit codes."""

from __future__ import annotations

from parity.errors import ExitCode
from parity.records import Verdict

_CODES = {
    Verdict.PASS: ExitCode.PASS,
    Verdict.DIVERGED: ExitCode.DIVERGED,
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Verdict.ERROR: ExitCode.BACKEND_FAILED,
}


def exit_code(verdict: Verdict | str) -> ExitCode:
    return _CODES[Verdict(verdict)]
