"""All keys."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from parity.language import render
from parity.messages import Message, message
from parity.tui.bindings import APP, GROUPS, MOVE
from parity.tui.command import Command
from parity.tui.screens.dialogs import Reading


class Help(Reading):
    """All keys, from the registry that binds them."""

    def __init__(self, group: str | None) -> None:
        body = Text()
        if group in GROUPS:
            title, commands = GROUPS[group]
            _keys(body, title, commands)
        _keys(body, message("tui.group.move", "Moving"), MOVE)
        _keys(body, message("tui.group.app", "Everywhere"), APP)
        for name, (title, commands) in GROUPS.items():
            if name != group:
                _keys(body, title, commands)
        super().__init__(message("tui.keys", "Keys"), body)


def _keys(body: Text, title: Message, commands: Sequence[Command]) -> None:
    body.append(f"{render(title)}\n", style="bold underline")
    for command in commands:
        body.append(f"  {command.shown_keys:<16}", style="bold")
        body.append(f"{render(command.title)}\n")
