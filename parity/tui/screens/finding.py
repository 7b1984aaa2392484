"""One finding: both sides token by token, the gap over the whole completion, who thought what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.widgets import Static

from parity.language import render
from parity.messages import message
from parity.records import Key, Kind
from parity.store import FindingRow, Occurrence, RunRow, Triage, TriageChange
from parity.tui.bindings import APP, FINDING
from parity.tui.command import bindings
from parity.tui.drawing import Drawing
from parity.tui.format import nats, plain
from parity.tui.names import FIELDS, class_said, severity_name, state_name
from parity.tui.screens import lanes, logprobs_panel, panels, triage_panel
from parity.tui.screens.panels import PANELS
from parity.tui.screens.seeking import SeekingScreen
from parity.tui.stop import Stop
from parity.tui.view import place
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

READING = message("tui.reading_tokens", "Reading and aligning the tokens …")
NO_FINDING = message("tui.no_finding", "no finding")
Step = Callable[[int], Stop | None]
SHORT = 30
"""Lines below which the panel has two of them until it is asked for."""
WIDE = 140
"""Columns from which the panel stands beside the tokens, and the logprobs have a place of their own."""


class FindingScreen(SeekingScreen):
    """A completion of a candidate arm beside the baseline's, at a finding or (between findings) at none."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(FINDING)]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (SHORT, "-tall")]  # noqa: RUF012 - declared so by Textual
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - declared so by Textual
    AUTO_FOCUS = "#tokens"
    group = "finding"

    def __init__(
        self,
        run: RunRow,
        stop: Stop,
        *,
        step: Step | None = None,
        untriaged: Callable[[], Stop | None] = lambda: None,
    ) -> None:
        super().__init__()
        self.untriaged = untriaged
        self.run = run
        self.arm, self.key, self.finding = stop
        self.list_step = step
        self.panel: str = _panel_of(stop.finding)
        self.drawing: Drawing | None = None

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
        self.set_class(self.panel == "steps", "-opened")  # lanes say nothing in two lines
        self.load()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_panel)

    @property
    def view(self) -> CompletionView | None:
        """What is drawn; None before it was read."""
        return None if self.drawing is None else self.drawing.view

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
        where = f"{plain(self.arm)}  {place(self.key)}"
        if finding is None:
            self.set_text("#title", f"{render(NO_FINDING)}  {where}")
            if view is None:
                self.set_text("#why", render(READING))
                return
            cls = "missing" if view.candidate is None else view.candidate.cls
            self.set_text("#why", render(class_said(cls)))
            return
        span = "" if finding.position is None else f"  {render(FIELDS['token'])} {finding.position}"
        span += f"+{finding.length}" if finding.length else ""
        state = f"{state_name(finding.state).upper()}{f' {plain(finding.label)}' if finding.label else ''}"
        title = Text.assemble(
            (f" {state} ", "reverse"), f"  {severity_name(finding.severity)} {plain(finding.kind)}  {where}{span}"
        )
        self.set_text("#title", title)
        self.set_text("#why", " ".join(self._why(finding)))

    def _why(self, finding: FindingRow) -> Iterator[str]:
        """Sentences: what was found, how wide the gap is, what else there is in the completion."""
        drawing = self.drawing
        why = plain(render(finding.why)).rstrip(".。")
        if why:
            why = why[:1].upper() + why[1:]
            planted = self.arm in controls(self.run)
            yield render(
                message("tui.why_control", "In a positive control: {why}.", why=why)
                if planted
                else message("tui.why", "{why}.", why=why)
            )
        if drawing is None:
            yield render(READING)
            return
        if finding.gap is not None:
            tolerance = nats(drawing.view.tolerance)
            yield render(
                message(
                    "tui.gap_is", "Gap {gap} nats, tolerance {tolerance}.", gap=nats(finding.gap), tolerance=tolerance
                )
            )
        if len(drawing.view.others) > 1:
            count = len(drawing.view.others)
            yield render(message("tui.in_completion", "{count} findings in this completion (f next).", count=count))
        if drawing.decoder.problem is not None:
            yield render(message("tui.note", "Note: {problem}.", problem=drawing.decoder.problem))

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

    # ------------------------------------------------------------------ going elsewhere

    def visit(self, arm: str, key: Key, finding: FindingRow | None) -> None:
        same = (arm, key) == (self.arm, self.key)
        self.arm, self.key, self.finding = arm, key, finding
        wanted = _panel_of(finding)
        if wanted != "logprobs" or self.panel in ("origin", "steps"):
            self.panel = wanted
        self.set_class(self.has_class("-opened") or self.panel == "steps", "-opened")
        store, drawing = self.store, self.drawing
        if same and drawing is not None and store is not None:
            view = self.parity.attempt(lambda: drawing.view.at(store, finding), drawing.view)
            self.drawing = drawing.showing(view)
            self._draw(go=True)
        else:
            self.load()

    def action_step(self, by: int) -> None:
        stop = self.list_step(by) if self.list_step else None
        if stop is None:
            self.tell(message("tui.no_further", "nothing further in the list"))
        else:
            self.visit(*stop)

    def action_next_new(self) -> None:
        stop = self.untriaged()
        if stop is None:
            self.tell(message("tui.none_new", "nothing is left that nobody has decided about"))
        else:
            self.visit(*stop)

    def action_within(self, by: int) -> None:
        if self.view is None:
            self.tell(READING)
            return
        others = list(self.view.others)
        if not others:
            self.tell(message("tui.no_finding_in", "no finding in this completion"))
            return
        ids = [row.id for row in others]
        at = ids.index(self.finding.id) + by if self.finding and self.finding.id in ids else 0
        row = others[at % len(others)]
        self.visit(row.arm, row.key, row)

    def action_other_arm(self) -> None:
        if self.view is None:
            return
        names = [name for name, arm in self.view.arms.items() if not arm.is_baseline]
        if len(names) < 2:
            self.tell(message("tui.no_other_arm", "the run has no other arm to compare"))
            return
        self._visit_first(names[(names.index(self.arm) + 1) % len(names)], self.key)

    def action_neighbour(self, step: int) -> None:
        store = self.store
        if store is None:
            return
        key = self.parity.attempt(lambda: store.neighbour(self.run.id, self.arm, self.key, step), None)
        if key is None:
            self.tell(message("tui.no_further_row", "no further row in the batch"))
        else:
            self._visit_first(self.arm, key)

    def _visit_first(self, arm: str, key: Key) -> None:
        """The worst finding of a completion, or the completion without one."""
        store = self.store
        if store is None:
            return
        nothing: list[FindingRow] = []
        found = self.parity.attempt(lambda: store.findings_of_completion(self.run.id, arm, key), nothing)
        worst = sorted(found, key=lambda row: (-row.weight, row.id))
        self.visit(arm, key, worst[0] if worst else None)

    # ------------------------------------------------------------------ triage

    def targets(self) -> Sequence[int]:
        return [] if self.finding is None else [self.finding.id]

    def current(self) -> FindingRow | None:
        return self.finding

    def decided(self, *, advance: bool = False) -> None:
        if advance and self.is_attached and self.list_step is not None:
            self.action_step(1)


def _panel_of(finding: FindingRow | None) -> str:
    return "logprobs" if finding is None else Kind(finding.kind).row.panel
