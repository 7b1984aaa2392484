"""The rules of known bugs: what each takes, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.widgets import Static

from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, joined, message
from parity.store import RuleUse
from parity.store.browse import Browser
from parity.tui.bindings import APP, KNOWN_BUGS
from parity.tui.command import bindings
from parity.tui.format import moment, plain
from parity.tui.names import FIELDS, findings
from parity.tui.screens.dialogs import Confirm
from parity.tui.screens.listing import ListScreen
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.table import Column, VirtualTable
from parity.view.known import asked


def _where(use: RuleUse) -> str:
    return plain(render(joined(list(asked(use.rule)), ", ")))


COLUMNS: list[Column[RuleUse]] = [
    Column(FIELDS["findings"], 9, lambda one: (f"{one.findings:,}", "" if one.findings else "dim"), right=True),
    Column(message("tui.column.runs", "runs"), 6, lambda one: (f"{one.runs:,}", ""), right=True),
    Column(FIELDS["kind"], 17, lambda one: (plain(one.rule.kind), "")),
    Column(FIELDS["link"], 0, lambda one: (plain(one.rule.link), ""), least=14, middle=True),
    Column(message("tui.column.where", "where"), 0, lambda one: (_where(one), "dim"), least=16),
    Column(message("tui.column.newest", "newest run"), 20, lambda one: (plain(one.newest or "-"), ""), from_width=100),
    Column(message("tui.column.by", "by"), 10, lambda one: (plain(one.rule.author), "dim"), from_width=120),
    Column(FIELDS["date"], 16, lambda one: (moment(one.rule.created), "dim"), from_width=120),
]


class KnownBugsScreen(ListScreen[RuleUse]):
    """Each rule a line, the newest first."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(KNOWN_BUGS)]
    AUTO_FOCUS = "#table"
    group = "known_bugs"
    of_a_row = frozenset({"open", "copy_link", "delete"})

    def __init__(self) -> None:
        super().__init__()
        self.rules: Sequence[RuleUse] | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        yield VirtualTable[RuleUse](COLUMNS, self._fetch, lambda one: one.rule.id, id="table")
        yield Static(classes="empty", id="empty")
        yield Static(classes="detail", id="detail")
        yield KeyBar(KNOWN_BUGS, APP)

    def on_mount(self) -> None:
        self.set_text("#title", render(message("tui.known_bugs", "known bugs: rules that hold in every run")))
        self._draw()
        self.load()

    @property
    def reading(self) -> bool:
        return self.rules is None

    def reload(self) -> None:
        self.load()

    @work(thread=True, exclusive=True, group="rules")
    def load(self) -> None:
        try:
            found = self.parity.background().rules()
        except ParityError as error:
            self.parity.hand_over(None, self.parity.complain, error)
            return
        self.parity.hand_over(self, self._rules_are, found)

    def _rules_are(self, found: Sequence[RuleUse]) -> None:
        self.rules = found
        self._draw()

    def _fetch(self, offset: int, limit: int) -> Sequence[RuleUse]:
        return (self.rules or ())[offset : offset + limit]

    def _draw(self) -> None:
        found = self.rules or ()
        self.table.show(len(found))
        self.set_shown("#table", bool(found))
        self.set_shown("#detail", bool(found))
        self.set_shown("#empty", not found)
        reading = message("tui.reading_rules", "Reading the rules …")
        none = message(
            "tui.no_rules",
            "No bug is known by a rule yet. B on a finding, with the first line under the link chosen, makes one.",
        )
        self.set_text("#empty", render(reading if self.rules is None else none))

    def on_virtual_table_moved(self) -> None:
        one = self.table.current
        self.set_text(
            "#detail", "" if one is None else f"{plain(one.rule.link)}\n{plain(one.rule.kind)}: {_where(one)}"
        )

    # ------------------------------------------------------------------ actions

    def on_virtual_table_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """The newest run that it took findings of, and these alone."""
        from parity.tui.screens.findings import FindingsScreen

        one, store = self.table.current, self.store
        if one is None or one.newest is None or store is None:
            return
        newest = one.newest
        run = self.parity.attempt(lambda: store.run(newest), None)
        if run is not None:
            screen = FindingsScreen(run)
            chosen = frozenset({("kind", one.rule.kind), ("state", "known")})
            screen.view = replace(screen.view, chosen=chosen)
            self.app.push_screen(screen)

    def action_copy_link(self) -> None:
        one = self.table.current
        if one is not None:
            self.parity.copy(one.rule.link)

    def action_delete(self) -> None:
        one = self.table.current
        if one is None:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.parity.change(lambda store: _remove(store, one.rule.id))

        question = message("tui.delete_rule", "Forget this rule of {kind}?", kind=plain(one.rule.kind))
        about = message(
            "tui.rule_goes",
            "{findings} of {runs:,} runs will be new again, unless somebody decided about them.",
            findings=findings(one.findings),
            runs=one.runs,
        )
        self.app.push_screen(Confirm(question, about), answered)


def _remove(store: Browser, number: int) -> Message:
    count = store.remove_rule(number)
    return message("tui.rule_gone", "forgotten; {findings} had it", findings=findings(count))
