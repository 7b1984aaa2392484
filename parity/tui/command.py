"""Something a person can do, and the keys for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from textual.binding import Binding

from parity.messages import Message


@dataclass(frozen=True, slots=True)
class Command:
    """Something a person can do. `keys` are Textual key names, the first is the one shown."""

    keys: str
    action: str
    title: Message
    footer: Message | None = None
    """Short label at the bottom of the screen; None: not shown there."""
    moves: bool = False
    """Moves the cursor: pointless in the command palette."""

    @property
    def shown_keys(self) -> str:
        return " ".join(_NAMES.get(key, key) for key in self.keys.split(","))

    @property
    def first_key(self) -> str:
        key = self.keys.split(",")[0]
        return _NAMES.get(key, key)


_NAMES: Final = {
    "question_mark": "?",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "space": "Space",
    "enter": "Enter",
    "escape": "Esc",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "home": "Home",
    "end": "End",
    "delete": "Del",
    "less_than_sign": "<",
    "full_stop": ".",
    "equals_sign": "=",
    "plus": "+",
    "colon": ":",
    "minus": "-",
    "tab": "Tab",
    "greater_than_sign": ">",
}


def bindings(commands: Sequence[Command]) -> list[Binding]:
    """The commands as Textual bindings."""
    return [
        Binding(
            command.keys,
            command.action,
            str(command.title),  # not shown: help, palette and the line of keys say it in words of the language
            show=False,
            key_display=command.first_key,
        )
        for command in commands
    ]
