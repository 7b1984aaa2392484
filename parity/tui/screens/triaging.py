"""Deciding about findings, and taking them elsewhere: shared by the list and the single finding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from parity.errors import ParityError
from parity.messages import Message, message
from parity.store import FindingRow, Rule, RunRow, Triage, TriageChange, TriageState, TriageStep
from parity.store.browse import Browser
from parity.store.triage import user
from parity.tui.format import moment, plain
from parity.tui.names import FIELDS, findings, state_message, state_name
from parity.tui.screens.base import ParityScreen
from parity.tui.screens.dialogs import Confirm
from parity.tui.screens.known_dialog import KnownBug
from parity.tui.screens.triage_dialog import EditTriage
from parity.tui.view import place
from parity.view.known import offers

OF_A_FINDING: Final = frozenset({"mark", "triage", "report", "known", "original", "duplicate", "export"})
EXPORT_SCHEMA = "parity.findings/1"


class TriageScreen(ParityScreen):
    """A screen with findings to decide about: `targets` says which, `current` is the one under the cursor."""

    BINDINGS: ClassVar[list[Any]] = []
    run: RunRow

    def possible(self, action: str) -> bool:
        return (action not in OF_A_FINDING or self.current() is not None) and super().possible(action)

    @property
    def scope(self) -> str | None:
        """The run whose steps `u` undoes; None for those of all runs."""
        return self.run.id

    def targets(self) -> Sequence[int]:
        """Ids of the findings that an action concerns: the selection, or the one under the cursor."""
        return ()

    def current(self) -> FindingRow | None:
        return None

    def decided(self, *, advance: bool = False) -> None:
        """Called after a decision was stored; `advance`: it was about one, and the next one may come."""

    # ------------------------------------------------------------------ triage

    def action_mark(self, state: str) -> None:
        self._mark(TriageState(state), None)

    def action_original(self) -> None:
        row = self.current()
        if row is not None:
            self.parity.original = row
            self.tell(
                message(
                    "tui.original_is",
                    "original: {kind} of {request}; d marks its duplicates",
                    kind=plain(row.kind),
                    request=plain(row.request),
                )
            )

    def action_duplicate(self) -> None:
        original = self.parity.original
        if original is None:
            self.tell(message("tui.original_first", "press o on the original first"), severity="warning")
            return
        self._mark(TriageState.DUPLICATE, original)

    def _mark(self, state: TriageState, original: FindingRow | None) -> None:
        ids = self.targets() if original is None else [i for i in self.targets() if i != original.id]
        changes = {"state": state, "duplicate_of": original.fingerprint if original else None}
        self._amend(ids, changes, advance=state is not TriageState.NEW)

    def action_known(self) -> None:
        """The link is asked for (the last one is there already), and what others must be like to be known too."""
        ids = list(self.targets())
        if not ids:
            return

        row, store = self.current(), self.store
        if row is None or store is None:
            return
        facts = self.parity.attempt(lambda: store.arm_facts(row.run, row.arm), None)

        def named(answer: tuple[str, Rule | None] | None) -> None:
            if answer is not None:
                self.parity.known_link, rule = answer
                changes = {"state": TriageState.KNOWN, "link": answer[0], "duplicate_of": None}
                self._amend(ids, changes, advance=True, rule=rule)

        heading = message("tui.known_bug", "A known bug: {findings}", findings=findings(len(ids)))
        self.app.push_screen(KnownBug(heading, self.parity.known_link, row.kind, offers(row, facts)), named)

    def _amend(
        self, ids: Sequence[int], changes: Mapping[str, Any], *, advance: bool = False, rule: Rule | None = None
    ) -> None:
        """Change these fields of the findings, and keep a rule that makes later ones known."""
        if not ids or not changes:
            return

        def write(store: Browser) -> Message:
            done, total, whole = 0, len(ids), True

            def names() -> Iterator[str]:
                nonlocal done
                for name in store.fingerprints(ids):
                    done += 1
                    yield name

            def going_on(_: int) -> bool:
                nonlocal whole
                whole = self.parity.going_on(done, total)
                return whole

            store.amend(names(), run=self.scope, going_on=going_on, **changes)
            if not done:
                raise ParityError(
                    message("tui.findings_gone", "these findings are no longer in the database"),
                    hint=message("tui.run_deleted", "the run was deleted meanwhile"),
                )
            if not whole:
                return message(
                    "tui.stopped", "stopped: changed {done:,} of {total:,}; u undoes it", done=done, total=total
                )
            if rule is None:
                return _changed(len(ids), changes)
            taken = store.add_rule(rule, going_on=lambda so_far: self.parity.going_on(so_far, so_far + 1))
            return message(
                "tui.ruled",
                "{findings} marked known; {taken:,} more in all runs fit the rule, and what comes will",
                findings=findings(len(ids)),
                taken=max(0, taken - len(ids)),
            )

        self.parity.change(write, lambda: self.decided(advance=advance))

    def action_triage(self) -> None:
        store, row, ids = self.store, self.current(), list(self.targets())
        if store is None or row is None or not ids:
            return
        original = self.parity.original.fingerprint if self.parity.original else None
        if len(ids) > 1:
            many = message(
                "tui.triage_of_many",
                "Triage of {findings}; what is left empty stays as it is",
                findings=findings(len(ids)),
            )
            dialog = EditTriage(many, None, original, ())
        else:
            said = self.parity.attempt(lambda: store.triage(row.fingerprint), Triage())
            nothing: list[TriageChange] = []
            history = self.parity.attempt(lambda: store.triage_history(row.fingerprint), nothing)
            heading = message(
                "tui.triage_of", "Triage of {kind} in {arm}, {place}", kind=row.kind, arm=row.arm, place=place(row.key)
            )
            dialog = EditTriage(heading, said, original, history)
        self.app.push_screen(dialog, lambda changes: self._amend(ids, changes or {}))

    def action_undo(self) -> None:
        """Undo the last step of this run; one of somebody else's only after asking."""
        self._again(
            lambda store: store.next_undo(self.scope),
            lambda store, step, going_on: store.undo_triage(self.scope, batch=step.batch, going_on=going_on),
            message("tui.nothing_to_undo_here", "nothing to undo in this run"),
            lambda said: message("tui.undone_step", "undone: {step}; U redoes it", step=said),
        )

    def action_redo(self) -> None:
        self._again(
            lambda store: store.next_redo(self.scope),
            lambda store, step, going_on: store.redo_triage(self.scope, batch=step.batch, going_on=going_on),
            message("tui.nothing_to_redo", "nothing to redo in this run"),
            lambda said: message("tui.redone_step", "redone: {step}; u undoes it", step=said),
        )

    def _again(
        self,
        look: Callable[[Browser], TriageStep | None],
        turn: Callable[[Browser, TriageStep, Callable[[int], bool]], Sequence[TriageChange]],
        nothing: Message,
        said: Callable[[Message], Message],
    ) -> None:
        store = self.store
        if store is None:
            return
        none: TriageStep | None = None
        step = self.parity.attempt(lambda: look(store), none)
        if step is None:
            self.tell(nothing)
            return

        def write(browser: Browser) -> Message:
            stopped = False

            def going_on(done: int) -> bool:
                nonlocal stopped
                stopped = not self.parity.going_on(done, step.findings)
                return not stopped

            changes = turn(browser, step, going_on)
            if stopped:
                return message(
                    "tui.stopped_again",
                    "stopped: changed {done:,} of {total:,}; the same key goes on",
                    done=len(changes),
                    total=step.findings,
                )
            if not changes:
                return message("tui.step_changed", "nothing was changed: somebody decided meanwhile; look again")
            first = changes[0]
            what = step_said(
                browser, self.run.id, replace(step, before=first.before or Triage(), after=first.after or Triage())
            )
            return said(what)

        if step.author not in ("", user()):
            question = message(
                "tui.others_step", "This is {author}'s of {at}: go on?", author=step.author, at=moment(step.at)
            )
            about = self.parity.attempt(lambda: step_said(store, self.run.id, step), message("tui.a_step", "one step"))

            def answered(yes: bool | None) -> None:
                if yes:
                    self.parity.change(write)

            self.app.push_screen(Confirm(question, about), answered)
        else:
            self.parity.change(write)

    # ------------------------------------------------------------------ elsewhere

    def action_copy_command(self) -> None:
        self.parity.copy(self.run.command)

    def action_export(self) -> None:
        store, ids = self.store, list(self.targets())
        if store is not None and ids:
            name = f"findings-{self.run.id}.json"
            heading = message("tui.export_to", "Export {findings} to", findings=findings(len(ids)))
            self.parity.save_as(heading, name, lambda: self._exported(store, ids))

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
    return {"run": row.run, **row.to_json(), "triage": store.triage(row.fingerprint).to_json()}


