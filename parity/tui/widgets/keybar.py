"""The line of keys at the bottom: as many as fit, and always the one that shows all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from parity.language import render
from parity.tui.command import Command


class KeyBar(Widget):
    """`commands` in order of worth, those that can do something; `last` are shown whatever the width. A click does what
    the key does."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"keybar--key", "keybar--label"}

    class Pressed(Message):
        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, commands: Sequence[Command], last: Sequence[Command]) -> None:
        super().__init__()
        self.commands = [command for command in commands if command.footer is not None]
        self.last = [command for command in last if command.footer is not None]
        self._drawn: list[Command] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self._look())

    def _look(self) -> None:
        if [command for _, _, command in self._placed()] != self._drawn:
            self.refresh()

    def _placed(self) -> list[tuple[int, int, Command]]:
        """(first column, end, command) of what fits."""

        def width(command: Command) -> int:
            return cell_len(command.first_key) + cell_len(label_of(command)) + 3

        room = self.size.width - sum(map(width, self.last))
        shown: list[Command] = []
        for command in self.commands:
            if not self.screen.check_action(command.action.split("(")[0], ()):
                continue
            if width(command) > room:
                break
            room -= width(command)
            shown.append(command)
        placed, at = [], 0
        for command in [*shown, *self.last]:
            placed.append((at, at + width(command), command))
            at += width(command)
        return placed

    def render(self) -> Text:
        key, label = (self.get_component_rich_style(f"keybar--{name}") for name in ("key", "label"))
        text = Text(no_wrap=True, overflow="crop", style=label)
        self._drawn = [command for _, _, command in self._placed()]
        for command in self._drawn:
            text.append(f" {command.first_key}", style=key)
            text.append(f" {label_of(command)} ")
        return text

    def on_click(self, event: events.Click) -> None:
        for first, end, command in self._placed():
            if first <= event.x < end:
                self.post_message(self.Pressed(command.action))


def label_of(command: Command) -> str:
    return "" if command.footer is None else render(command.footer)
