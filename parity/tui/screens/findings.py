"""The findings of a run: sorted, filtered, selected, decided about."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, message
from parity.records import Verdict
from parity.store import ArmRow, FindingRow, RunRow
from parity.store.browse import Browser, Facet
from parity.tui import snippet
from parity.tui.bindings import APP, FINDINGS
from parity.tui.command import bindings
from parity.tui.format import plain
from parity.tui.screens.filtering import FilteringScreen
from parity.tui.screens.findings_said import (
    ALL_FOLLOW,
    READING_FINDINGS,
    RUN_GONE,
    filtered_out,
    kinds_passing,
    status,
)
from parity.tui.screens.nothing import classes_of, nothing_found
from parity.tui.stop import Stop
from parity.tui.view import COLUMNS, Hidden, View, badge
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.lines import LinesView
from parity.tui.widgets.strips import SummaryStrip
from parity.tui.widgets.table import VirtualTable
from parity.view.lines import actual_status, controls

if TYPE_CHECKING:
    from parity.tui.tokens import Decoder
    from parity.view import NextCommand

COUNTED_AT_ONCE = 512
SETTLED = 0.15
"""Seconds that a filter must stand before its positions are counted: not for every letter that is typed."""


class FindingsScreen(FilteringScreen):
    """A table over all findings of a run. Near-ties are hidden at first: they are hundreds and benign; and so is what
    follows the first fault of a completion, which mostly follows from it."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(FINDINGS)]
    # Not the search, which would be the first one: keys pressed while the screen opens are not for it.
    AUTO_FOCUS = "#table"
    group = "findings"

    def __init__(self, run: RunRow) -> None:
        super().__init__(run)
        self.total = 0
        self.gone = False
        self.decoder: Decoder | None = None
        """Loaded in the background: a page does not wait for a tokenizer."""

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        yield Static(id="next")
        yield SummaryStrip(id="summary")
        hint = message("tui.search_hint", "text in request, prompt, label or note; Enter closes")
        yield Input(placeholder=render(hint), id="search", disabled=True)
        with Horizontal(id="split"):
            columns = [*COLUMNS, snippet.column(lambda: self.decoder)]
            yield VirtualTable[FindingRow](columns, self._fetch, lambda row: row.id, id="table")
            yield Static(classes="empty", id="empty")
            yield LinesView(id="preview")
        yield Static(classes="status", id="status")
        yield KeyBar(FINDINGS, APP)

    def _say_run(self) -> None:
        verdict = self.run.verdict or actual_status(self.run)
        said = Text.assemble(badge(verdict), f"  {plain(self.run.id)}  {plain(self.run.model)}")
        names, facets = controls(self.run), self.facets or []
        if planted := sum(facet.findings for facet in facets if facet.arm in names):
            of = sum(facet.findings for facet in facets)
            among = message("tui.among_planted", "{planted:,} of {of:,} in positive controls", planted=planted, of=of)
            said.append(f"  {render(among)}", "dim")
        self.set_text("#title", said)

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.call_after_refresh(self.preview_soon))
        self.parity.hold()
        self._say_run()
        self.table.focus()
        self.refresh_rows(cursor=0)
        self.load_facets()
        if self.size.width >= snippet.FROM_WIDTH:
            self.load_decoder()
        if self.run.verdict in (Verdict.INCONCLUSIVE, Verdict.DIVERGED):
            self.load_commands()

    # ------------------------------------------------------------------ data

    def reload(self) -> None:
        store = self.store
        if store is None:
            return
        self.gone = not self.parity.attempt(lambda: store.has_run(self.run.id), True)
        row = self.table.current
        self.facets = None if self.gone else self.facets
        if not self.gone:
            self.run = self.parity.attempt(lambda: store.run(self.run.id), self.run)
            self._say_run()
        self.refresh_rows(stay_on=row)
        self.load_facets()

    def refresh_rows(self, *, cursor: int | None = None, stay_on: FindingRow | None = None) -> None:
        """Count what passes the filter and draw it, on the same finding where that still passes."""
        store = self.store
        if store is None:
            return
        where, view = self.view.filter(), self.view
        self.total = self.parity.attempt(self._count, 0)
        if stay_on is not None and self.many:
            cursor = self.table.cursor if cursor is None else cursor
        elif stay_on is not None:
            at = self.parity.attempt(
                lambda: store.index_of_finding(self.run.id, stay_on.id, where, sort=view.sort, descending=view.down),
                None,
            )
            cursor = at if at is not None else self.table.cursor
        self.table.sorted_by, self.table.descending = view.sort.value, view.down
        self.table.show(self.total, cursor=cursor)
        self.say()
        self.load_positions(view)

    def _count(self) -> int:
        """From what is known already where possible: counting a million rows takes a tenth of a second."""
        assert self.store is not None
        view = self.view
        if not view.text and self.facets is not None:
            return sum(facet.findings for facet in self.facets if view.lets(facet))
        if not view.text and not view.chosen:
            stored = sum(view.counted(arm) for arm in self.store.arms(self.run.id))
            if stored:
                return stored
        if view.text and self.many:
            ids = self.store.finding_ids(self.run.id, view.filter(), sort=view.sort, limit=COUNTED_AT_ONCE)
            if len(ids) == COUNTED_AT_ONCE:
                self.load_total(view)  # so many for now, the rest is counted in the background
            return len(ids)
        return self.store.count_findings(self.run.id, view.filter())

    @work(thread=True, exclusive=True, group="total")
    def load_total(self, view: View) -> None:
        def show(total: int) -> None:
            if view == self.view:
                self.total = total
                self.table.show(total)
                self.say()

        self._count_in_turn(lambda store: store.count_findings(self.run.id, view.filter()), show)

    def _fetch(self, offset: int, limit: int) -> Sequence[FindingRow]:
        store, view = self.store, self.view
        if store is None:
            return []

        def read() -> list[FindingRow]:
            first, count, turned = offset, max(0, min(limit, self.total - offset)), offset > self.total // 2
            if turned:  # a page costs what lies before it, so the second half is read from its end
                first = self.total - offset - count
            rows = store.page_findings(
                self.run.id,
                view.filter(),
                sort=view.sort,
                descending=view.down != turned,
                offset=first,
                limit=count,
            )
            return rows[::-1] if turned else rows

        return self.parity.attempt(read, [])

    @work(thread=True, exclusive=True, group="facets")
    def load_facets(self) -> None:
        self._count_in_turn(lambda store: store.facets(self.run.id), self._facets_are)

    @work(thread=True, exclusive=True, group="decoder")
    def load_decoder(self) -> None:
        from parity.tui.drawing import decoder_of

        def loaded(decoder: Decoder) -> None:
            self.decoder = decoder
            self.table.refresh()

        self._in_background(lambda: decoder_of(self.run), loaded)

    @work(thread=True, exclusive=True, group="commands")
    def load_commands(self) -> None:
        def commands() -> Sequence[NextCommand]:
            from parity.view import next_commands, of_store  # the comparison with it, for which no first screen waits

            return next_commands(of_store(self.parity.background(), self.run.id, limit=1))

        self._in_background(commands, self._commands_are)

    def _commands_are(self, commands: Sequence[NextCommand]) -> None:
        """What would decide the run, or say more of it: each command whole, for it is there to be copied."""
        lines = [plain(render(one.what)) + (f":\n  {plain(one.text)}" if one.text else "") for one in commands]
        shown = self.query_one("#next", Static)
        shown.display = bool(lines)
        shown.update(Text("\n".join(lines)))

    @work(thread=True, exclusive=True, group="positions")
    def load_positions(self, view: View) -> None:
        time.sleep(SETTLED)
        if view != self.view:
            return
        buckets = max(10, self.size.width - 24)
        self._count_in_turn(
            lambda store: store.positions(self.run.id, view.filter(), buckets),
            lambda found: self.query_one(SummaryStrip).show_positions(*found) if view == self.view else None,
        )

    def _in_background(self, read: Any, then: Any) -> None:
        try:
            found = read()
        except ParityError as error:
            self.parity.hand_over(None, self.parity.complain, error)
            return
        self.parity.hand_over(self, then, found)

    def _count_in_turn(self, count: Callable[[Browser], Any], then: Callable[[Any], object]) -> None:
        self._in_background(lambda: self.parity.in_turn(count), lambda found: None if found is None else then(found))

    def _facets_are(self, facets: list[Facet]) -> None:
        self.facets = facets
        self.refresh_bindings()
        self._say_run()
        total = self.parity.attempt(self._count, self.total)
        if total != self.total:
            self.total = total
            self.table.show(total)
        self.say()

    # ------------------------------------------------------------------ words

    def say(self) -> None:
        view, facets = self.view, self.facets or []
        if not view.text:  # text is not a facet
            self.query_one(SummaryStrip).show_kinds(kinds_passing(view, facets), filtered=bool(view.chosen))
        hidden = Hidden.of(view, facets)
        of = sum(facet.findings for facet in facets)
        said = status(view, self.table.cursor, self.total, of, self.selected_said(), hidden)
        self.set_text("#status", render(said), layout=False)
        self.set_shown("#empty", not self.total)
        self.set_shown("#table", bool(self.total))
        self.set_shown("#summary", bool(of or self.facets is None))
        if not self.total:
            self.set_text("#empty", plain(render(self._why_empty(hidden)), keep="\n"))

    def _why_empty(self, hidden: Hidden) -> Message:
        store = self.store
        if self.gone:
            return RUN_GONE
        if (why := filtered_out(self.view, hidden)) is not None:
            return why
        if self.facets is None or store is None:
            return READING_FINDINGS
        if sum(facet.findings for facet in self.facets):
            return ALL_FOLLOW
        no_classes: Mapping[str, int] = {}
        no_arms: Sequence[ArmRow] = ()
        arms = self.parity.attempt(lambda: store.arms(self.run.id), no_arms)
        classes = self.parity.attempt(lambda: classes_of(store, self.run), no_classes)
        return nothing_found(self.run, actual_status(self.run), arms, classes)

    def on_virtual_table_moved(self) -> None:
        self.say()
        self.preview_soon()

    # ------------------------------------------------------------------ moving and opening

    def on_virtual_table_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        from parity.tui.screens.finding import FindingScreen

        row = self.table.current
        if row is not None:
            self.app.push_screen(FindingScreen(self.run, Stop.at(row), step=self.step, untriaged=self.untriaged))

    def untriaged(self) -> Stop | None:
        """Go on to a finding of the list that nobody has decided about."""
        row = self.table.current if self.next_new() else None
        return None if row is None else Stop.at(row)

    def action_groups(self) -> None:
        from parity.tui.screens.groups import GroupsScreen

        self.app.push_screen(GroupsScreen(self.run, self.view))

    def action_completions(self) -> None:
        from parity.tui.screens.completions import CompletionsScreen

        self.app.push_screen(CompletionsScreen(self.run))

    def step(self, by: int) -> Stop | None:
        """Go on to another finding of the list; None at its ends."""
        before = self.table.cursor
        self.table.go(before + by)
        row = self.table.current
        return Stop.at(row) if row is not None and self.table.cursor != before else None
