"""One finding: both sides token by token, the gap over the whole completion, who thought what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.widgets import Static

from parity.language import in_a_row, render
from parity.messages import message
from parity.records import RUN, Kind
from parity.store import FindingRow, Occurrence, Triage, TriageChange
from parity.tui.bindings import APP, FINDING
from parity.tui.command import bindings
from parity.tui.drawing import Drawing
from parity.tui.names import class_said
from parity.tui.screens import lanes, logprobs_panel, panels, triage_panel
from parity.tui.screens.finding_said import title, why
from parity.tui.screens.panels import PANELS
from parity.tui.screens.seeking import READING
from parity.tui.screens.visiting import VisitingScreen
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.paneltext import Palette, PanelText
from parity.tui.widgets.sides import Content
from parity.tui.widgets.strips import GapStrip
from parity.tui.widgets.tabline import TabLine
from parity.tui.widgets.tokenview import TokenView
from parity.view.alignment import Alignment
from parity.view.completion import CompletionView
from parity.view.extras import Extras, load_extras
from parity.view.lines import controls

SHORT = 30
"""Lines below which the panel has two of them until it is asked for."""
WIDE = 140
"""Columns from which the panel stands beside the tokens, and the logprobs have a place of their own."""


class FindingScreen(VisitingScreen):
    """A completion of a candidate arm beside the baseline's, at a finding or (between findings) at none."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(FINDING)]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (SHORT, "-tall")]  # noqa: RUF012 - declared so by Textual
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - declared so by Textual
    AUTO_FOCUS = "#tokens"
    group = "finding"
    panel = "logprobs"

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        yield Static(id="why")
        yield GapStrip(id="strip")
        with Container(id="body"):
            yield TokenView(id="tokens")
            with Vertical(id="side"):
                yield PanelText(id="now")
                yield TabLine(id="tabs")
                with VerticalScroll(id="panel", can_focus=False):
                    yield PanelText(id="panel-text")
        yield KeyBar(FINDING, APP)

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.call_after_refresh(self._show_panel))
        self.panel = _panel_of(self.finding)
        self.set_class(self.panel == "steps", "-opened")  # lanes say nothing in two lines
        self.load()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_panel)

    @property
    def wide(self) -> bool:
        return self.size.width >= WIDE

    # ------------------------------------------------------------------ data

    def reload(self) -> None:
        """The triage may have changed; the tokens of a stored run do not."""
        store, drawing = self.store, self.drawing
        if store is None or drawing is None:
            return
        if not self.parity.attempt(lambda: store.has_run(self.run.id), True):
            gone = message("tui.gone", "This run was deleted by another process; triage is kept. q goes back.")
            self.set_text("#why", render(gone))
            return
        if self.finding is not None:
            number = self.finding.id
            self.finding = self.parity.attempt(lambda: store.finding(number), None) or self.finding
            view = self.parity.attempt(lambda: drawing.view.at(store, self.finding), drawing.view)
            self.drawing = drawing.showing(view)
        self._say()
        self._show_panel()

    def load(self) -> None:
        """Read and align the completion of `arm` and `key`, and go to the finding."""
        store = self.store
        if store is None:
            return
        arm, key, finding = self.arm, self.key, self.finding
        nothing: CompletionView | None = None
        self.parity.hold()
        view = self.parity.attempt(lambda: CompletionView.read(store, self.run, arm, key, finding), nothing)
        if view is None:
            return
        if view.long:
            self.drawing = None
            self.tokens.show(Content(Alignment.empty(), (), ()), 0)
            self.query_one(GapStrip).show(0, None, view.tolerance, (), None, loading=True)
            self._say()
            self._show_panel()
            self.align(view)
        else:
            self._aligned(view.aligned())

    @work(thread=True, exclusive=True, group="align")
    def align(self, view: CompletionView) -> None:
        self.parity.hand_over(self, self._aligned, view.aligned())

    def _aligned(self, view: CompletionView) -> None:
        if (view.arm, view.key) == (self.arm, self.key):  # else somebody has gone on meanwhile
            self.drawing = Drawing.of(view)
            self._draw(go=True)
            self.load_extras()

    @work(thread=True, exclusive=True, group="extras")
    def load_extras(self) -> None:
        """The capture files, in a thread: they may be large, or on a slow disk."""
        view = self.view
        if view is None:
            return
        found = load_extras(self.run, view.arms.get(self.run.baseline), view.arms.get(view.arm), view.key)
        self.parity.hand_over(self, self._extras_are, view, found)

    def _extras_are(self, asked: CompletionView, found: Extras) -> None:
        drawing = self.drawing
        if drawing is not None and (drawing.view.arm, drawing.view.key) == (asked.arm, asked.key):
            self.drawing = drawing.having(drawing.view.having(found))
            self._draw(go=False)
            self.call_later(self._let_go)

    def _let_go(self) -> None:
        """Draw what was held; panels once more when the screen is laid out and their widths are known."""
        self.parity.release()
        self.call_after_refresh(self._show_panel)

    # ------------------------------------------------------------------ drawing

    def _draw(self, *, go: bool) -> None:
        drawing = self.drawing
        if drawing is None:
            return
        view = drawing.view
        self.tokens.show(drawing.content(), view.row_of_finding() if go else self.tokens.cursor)
        starts = [row.position for row in view.others if row.position is not None]
        strip = self.query_one(GapStrip)
        strip.show(len(view.right), view.gaps, view.tolerance, starts, view.first_difference, loading=drawing.loading)
        self._say()
        self.on_token_view_moved()
        self._show_panel()

    def _say(self) -> None:
        finding, view = self.finding, self.view
        self.set_text("#title", title(self.arm, self.key, finding))
        if finding is not None:
            planted = self.arm in controls(self.run)
            self.set_text("#why", in_a_row(why(finding, self.drawing, planted=planted)))
        elif view is None:
            self.set_text("#why", render(READING))
        else:
            cls = "missing" if view.candidate is None else view.candidate.cls
            self.set_text("#why", render(class_said(cls)))

    def on_token_view_moved(self) -> None:
        _, right = self.tokens.position
        if right >= 0:
            self.query_one(GapStrip).move(right)
        if self.panel in ("logprobs", "steps") or self.wide:
            self._show_panel()

    def on_gap_strip_jumped(self, event: GapStrip.Jumped) -> None:
        if self.view is not None:
            self.tokens.go(self.view.alignment.row_of(event.position), middle=True)

    def _show_panel(self) -> None:
        drawing, shown = self.drawing, self.query_one("#panel-text", PanelText)
        if drawing is None:
            shown.update(Text(render(READING)))
            return
        position, palette = self.tokens.position, shown.palette
        names, chosen = self._panels(), self.panel
        if chosen not in names and drawing.view.extras.timeline is None:
            chosen = "logprobs"  # before the files were read, or where no steps were recorded
        if self.wide:
            now = self.query_one("#now", PanelText)
            text = logprobs_panel.logprobs(drawing, *position, now.size.width, palette)
            now.update(text.append(f"\n{logprobs_panel.step(drawing.view, position[1])}", palette.dim))
            names.remove("logprobs")
            chosen = ("origin" if panels.has_origin(self.finding) else "prompt") if chosen == "logprobs" else chosen
        if chosen == "logprobs":
            text = logprobs_panel.logprobs(drawing, *position, self.size.width - 4, palette)
        elif chosen == "origin":
            text = panels.origin(drawing, palette)
        elif chosen == "prompt":
            text = panels.prompt(drawing, palette)
        elif chosen == "steps":
            width = self.query_one("#panel").size.width - 3
            text = lanes.steps_panel(drawing.view.extras.timeline, position[1], width, palette)
        elif chosen == "triage":
            text = self._triage(palette)
        else:
            text = panels.evidence(self.finding)
        shown.set_class(chosen == "logprobs", "-columns")
        shown.update(text)
        tabs = [(str(PANELS.index(name) + 1), name, render(panels.NAMES[name])) for name in names]
        self.query_one(TabLine).show(
            tabs, chosen, "" if self.wide else logprobs_panel.step(drawing.view, position[1], short=True)
        )

    def _panels(self) -> list[str]:
        """Those that have something to show: steps only where they were recorded."""
        view = self.view
        recorded = view is not None and view.extras.timeline is not None
        return [name for name in PANELS if name != "steps" or recorded]

    def _triage(self, palette: Palette) -> Text:
        store, finding = self.store, self.finding
        if store is None or finding is None:
            return Text(render(panels.NONE_HERE))
        said = self.parity.attempt(lambda: store.triage(finding.fingerprint), Triage())
        nothing: list[TriageChange] = []
        changes = self.parity.attempt(lambda: store.triage_history(finding.fingerprint), nothing)
        none: list[Occurrence] = []
        seen = self.parity.attempt(lambda: store.occurrences(finding), none)
        rule = self.parity.attempt(lambda: store.rule(finding.rule) if finding.rule is not None else None, None)
        return triage_panel.triage(said, changes, finding.fingerprint, palette, seen, rule)

    # ------------------------------------------------------------------ moving

    def action_move(self, step: int) -> None:
        self.tokens.go(self.tokens.cursor + step)

    def action_down(self, step: int) -> None:
        self.tokens.down(step)

    def action_page(self, step: int) -> None:
        self.tokens.down(step * self.tokens.text_height)

    def action_first(self) -> None:
        self.tokens.go(0)

    def action_last(self) -> None:
        self.tokens.go(len(self.tokens.content.alignment) - 1)

    def action_first_difference(self) -> None:
        if self.view is not None and self.view.first_difference is not None:
            self.tokens.go(self.view.row_of_difference(), middle=True)

    def action_difference(self, step: int) -> None:
        if self.view is None:
            return
        starts = self.view.alignment.starts()
        beyond = starts[starts > self.tokens.cursor] if step > 0 else starts[starts < self.tokens.cursor][::-1]
        if len(beyond):
            self.tokens.go(int(beyond[0]), middle=True)

    def action_mode(self) -> None:
        self.tokens.toggle()

    def on_tab_line_chosen(self, event: TabLine.Chosen) -> None:
        self.action_panel(event.name)

    def action_panel(self, name: str) -> None:
        """Show a panel; where lines are few, the same key again gives them back to the tokens."""
        again = name == self.query_one(TabLine).chosen and self.has_class("-opened") and self.has_class("-short")
        self.set_class(not again, "-opened")
        self.remove_class("-hidden")
        self.panel = name
        self.query_one("#panel", VerticalScroll).scroll_home(animate=False)
        self._show_panel()

    def action_zoom(self) -> None:
        self.remove_class("-hidden")
        self._resized(self.toggle_class("-zoomed"))

    def action_hide(self) -> None:
        self.remove_class("-zoomed")
        self._resized(self.toggle_class("-hidden"))

    def action_resize(self, by: int) -> None:
        side = self.query_one("#side")
        self.remove_class("-hidden", "-zoomed")
        if self.wide:
            side.styles.width = max(30, side.size.width + 4 * by)
        else:
            side.styles.min_height, side.styles.max_height = 2, "100%"
            side.styles.height = max(2, side.size.height + by)
        self._resized(self)

    def _resized(self, _: object) -> None:
        self.call_after_refresh(self._show_panel)

    def action_next_panel(self) -> None:
        names = [name for name in self._panels() if not self.wide or name != "logprobs"]
        at = names.index(self.query_one(TabLine).chosen)
        self.action_panel(names[(at + 1) % len(names)])

    def action_scroll_panel(self, step: int) -> None:
        panel = self.query_one("#panel", VerticalScroll)
        panel.scroll_relative(y=3 * step, animate=False)

    def arrive(self, *, same: bool) -> None:
        wanted = _panel_of(self.finding)
        if wanted != "logprobs" or self.panel in ("origin", "steps"):
            self.panel = wanted
        self.set_class(self.has_class("-opened") or self.panel == "steps", "-opened")
        store, drawing, finding = self.store, self.drawing, self.finding
        if same and drawing is not None and store is not None:
            view = self.parity.attempt(lambda: drawing.view.at(store, finding), drawing.view)
            self.drawing = drawing.showing(view)
            self._draw(go=True)
        else:
            self.load()

    # ------------------------------------------------------------------ triage

    def targets(self) -> Sequence[int]:
        return [] if self.finding is None else [self.finding.id]

    def current(self) -> FindingRow | None:
        return self.finding

    def decided(self, *, advance: bool = False) -> None:
        if advance and self.is_attached and self.list_step is not None:
            self.action_step(1)


def _panel_of(finding: FindingRow | None) -> str:
    if finding is not None and finding.request == RUN:
        return "evidence"  # there is no token to say anything of
    return "logprobs" if finding is None else Kind(finding.kind).row.panel
