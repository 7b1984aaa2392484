"""What can be done with a run of the list: named, compared, started, deleted."""

from __future__ import annotations

from collections.abc import Sequence

from parity.language import render
from parity.messages import Message, joined, message
from parity.store import RunRow, RunStatus
from parity.store.browse import Browser
from parity.tui.format import moment, plain
from parity.tui.screens.dialogs import AskText, Confirm
from parity.tui.screens.listing import SearchedScreen
from parity.view.lines import RunLine


class RunActions(SearchedScreen[RunLine]):
    """The list of runs, as far as one run is concerned."""

    of_a_row = frozenset(
        {
            "open",
            "copy_command",
            "start",
            "select",
            "compare",
            "inbox",
            "about",
            "watch",
            "name",
            "completions",
            "delete",
        }
    )

    def __init__(self) -> None:
        super().__init__()
        self.marked: RunRow | None = None
        """To be compared with another."""

    def action_name(self) -> None:
        line = self.table.current
        if line is None:
            return
        run = line.run
        heading = message("tui.name_run", "What is run {run} called?", run=plain(run.id))
        about_it = render(message("tui.name_run.what", "a name, and tags as #nightly"))
        before = " ".join(filter(None, [run.name, *(f"#{tag}" for tag in run.tags)]))

        def named(answer: str | None) -> None:
            if answer is None or answer == before:
                return
            words = answer.split()
            tags = [word.lstrip("#") for word in words if word.startswith("#")]
            name = " ".join(word for word in words if not word.startswith("#"))
            self.parity.change(lambda store: _name(store, run.id, name, tags))

        self.app.push_screen(AskText(heading, plain(before), about_it), named)

    def action_select(self) -> None:
        line = self.table.current
        if line is not None:
            again = line.run.id in self.table.selected
            self.marked = None if again else line.run
            self.table.selected.clear()
            if not again:
                self.table.selected.add(line.run.id)
            self.table.refresh()
            self.table.go(self.table.cursor + 1)

    def action_compare(self) -> None:
        from parity.tui.screens.comparing import ComparingScreen

        line, marked = self.table.current, self.marked
        if line is None or marked is None or marked.id == line.run.id:
            self.tell(message("tui.mark_first", "Space marks one run, = on another compares the two"))
            return
        before, after = sorted((marked, line.run), key=lambda run: (run.created, run.id))
        self.app.push_screen(ComparingScreen(before, after))

    def action_copy_command(self) -> None:
        line = self.table.current
        if line is not None:
            self.parity.copy(line.run.command)

    def action_start(self) -> None:
        line = self.table.current
        if line is not None:
            self.parity.start(line.run, None)

    def action_delete(self) -> None:
        line = self.table.current
        if line is None:
            return
        run = line.run
        if line.status == RunStatus.RUNNING:
            said = message("tui.run_in_use", "another process is working on this run: wait for it, or stop it")
            self.tell(said, severity="error")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.parity.change(lambda store: _delete(store, run.id))

        self.app.push_screen(
            Confirm(
                message(
                    "tui.delete_run", "Delete run {run} of {created}?", run=plain(run.id), created=moment(run.created)
                ),
                joined([_goes(line.findings), _files_stay(run)], by=" "),
            ),
            answered,
        )


def _goes(findings: int) -> Message:
    return message(
        "tui.goes",
        "{count:,} finding goes from the database. Triage stays, it belongs to later runs too.",
        plural="{count:,} findings go from the database. Triage stays, it belongs to later runs too.",
        count=findings,
    )


def _files_stay(run: RunRow) -> Message:
    if run.directory:
        return message("tui.files_stay_in", "Files stay in {directory}.", directory=plain(run.directory))
    return message("tui.files_stay", "Files stay.")


def _delete(store: Browser, run_id: str) -> Message:
    store.delete_run(run_id)
    return message("tui.deleted", "deleted {run}", run=run_id)


def _name(store: Browser, run_id: str, name: str, tags: Sequence[str]) -> Message:
    store.name_run(run_id, name=name, tags=tags)
    return message("tui.named_run", "named {run}", run=run_id)
