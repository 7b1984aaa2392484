"""The store: runs, arms, completions, findings and triage in one SQLite file.

This is the only package that imports sqlite_utils. Everything else sees `Store` and the frozen rows:

    with Store.open(path) as store:
        run = store.run()                                    # the newest
        total = store.count_findings(run.id, FindingFilter(severities=frozenset({"corrupt"})))
        rows = store.page_findings(run.id, sort=FindingSort.POSITION, offset=200, limit=50)
        store.set_triage([row.fingerprint for row in rows], Triage(TriageState.BENIGN, note="near-ties"))
        store.undo_triage()
"""

from __future__ import annotations

from parity.store.rows import (
    ArmRow,
    CompletionRow,
    FindingFilter,
    FindingRow,
    FindingSort,
    KindCount,
    Occurrence,
    RequestRow,
    Rule,
    RuleUse,
    RunFilter,
    RunRow,
    RunSort,
    RunStatus,
    Triage,
    TriageChange,
    TriageState,
    TriageStep,
)
from parity.store.rules import RuleBook
from parity.store.write import ArmComparison, ArmResult, NewRun, fingerprint

__all__ = [
    "ArmComparison",
    "ArmResult",
    "ArmRow",
    "CompletionRow",
    "FindingFilter",
    "FindingRow",
    "FindingSort",
    "KindCount",
    "NewRun",
    "Occurrence",
    "RequestRow",
    "Rule",
    "RuleUse",
    "RunFilter",
    "RunRow",
    "RunSort",
    "RunStatus",
    "Store",
    "Triage",
    "TriageChange",
    "TriageState",
    "TriageStep",
    "fingerprint",
]


class Store(RuleBook):
    """The whole store: reading (`Reader`), recording runs (`Writer`), triage (`Triager`), known bugs
    (`RuleBook`).

    Open it with `Store.open(path)`. One object may be used from several threads; a file may be open in
    several processes. Every method raises ParityError, never sqlite3.Error.
    """
