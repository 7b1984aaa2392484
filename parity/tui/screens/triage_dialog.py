"""The window for state, label, note and link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Select, Static

from parity.language import render
from parity.messages import Message, message
from parity.store import Triage, TriageChange, TriageState
from parity.tui.format import plain
from parity.tui.names import FIELDS, state_name
from parity.tui.screens.dialogs import Dialog, heading, keys
from parity.tui.screens.history import history_text


class EditTriage(Dialog[Mapping[str, Any]]):
    """State, label, note and link of a finding, or of several: `said` is None then, and only what is filled in
    is answered. The answer has the names of `Triage`'s fields."""

    BINDINGS: ClassVar[list[Any]] = [Binding("ctrl+s", "save", "Save", show=False, priority=True)]

    def __init__(
        self, heading: Message, said: Triage | None, original: str | None, history: Sequence[TriageChange]
    ) -> None:
        super().__init__()
        self.heading, self.said, self.original, self.history = heading, said, original, history

    def compose(self) -> ComposeResult:
        said = self.said or Triage()
        states = [(state_name(state), state) for state in TriageState]
        fields = (
            ("label", said.label, message("tui.hint.label", "a word or two to find it by")),
            ("note", said.note, message("tui.hint.note", "why")),
            ("link", said.link, message("tui.hint.link", "the issue it was reported in")),
            ("original", said.duplicate_of or self.original or "", message("tui.hint.original", "fingerprint")),
        )
        with Vertical(classes="dialog"):
            yield heading(self.heading)
            with Horizontal(classes="field"):
                yield Static(render(FIELDS["state"]), markup=False)
                if self.said is None:
                    as_it_is = render(message("tui.as_it_is", "as it is"))
                    yield Select(states, prompt=as_it_is, id="state", compact=True)
                else:
                    yield Select(states, value=said.state, allow_blank=False, id="state", compact=True)
            for name, value, hint in fields:
                with Horizontal(classes="field"):
                    yield Static(render(FIELDS[name]), markup=False)
                    yield Input(plain(value), placeholder=render(hint), id=name)
            if self.history:
                yield heading(message("tui.history", "history"))
                with VerticalScroll():
                    yield Static(history_text(self.history[:20]))
            yield keys(message("tui.keys.triage", "Enter or ctrl+s saves   Tab next field   Esc cancels"))

    def on_mount(self) -> None:
        self.query_one("#label", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_save()

    def action_save(self) -> None:
        state = self.query_one("#state", Select).value
        original = self.query_one("#original", Input).value.strip()
        answer: dict[str, Any] = {}
        for name in ("label", "note", "link"):
            value = self.query_one(f"#{name}", Input).value.strip()
            if value or self.said is not None:
                answer[name] = value
        if isinstance(state, TriageState):
            if state is TriageState.DUPLICATE and not original:
                said = message("tui.needs_original", "a duplicate needs the fingerprint of its original")
                self.notify(render(said), severity="error", markup=False)
                return
            answer.update(state=state, duplicate_of=original if state is TriageState.DUPLICATE else None)
        self.dismiss(answer)
