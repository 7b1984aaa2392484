"""Deciding about findings, and taking them elsewhere: shared by the list and the single finding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from parity.errors import ParityError
from parity.messages import message
from parity.store import FindingRow, RunRow, Triage, TriageChange, TriageState
from parity.store.browse import Browser
from parity.tui.format import counted, plain
from parity.tui.screens.base import ParityScreen
from parity.tui.screens.dialogs import EditTriage
from parity.tui.view import place

EXPORT_SCHEMA = "parity.findings/1"


class TriageScreen(ParityScreen):
    """A screen with findings to decide about: `targets` says which, `current` is the one under the cursor."""

    BINDINGS: ClassVar[list[Any]] = []
    run: RunRow

    def targets(self) -> Sequence[int]:
        """Ids of the findings that an action concerns: the selection, or the one under the cursor."""
        return ()

    def current(self) -> FindingRow | None:
        return None

    def decided(self) -> None:
        """Called after a decision was handed to the store."""

    # ------------------------------------------------------------------ triage

    def action_mark(self, state: str) -> None:
        self._mark(TriageState(state), None)

    def action_original(self) -> None:
        row = self.current()
        if row is not None:
            self.parity.original = row
            self.notify(f"original: {plain(row.kind)} of {plain(row.request)}; d marks its duplicates", markup=False)

    def action_duplicate(self) -> None:
        original = self.parity.original
        if original is None:
            self.notify("press o on the original first", severity="warning", markup=False)
            return
        self._mark(TriageState.DUPLICATE, original)

    def _mark(self, state: TriageState, original: FindingRow | None) -> None:
        ids = [i for i in self.targets() if original is None or i != original.id]
        self._amend(ids, {"state": state, "duplicate_of": original.fingerprint if original else None})

    def _amend(self, ids: Sequence[int], changes: Mapping[str, Any]) -> None:
        if not ids or not changes:
            return

        def write(store: Browser) -> str:
            fingerprints = store.fingerprints(ids)
            if not fingerprints:
                raise ParityError(
                    message("tui.findings_gone", "these findings are no longer in the database"),
                    hint=message("tui.run_deleted", "the run was deleted meanwhile"),
                )
            store.amend(fingerprints, **changes)
            said = f"marked {changes['state']}" if "state" in changes else f"have another {' and '.join(changes)}"
            return f"{_count(len(fingerprints))} {said}; u undoes it"

        self.parity.change(write)
        self.decided()

    def action_triage(self) -> None:
        store, row, ids = self.store, self.current(), list(self.targets())
        if store is None or row is None or not ids:
            return
        original = self.parity.original.fingerprint if self.parity.original else None
        if len(ids) > 1:
            dialog = EditTriage(f"Triage of {_count(len(ids))}; what is left empty stays as it is", None, original, ())
        else:
            said = self.parity.attempt(lambda: store.triage(row.fingerprint), Triage())
            nothing: list[TriageChange] = []
            history = self.parity.attempt(lambda: store.triage_history(row.fingerprint), nothing)
            heading = f"Triage of {plain(row.kind)} in {plain(row.arm)}, {place(row.key)}"
            dialog = EditTriage(heading, said, original, history)
        self.app.push_screen(dialog, lambda changes: self._amend(ids, changes or {}))

    def action_undo(self) -> None:
        def write(store: Browser) -> str:
            changes = store.undo_triage()
            return f"undone: the last change, of {_count(len(changes))}" if changes else "nothing to undo"

        self.parity.change(write)

    # ------------------------------------------------------------------ elsewhere

    def action_copy_command(self) -> None:
        self.parity.copy(self.run.command)

    def action_export(self) -> None:
        store, ids = self.store, list(self.targets())
        if store is not None and ids:
            name = f"findings-{self.run.id}.json"
            self.parity.save_as(f"Export {_count(len(ids))} to", name, lambda: self._exported(store, ids))

    def _exported(self, store: Browser, ids: Sequence[int]) -> str:
        document = {
            "schema": EXPORT_SCHEMA,
            "run": self.run.id,
            "command": self.run.command,
            "model": self.run.model,
            "baseline": self.run.baseline,
            "findings": [finding_json(store, row) for row in store.findings(ids)],
        }
        return json.dumps(document, indent=2, ensure_ascii=True) + "\n"

    def action_start(self) -> None:
        row = self.current()
        self.parity.start(self.run, row)

    def action_report(self) -> None:
        row = self.current()
        if row is not None:
            self.parity.report(row)


def finding_json(store: Browser, row: FindingRow) -> dict[str, Any]:
    """A finding with its triage, as it is exported."""
    return {
        "arm": row.arm,
        "request": row.request,
        "round": row.round,
        "sample": row.sample,
        "kind": row.kind,
        "severity": row.severity,
        "position": row.position,
        "length": row.length,
        "fingerprint": row.fingerprint,
        "evidence": dict(row.evidence),
        "triage": store.triage(row.fingerprint).to_json(),
    }


def _count(number: int) -> str:
    return counted(number, "finding")
