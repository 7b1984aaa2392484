"""Every key of the interface, once: the key bindings, the help screen and the command palette read this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from textual.binding import Binding


@dataclass(frozen=True, slots=True)
class Command:
    """Something a person can do. `keys` are Textual key names, the first is the one shown."""

    keys: str
    action: str
    title: str
    footer: str = ""
    """Short label at the bottom of the screen; empty: not shown there."""
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
    "tab": "Tab",
    "greater_than_sign": ">",
}

APP: Final = (
    Command("question_mark,f1", "help", "Show all keys", "Help"),
    Command("q", "back", "Back, or quit from the list of runs", "Back"),
    Command("ctrl+p", "command_palette", "Search all commands", moves=True),
    Command("ctrl+t", "toggle_theme", "Switch between the light and the dark theme"),
    Command("ctrl+l", "reload", "Read the database again"),
    Command("ctrl+q", "quit", "Quit"),
)

MOVE: Final = (
    Command("down,j", "move(1)", "Down", moves=True),
    Command("up,k", "move(-1)", "Up", moves=True),
    Command("pagedown,ctrl+d,ctrl+f", "page(1)", "Page down", moves=True),
    Command("pageup,ctrl+u,ctrl+b", "page(-1)", "Page up", moves=True),
    Command("home,g", "first", "First", moves=True),
    Command("end,G", "last", "Last", moves=True),
)

RUNS: Final = (
    Command("enter,l,right", "open", "Show the findings of the run", "Findings"),
    Command("y", "copy_command", "Copy the command that made the run", "Copy command"),
    Command("r", "start", "Start it again, or finish it where it was interrupted", "Start"),
    Command("D,delete", "delete", "Delete the run from the database", "Delete"),
)

TRIAGE: Final = (
    Command("c", "mark('confirmed')", "Mark as confirmed", "Confirm"),
    Command("b", "mark('benign')", "Mark as benign", "Benign"),
    Command("t", "triage", "Triage: state, label, note, link, history", "Triage"),
    Command("u", "undo", "Undo the last change of triage", "Undo"),
    Command("w", "report", "Write the bug report", "Report"),
    Command("r", "start", "Start a reduce, a bisect, the run again", "Start"),
    Command("R", "mark('reported')", "Mark as reported"),
    Command("X", "mark('fixed')", "Mark as fixed"),
    Command("N", "mark('new')", "Mark as new again"),
    Command("o", "original", "Remember this finding as the original of duplicates"),
    Command("d", "duplicate", "Mark as a duplicate of the remembered original"),
    Command("y", "copy_command", "Copy the command that reproduces the run", "Copy command"),
    Command("e", "export", "Export the selection as JSON", "Export"),
)

FINDINGS: Final = (
    Command("enter,l,right", "open", "Look at the finding", "Open"),
    Command("z", "near_ties", "Show or hide near-ties", "Near-ties"),
    Command("f", "filter", "Filter by kind, severity, arm and state", "Filter"),
    Command("slash", "search", "Filter by text in request, prompt, label and note", "Search"),
    Command("s", "sort", "Sort by the next column", "Sort"),
    Command("space", "select", "Select or unselect, and go on", "Select"),
    Command("S", "reverse", "Reverse the order"),
    Command("v", "select_range", "Select from the last selected one to here"),
    Command("A", "select_all", "Select everything that passes the filter"),
    Command("escape", "clear", "Clear the selection, then the text, then the filter"),
    *TRIAGE,
)

FINDING: Final = (
    Command("down,j", "down(1)", "One line down", moves=True),
    Command("up,k", "down(-1)", "One line up", moves=True),
    Command("left,h", "move(-1)", "One token back", moves=True),
    Command("right,l", "move(1)", "One token on", moves=True),
    Command("n", "step(1)", "Next finding of the list", "Next"),
    Command("p", "step(-1)", "Previous finding of the list", "Previous"),
    Command("f", "within(1)", "Next finding in this completion"),
    Command("F", "within(-1)", "Previous finding in this completion"),
    Command("a", "other_arm", "Same request in the next arm", "Arm"),
    Command("right_square_bracket", "neighbour(1)", "Next row of the batch"),
    Command("left_square_bracket", "neighbour(-1)", "Previous row of the batch"),
    Command("full_stop", "first_difference", "Go to the first token that differs"),
    Command("greater_than_sign", "difference(1)", "Next stretch that differs"),
    Command("less_than_sign", "difference(-1)", "Previous stretch that differs"),
    Command("m", "mode", "Switch between tokens and plain text", "Text"),
    Command("1", "panel('logprobs')", "Top tokens at the cursor"),
    Command("2", "panel('origin')", "Where the tokens come from: donor, period, what was lost"),
    Command("3", "panel('prompt')", "Prompt, sampling, arms, accepted drafts"),
    Command("4", "panel('triage')", "Triage and its history"),
    Command("5", "panel('evidence')", "Evidence as JSON"),
    Command("tab", "next_panel", "Next panel", "Panel"),
    Command("J", "scroll_panel(1)", "Scroll the panel down"),
    Command("K", "scroll_panel(-1)", "Scroll the panel up"),
    *TRIAGE,
)

GROUPS: Final = {
    "runs": ("Runs", RUNS),
    "findings": ("Findings", FINDINGS),
    "finding": ("One finding", FINDING),
}


def bindings(commands: Sequence[Command]) -> list[Binding]:
    """The commands as Textual bindings."""
    return [
        Binding(
            command.keys,
            command.action,
            command.title,
            show=False,
            key_display=command.first_key,
        )
        for command in commands
    ]
