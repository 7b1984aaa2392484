"""What leaves the application: text to the clipboard, files, and commands that are started in the terminal."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from textual import work
from textual.app import SuspendNotSupported

from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, message
from parity.paths import expanded
from parity.store import FindingRow, RunRow
from parity.tui.connected import ConnectedApp
from parity.tui.format import plain, short_path
from parity.tui.outside import FollowUp, Outside
from parity.tui.screens.dialogs import AskText, Choose, Confirm, Reading
from parity.tui.suspended import run_in_terminal


class HandingOnApp(ConnectedApp):
    """`outside`: what other parts of parity do for it."""

    def __init__(self, database: Path | None = None, outside: Outside | None = None) -> None:
        super().__init__(database)
        self.outside = outside or Outside()

    def copy(self, text: str) -> None:
        """To the clipboard where the terminal allows it (OSC 52); on the screen in any case."""
        self.copy_to_clipboard(text)
        self.push_screen(Reading(message("tui.copied", "Copied, where the terminal allows it"), text))

    def start(self, run: RunRow, finding: FindingRow | None) -> None:
        """Offer the commands that go on from here."""
        nothing: Sequence[FollowUp] = ()
        choices = self.attempt(lambda: self.outside.follow_ups(self.database, run, finding), nothing)
        if not choices:
            self.tell(
                message("tui.nothing_to_start", "nothing can be started from here: y copies the command of the run")
            )
            return

        def chosen(answer: tuple[str, FollowUp] | None) -> None:
            if answer is not None and answer[0] == "copy":
                self.copy(answer[1].line)
            elif answer is not None and answer[1].ask:
                self._ask_and_start(answer[1])
            elif answer is not None:
                self._start(answer[1])

        self.push_screen(Choose(message("tui.go_on", "Go on with"), choices), chosen)

    def _ask_and_start(self, choice: FollowUp) -> None:
        def answered(words: str | None) -> None:
            if words:
                try:
                    more = shlex.split(words)
                except ValueError as error:
                    self.complain(
                        ParityError(
                            message("tui.not_words", "not words for a command line: {said}", said=str(error)),
                            hint=message("tui.close_quotes", "close the quotes"),
                        )
                    )
                    return
                self._start(replace(choice, arguments=(*choice.arguments, *more), ask=None))

        if choice.ask is not None:
            self.push_screen(AskText(choice.ask, "", choice.line), answered)

    def _start(self, choice: FollowUp) -> None:
        try:
            with self.suspend():
                run_in_terminal(choice)
        except SuspendNotSupported:  # in a browser, or on a platform without job control
            self.copy_to_clipboard(choice.line)
            self.push_screen(
                Reading(
                    message(
                        "tui.other_terminal", "Start it in another terminal; it was copied where the browser allows it"
                    ),
                    choice.line,
                )
            )
        else:
            self.reload_screens()

    @work(thread=True, exclusive=True, group="report")
    def report(self, finding: FindingRow) -> None:
        """Make the bug report of a finding, in a thread since it reads the captures, then ask where to put it."""
        if self.outside.report is None:
            self.call_from_thread(self.tell, message("tui.no_reports", "no reports from here: e exports the finding"))
            return
        try:
            text = self.outside.report(self.database, finding)
        except ParityError as error:
            self.hand_over(None, self.complain, error)
            return
        name = f"report-{finding.run}-{finding.id}.md"
        heading, then = (
            message("tui.report_to", "Write the bug report to"),
            message("tui.then", "R marks it as reported"),
        )
        self.call_from_thread(self.save_as, heading, name, lambda: text, then)

    def save_as(self, heading: Message, name: str, make: Callable[[], str], then: Message | None = None) -> None:
        """Ask for a file, `name` at first, and write what `make` gives; never over a file without asking."""

        def write(path: Path) -> None:
            try:
                path.write_text(make(), encoding="utf-8")
            except OSError as error:
                raise ParityError(
                    message(
                        "tui.cannot_write", "{path} cannot be written: {said}", path=str(path), said=str(error.strerror)
                    ),
                    hint=message("tui.name_another_file", "name another file"),
                ) from error
            said = message("tui.written", "written to {path}", path=plain(path))
            self.tell(
                said if then is None else message("tui.and_then", "{said}; {then}", said=said, then=then), timeout=6
            )

        place = message("tui.in_here", "in {place}, or name another place", place=short_path(Path.cwd()))

        def named(answer: str | None) -> None:
            if not answer:
                return
            path = self.attempt(lambda: expanded(answer).absolute(), None)
            if path is None:
                return
            if os.path.lexists(path):  # of a name that no system takes it says no, and writing says why
                self.push_screen(
                    Confirm(message("tui.overwrite", "Overwrite {path}?", path=plain(path))),
                    lambda yes: self.attempt(lambda: write(path), None) if yes else None,
                )
            else:
                self.attempt(lambda: write(path), None)

        self.push_screen(AskText(heading, name, render(place)), named)