def step_said(store: Browser, run: str, step: TriageStep) -> Message:
    """ "confirmed → new of row_leak p3 and 3 more, made by anna on 2026-11-22 10:03"."""
    row = store.finding_of(run, step.fingerprint)
    subject: Message | str = step.fingerprint if row is None else f"{plain(row.kind)} {place(row.key)}"
    if step.findings > 1:
        subject = message("tui.and_more", "{subject} and {more:,} more", subject=subject, more=step.findings - 1)
    what = _difference(step.before, step.after)
    if not step.author:
        return message(
            "tui.step_made", "{what} of {subject}, made {at}", what=what, subject=subject, at=moment(step.at)
        )
    return message(
        "tui.step_of_by",
        "{what} of {subject}, made by {author} {at}",
        what=what,
        subject=subject,
        author=step.author,
        at=moment(step.at),
    )


def _difference(before: Triage, after: Triage) -> Message | str:
    if before.state is not after.state:
        return f"{state_name(before.state)} → {state_name(after.state)}"
    changed = [FIELDS[name] for name in ("label", "note", "link") if getattr(before, name) != getattr(after, name)]
    return message("tui.fields", "{fields}", fields=changed) if changed else state_name(after.state)


def _changed(count: int, changes: Mapping[str, Any]) -> Message:
    if "state" in changes:
        state = state_message(changes["state"])
        return message("tui.marked", "{findings} marked {state}; u undoes it", findings=findings(count), state=state)
    fields = [FIELDS[name] for name in changes]
    return message(
        "tui.changed",
        "{count:,} finding has another {fields}; u undoes it",
        plural="{count:,} findings have another {fields}; u undoes it",
        count=count,
        fields=fields,
    )
