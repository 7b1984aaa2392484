"""One finding: both sides token by token, the gap over the whole completion, who thought what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from parity.records import DEFAULT_TOLERANCE, Key
from parity.store import FindingRow, RunRow, Triage, TriageChange
from parity.store.browse import Browser
from parity.tui.alignment import Alignment, align
from parity.tui.bindings import FINDING, bindings
from parity.tui.captures import Extras, gaps, load_extras
from parity.tui.format import nats, plain
from parity.tui.screens import panels
from parity.tui.screens.panels import PANELS, Subject
from parity.tui.screens.triaging import TriageScreen
from parity.tui.tokens import Decoder
from parity.tui.widgets.strips import GapStrip
from parity.tui.widgets.tokenview import Content, TokenView

Step = Callable[[int], FindingRow | None]

_decoders: dict[str, Decoder] = {}


def decoder_of(run: RunRow) -> Decoder:
    """The decoder of the run's model; one per checkpoint, since loading a tokenizer takes a while."""
    path = run.plan.get("model", {}).get("path")
    name = str(path) if path else ""
    if name not in _decoders:
        _decoders[name] = Decoder(Path(name) if name else None)
    return _decoders[name]


class FindingScreen(TriageScreen):
    """A completion of a candidate arm beside the baseline's, at a finding or (between findings) at none."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(FINDING)]
    group = "finding"

    def __init__(self, run: RunRow, finding: FindingRow, *, step: Step | None = None) -> None:
        super().__init__()
        self.run = run
        self.finding: FindingRow | None = finding
        self.arm, self.key = finding.arm, finding.key
        self.list_step = step
        self.panel = "donor" if finding.kind in ("row_leak", "repetition") else "logprobs"
        self.subject: Subject | None = None
        self.alignment: Alignment | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        yield Static(id="why")
        yield GapStrip(id="strip")
        yield TokenView(id="tokens")
        with VerticalScroll(id="panel", can_focus=False):
            yield Static(id="panel-text")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.tokens.focus()
        self.load()

    @property
    def tokens(self) -> TokenView:
        return self.query_one(TokenView)

    # ------------------------------------------------------------------ data

    def reload(self) -> None:
        """The triage may have changed; the tokens of a stored run do not."""
        store = self.store
        if store is None or self.subject is None:
            return
        if not self.parity.attempt(lambda: store.has_run(self.run.id), True):
            self.set_text("#why", "This run was deleted by another process. q goes back.")
            return
        if self.finding is not None:
            number = self.finding.id
            self.finding = self.parity.attempt(lambda: store.finding(number), None) or self.finding
            self.subject.finding = self.finding
        self._say()
        self._show_panel()

    def load(self) -> None:
        """Read and align the completion of `arm` and `key`, and go to the finding."""
        store = self.store
        if store is None:
            return
        subject = self.parity.attempt(lambda: self._subject(store), None)
        if subject is None:
            return
        self.subject = subject
        nothing = np.empty(0, dtype=np.int64)
        left = subject.baseline.token_ids if subject.baseline else nothing
        right = subject.candidate.token_ids if subject.candidate else nothing
        self.alignment = align(left, right)
        self._draw(go=True)
        self.load_extras()

    def _subject(self, store: Browser) -> Subject:
        run, key = self.run, self.key
        subject = Subject(
            run=run,
            decoder=decoder_of(run),
            finding=self.finding,
            baseline=store.completion(run.id, run.baseline, key),
            candidate=store.completion(run.id, self.arm, key),
            request=store.request(run.id, key.request),
            arms={arm.name: arm for arm in store.arms(run.id)},
            arm=self.arm,
            others=store.findings_of_completion(run.id, self.arm, key),
        )
        donor = self.finding.evidence.get("donor_request") if self.finding else None
        if isinstance(donor, str):
            part = str(self.finding.evidence.get("donor_part", "")) if self.finding else ""
            arm = run.baseline if "baseline" in part else self.arm
            subject.donor = store.completion(run.id, arm, Key(donor, key.round, key.sample))
            subject.donor_request = store.request(run.id, donor)
        return subject

    @work(thread=True, exclusive=True, group="extras")
    def load_extras(self) -> None:
        """The capture files, in a thread: they may be large, or on a slow disk."""
        subject = self.subject
        if subject is None:
            return
        arms = subject.arms
        found = load_extras(self.run, arms.get(self.run.baseline), arms.get(subject.arm), self.key)
        if self.is_attached:
            self.app.call_from_thread(self._extras_are, subject, found)

    def _extras_are(self, subject: Subject, found: Extras) -> None:
        if subject is self.subject:
            subject.extras = found
            self._draw(go=False)

    @property
    def tolerance(self) -> float:
        for place in (self.finding.evidence if self.finding else {}, self.run.plan):
            value = place.get("tolerance")
            if isinstance(value, int | float):
                return float(value)
        return DEFAULT_TOLERANCE

    # ------------------------------------------------------------------ drawing

    def _draw(self, *, go: bool) -> None:
        subject, alignment = self.subject, self.alignment
        if subject is None or alignment is None:
            return
        nothing = np.empty(0, dtype=np.int64)
        left = subject.baseline.token_ids if subject.baseline else nothing
        right = subject.candidate.token_ids if subject.candidate else nothing
        measured = gaps(subject.extras.reference, right)
        starts = [f.position for f in subject.others if f.position is not None]
        content = Content(
            alignment,
            subject.decoder.pieces(left),
            subject.decoder.pieces(right),
            measured,
            self.tolerance,
            _covered(subject.others),
            _copies(self.finding, len(right)),
            (plain(self.run.baseline), plain(subject.arm)),
        )
        row = self._row_of_finding() if go else self.tokens.cursor
        self.tokens.show(content, row)
        first = alignment.starts()
        differs = int(alignment.right[first[0]]) if len(first) else None
        self.query_one(GapStrip).show(len(right), measured, self.tolerance, starts, differs)
        self._say()
        self.on_token_view_moved()
        self._show_panel()

    def _row_of_finding(self) -> int:
        assert self.alignment is not None
        if self.finding is not None and self.finding.position is not None:
            row = self.alignment.row_of(self.finding.position)
            # What the baseline has alone (an omission) stands just before the candidate's next token.
            while self.finding.kind == "omission" and row > 0 and self.alignment.right[row - 1] < 0:
                row -= 1
            return row
        first = self.alignment.starts()
        return int(first[0]) if len(first) else 0

    def _say(self) -> None:
        finding, subject = self.finding, self.subject
        where = f"{plain(self.arm)} vs {plain(self.run.baseline)}  {plain(self.key.request)}"
        if self.key.round or self.key.sample:
            where += f" r{self.key.round} s{self.key.sample}"
        if finding is None:
            self.set_text("#title", f"no finding  {where}")
            cls = subject.candidate.cls if subject and subject.candidate else None
            self.set_text("#why", f"This completion is {plain(cls or 'not judged')}.")
            return
        place = "" if finding.position is None else f"  token {finding.position}+{finding.length or 0}"
        self.set_text(
            "#title", f"{finding.state.upper()}  {plain(finding.severity)} {plain(finding.kind)}  {where}{place}"
        )
        why = plain(finding.evidence.get("why", ""))
        if finding.gap is not None:
            why += f"{'. ' if why else ''}Gap {nats(finding.gap)} nats, tolerance {nats(self.tolerance)}."
        others = len(subject.others) if subject else 0
        if others > 1:
            why += f" {others} findings in this completion (f next)."
        if subject is not None and subject.decoder.problem:
            why += f" Note: {plain(subject.decoder.problem)}."
        self.set_text("#why", why)

    def on_token_view_moved(self) -> None:
        _, right = self.tokens.position
        if right >= 0:
            self.query_one(GapStrip).move(right)
        if self.panel == "logprobs":
            self._show_panel()

    def on_gap_strip_jumped(self, event: GapStrip.Jumped) -> None:
        if self.alignment is not None:
            self.tokens.go(self.alignment.row_of(event.position), middle=True)

    def _show_panel(self) -> None:
        subject = self.subject
        if subject is None:
            return
        if self.panel == "logprobs":
            text = panels.logprobs(subject, *self.tokens.position, self.size.width - 3)
        elif self.panel == "donor":
            text = panels.donor(subject)
        elif self.panel == "prompt":
            text = panels.prompt(subject)
        elif self.panel == "history":
            text = self._history()
        else:
            text = panels.evidence(self.finding)
        self.set_text("#panel-text", text)
        number = PANELS.index(self.panel) + 1
        self.query_one("#panel").border_title = f"{number} {self.panel} (tab: next)"

    def _history(self) -> Text:
        store, finding = self.store, self.finding
        if store is None or finding is None:
            return Text("No finding here.")
        triage = self.parity.attempt(lambda: store.triage(finding.fingerprint), Triage())
        nothing: list[TriageChange] = []
        changes = self.parity.attempt(lambda: store.triage_history(finding.fingerprint), nothing)
        return panels.history(triage, changes, finding.fingerprint)

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
        if self.alignment is not None and len(starts := self.alignment.starts()):
            self.tokens.go(int(starts[0]), middle=True)

    def action_difference(self, step: int) -> None:
        if self.alignment is None:
            return
        starts = self.alignment.starts()
        beyond = starts[starts > self.tokens.cursor] if step > 0 else starts[starts < self.tokens.cursor][::-1]
        if len(beyond):
            self.tokens.go(int(beyond[0]), middle=True)

    def action_mode(self) -> None:
        self.tokens.toggle()

    def action_panel(self, name: str) -> None:
        self.panel = name
        self.query_one("#panel", VerticalScroll).scroll_home(animate=False)
        self._show_panel()

    def action_next_panel(self) -> None:
        self.action_panel(PANELS[(PANELS.index(self.panel) + 1) % len(PANELS)])

    # ------------------------------------------------------------------ going elsewhere

    def visit(self, arm: str, key: Key, finding: FindingRow | None) -> None:
        self.arm, self.key, self.finding = arm, key, finding
        if finding is not None and finding.kind in ("row_leak", "repetition"):
            self.panel = "donor"
        elif self.panel == "donor":
            self.panel = "logprobs"
        self.load()

    def action_step(self, by: int) -> None:
        row = self.list_step(by) if self.list_step else None
        if row is None:
            self.notify("no further finding in the list", markup=False)
        else:
            self.visit(row.arm, row.key, row)

    def action_within(self, by: int) -> None:
        others = list(self.subject.others) if self.subject else []
        if not others:
            self.notify("no finding in this completion", markup=False)
            return
        ids = [row.id for row in others]
        at = ids.index(self.finding.id) + by if self.finding and self.finding.id in ids else 0
        row = others[at % len(others)]
        self.visit(row.arm, row.key, row)

    def action_other_arm(self) -> None:
        if self.subject is None:
            return
        names = [name for name, arm in self.subject.arms.items() if not arm.is_baseline]
        if len(names) < 2:
            self.notify("the run has no other arm to compare", markup=False)
            return
        self._visit_first(names[(names.index(self.arm) + 1) % len(names)], self.key)

    def action_neighbour(self, step: int) -> None:
        store = self.store
        if store is None:
            return
        key = self.parity.attempt(lambda: store.neighbour(self.run.id, self.arm, self.key, step), None)
        if key is None:
            self.notify("no further row in the batch", markup=False)
        else:
            self._visit_first(self.arm, key)

    def _visit_first(self, arm: str, key: Key) -> None:
        """The worst finding of a completion, or the completion without one."""
        store = self.store
        if store is None:
            return
        nothing: list[FindingRow] = []
        found = self.parity.attempt(lambda: store.findings_of_completion(self.run.id, arm, key), nothing)
        worst = sorted(found, key=lambda row: (row.severity != "corrupt", row.id))
        self.visit(arm, key, worst[0] if worst else None)

    # ------------------------------------------------------------------ triage

    def targets(self) -> Sequence[int]:
        return [] if self.finding is None else [self.finding.id]

    def current(self) -> FindingRow | None:
        return self.finding


def _covered(findings: Sequence[FindingRow]) -> frozenset[int]:
    covered: set[int] = set()
    for row in findings:
        if row.position is not None:
            covered.update(range(row.position, row.position + max(1, row.length or 1)))
    return frozenset(covered)


def _copies(finding: FindingRow | None, length: int) -> frozenset[int]:
    """Where each copy of a repetition's pattern begins."""
    period = finding.evidence.get("period") if finding else None
    if finding is None or finding.position is None or not isinstance(period, int) or period < 1:
        return frozenset()
    start = finding.evidence.get("source_start")
    first = start if isinstance(start, int) and start >= 0 else finding.position
    return frozenset(range(first, min(length, finding.position + (finding.length or 0)), period))
