"""Small windows: confirm, read, write a path, choose a filter, pick one of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from parity.language import render
from parity.messages import Message, message
from parity.tui.format import fit, plain
from parity.tui.names import FIELDS, value_name
from parity.tui.outside import FollowUp

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A window that Esc closes without an answer."""

    BINDINGS: ClassVar[list[Any]] = [Binding("escape", "dismiss", "Close", show=False)]


def heading(said: Message) -> Static:
    """The first line of a window."""
    return Static(Text(plain(render(said))), classes="heading")


def keys(said: Message) -> Static:
    """The last line of a window: what each key does in it."""
    return Static(Text(render(said)), classes="keys")


class Confirm(Dialog[bool]):
    """A question that only `y` answers with yes."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n,q", "answer(False)", "No", show=False),
    ]

    def __init__(self, question: Message, detail: Message | None = None) -> None:
        super().__init__()
        self.question, self.detail = question, detail

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield heading(self.question)
            if self.detail is not None:
                yield Static(Text(plain(render(self.detail), keep="\n")))
            yield keys(message("tui.keys.confirm", "y yes   n no"))

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Reading(Dialog[None]):
    """Text to read, and to copy by hand where the terminal does not take a copy."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("q,enter", "dismiss", "Close", show=False),
        Binding("j,down", "scroll(1)", "Down", show=False),
        Binding("k,up", "scroll(-1)", "Up", show=False),
        Binding("ctrl+d,ctrl+f", "scroll(10)", "Page down", show=False),
        Binding("ctrl+u,ctrl+b", "scroll(-10)", "Page up", show=False),
        Binding("g", "scroll(-100000)", "First", show=False),
        Binding("G", "scroll(100000)", "Last", show=False),
    ]

    def __init__(self, heading: Message, body: str | Text, *, wide: bool = False) -> None:
        super().__init__()
        self.heading, self.wide = heading, wide
        self.body = body if isinstance(body, Text) else Text(plain(body, keep="\n"))

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide" if self.wide else "dialog"):
            yield heading(self.heading)
            with VerticalScroll():
                yield Static(self.body)
            yield keys(message("tui.keys.reading", "Esc closes"))

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


class AskText(Dialog[str]):
    """One line of text, such as a path."""

    def __init__(self, heading: Message, value: str = "", detail: str = "") -> None:
        super().__init__()
        self.heading, self.value, self.detail = heading, value, detail

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield heading(self.heading)
            if self.detail:
                yield Static(Text(plain(self.detail)))
            yield Input(self.value, id="answer")
            yield keys(message("tui.keys.ask", "Enter accepts   Esc cancels"))

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())


class Listing(Dialog[Result]):
    """A window with a list; vim's keys beside the arrows."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("j", "cursor(1)", "Down", show=False),
        Binding("k", "cursor(-1)", "Up", show=False),
    ]

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def action_cursor(self, step: int) -> None:
        options = self.query_one(OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()


class ChooseFilter(Listing[frozenset[tuple[str, str]]]):
    """Values to filter by; a group in which nothing is chosen does not restrict."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("enter", "apply", "Apply", show=False, priority=True),
        Binding("space", "choose", "Choose", show=False, priority=True),
        Binding("c", "clear", "Clear", show=False),
    ]

    def __init__(self, options: Sequence[tuple[str, str, int]], chosen: frozenset[tuple[str, str]]) -> None:
        """`options`: (group, value, findings that have it)."""
        super().__init__()
        self.options, self.chosen = options, chosen

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield heading(message("tui.show_only", "Show only"))
            yield OptionList(*(Option(self._line(at)) for at in range(len(self.options))))
            yield keys(message("tui.keys.filter", "Space chooses   Enter applies   c clears   Esc cancels"))

    def _line(self, at: int) -> Text:
        group, value, count = self.options[at]
        chosen = (group, value) in self.chosen
        sign = "[x]" if chosen else "[ ]"
        line = f"{sign} {fit(render(FIELDS[group]), 9)}{fit(value_name(group, value), 34, middle=True)}{count:>10,}"
        return Text(line, style="bold" if chosen else "")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._toggle(event.option_index)

    def action_choose(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None:
            self._toggle(at)

    def _toggle(self, at: int) -> None:
        self.chosen ^= {self.options[at][:2]}
        self.query_one(OptionList).replace_option_prompt_at_index(at, self._line(at))

    def action_clear(self) -> None:
        self.chosen = frozenset()
        for at in range(len(self.options)):
            self.query_one(OptionList).replace_option_prompt_at_index(at, self._line(at))

    def action_apply(self) -> None:
        self.dismiss(self.chosen)


class Choose(Listing[tuple[str, FollowUp]]):
    """Commands to go on with: run one here, or copy it."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("y", "copy", "Copy", show=False),
        Binding("q", "dismiss", "Close", show=False),
    ]

    def __init__(self, heading: Message, choices: Sequence[FollowUp]) -> None:
        super().__init__()
        self.heading, self.choices = heading, choices

    def compose(self) -> ComposeResult:
        options = []
        for choice in self.choices:
            text = Text(plain(render(choice.title)), style="bold")
            if choice.cannot is not None:
                cannot = message("tui.cannot", "not here: {why}", why=choice.cannot)
                text.append(f"\n{plain(render(cannot))}", style="not bold")
            else:
                if choice.detail is not None:
                    text.append(f"\n{plain(render(choice.detail))}", style="not bold")
                text.append(f"\n{plain(choice.line)}", style="not bold dim")
            options.append(Option(text, disabled=choice.cannot is not None))
        with Vertical(classes="dialog"):
            yield heading(self.heading)
            yield OptionList(*options)
            yield keys(message("tui.keys.choose", "Enter starts it in this terminal   y copies it   Esc cancels"))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(("run", self.choices[event.option_index]))

    def action_copy(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None and self.choices[at].cannot is None:
            self.dismiss(("copy", self.choices[at]))


class Pick(Listing[int]):
    """One of several texts, each by its name; the answer is its place."""

    BINDINGS: ClassVar[list[Any]] = [Binding("q", "dismiss", "Close", show=False)]

    def __init__(self, heading: Message, choices: Sequence[tuple[Message, str]]) -> None:
        super().__init__()
        self.heading, self.choices = heading, choices

    def compose(self) -> ComposeResult:
        options = []
        for name, text in self.choices:
            line = Text(plain(render(name)), style="bold")
            line.append("\n" + fit(plain(text), 70), style="not bold dim")
            options.append(Option(line))
        with Vertical(classes="dialog"):
            yield heading(self.heading)
            yield OptionList(*options)
            yield keys(message("tui.keys.pick", "Enter chooses   Esc cancels"))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_index)
