"""All keys, to scroll and to search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, Static

from parity.language import render
from parity.messages import Message, message
from parity.tui.bindings import APP, GROUPS, MOVE
from parity.tui.command import Command
from parity.tui.screens.dialogs import Reading, heading, keys

Section = tuple[Message, Sequence[Command]]


class Help(Reading):
    """From the registry that binds them, those of the screen first; `/` leaves those that have a text."""

    BINDINGS: ClassVar[list[Any]] = [Binding("slash", "find", "Find", show=False)]

    def __init__(self, group: str | None) -> None:
        self.sections = list(_sections(group))
        super().__init__(message("tui.keys", "Keys"), _listed(self.sections, ""))

    def compose(self) -> ComposeResult:
        hint = message("tui.find_key", "text in a key or what it does; Enter goes back to the list")
        with Vertical(classes="dialog help"):
            yield heading(self.heading)
            yield Input(placeholder=render(hint), id="find", disabled=True)
            with VerticalScroll():
                yield Static(self.body, id="keys")
            yield keys(message("tui.keys.help", "/ searches   j k g G scroll   Esc closes"))

    def action_find(self) -> None:
        find = self.query_one("#find", Input)
        find.disabled = False
        find.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#keys", Static).update(_listed(self.sections, event.value.lower()))
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        event.input.disabled = True
        self.query_one(VerticalScroll).focus()


def _sections(group: str | None) -> Iterator[Section]:
    if group in GROUPS:
        yield GROUPS[group]
    yield message("tui.group.move", "Moving"), MOVE
    yield message("tui.group.app", "Everywhere"), APP
    yield from (section for name, section in GROUPS.items() if name != group)


def _listed(sections: Sequence[Section], text: str) -> Text:
    body = Text()
    for title, commands in sections:
        found = [one for one in commands if text in f"{one.shown_keys} {render(one.title)}".lower()]
        if found:
            body.append(f"{render(title)}\n", style="bold underline")
        for command in found:
            body.append(f"  {command.shown_keys:<16}", style="bold")
            body.append(f"{render(command.title)}\n")
    if not body:
        body.append(render(message("tui.no_key", "No key does that.")))
    return body
