"""The window that makes findings a known bug, and a rule of it for later runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.strip import Strip
from textual.widgets import Input, SelectionList, Static
from textual.widgets.selection_list import Selection

from parity.language import render
from parity.messages import Message, message
from parity.store import Rule
from parity.tui.format import plain
from parity.tui.screens.dialogs import Dialog, heading, keys
from parity.view.known import Offer, rule_of

LATER = -1
"""The value of the line that makes it a rule."""


class Choices(SelectionList[int]):
    """Lines to choose. Textual draws an X in each and tells those that are chosen by its colour alone."""

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        at = self.scroll_offset.y + y
        if at >= self.option_count or self.get_option_at_index(at).value in self.selected:
            return strip
        left, inner, *rest = strip
        return Strip([left, Segment(" " * len(inner.text), inner.style), *rest])


class KnownBug(Dialog[tuple[str, Rule | None]]):
    """The link of the issue, and whether later findings like it are known too. Answers (link, rule or None)."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("ctrl+s", "save", "Save", show=False, priority=True),
        Binding("enter", "save", "Save", show=False, priority=True),
        Binding("j", "cursor(1)", "Down", show=False),
        Binding("k", "cursor(-1)", "Up", show=False),
    ]

    def __init__(self, said: Message, link: str, kind: str, offers: Sequence[Offer]) -> None:
        super().__init__()
        self.said, self.link, self.kind, self.offers = said, link, kind, offers

    def compose(self) -> ComposeResult:
        later = message("tui.known.later", "in all runs, {kind} like it is known too, where:", kind=self.kind)
        with Vertical(classes="dialog"):
            yield heading(self.said)
            yield Static(Text(render(message("tui.known_link", "The issue in which it is on file"))))
            yield Input(plain(self.link), id="link")
            yield Choices(
                Selection(Text(render(later), "bold"), LATER, False, id="later"),
                *(Selection(Text(f"  {plain(render(one.said))}"), at, one.usual) for at, one in enumerate(self.offers)),
                id="parts",
            )
            yield keys(message("tui.keys.known", "Enter saves   Tab to the rule, Space chooses   Esc cancels"))

    def on_mount(self) -> None:
        self.query_one("#link", Input).focus()

    def action_cursor(self, step: int) -> None:
        parts = self.query_one("#parts", Choices)
        if step > 0:
            parts.action_cursor_down()
        else:
            parts.action_cursor_up()

    def action_save(self) -> None:
        link = self.query_one("#link", Input).value.strip()
        chosen = set(self.query_one("#parts", Choices).selected)
        rule = None
        if LATER in chosen:
            rule = rule_of(self.kind, link, [one for at, one in enumerate(self.offers) if at in chosen])
        self.dismiss((link, rule))
