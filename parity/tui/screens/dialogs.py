"""Small windows: confirm, read, write a path, choose a filter, triage, help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Select, Static
from textual.widgets.option_list import Option

from parity.language import render
from parity.messages import Message, message
from parity.store import Triage, TriageChange, TriageState
from parity.tui.bindings import APP, GROUPS, MOVE, Command
from parity.tui.format import fit, moment, plain
from parity.tui.names import FIELDS, named, state_name, value_name
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

    def __init__(self, heading: Message, body: str | Text) -> None:
        super().__init__()
        self.heading = heading
        self.body = body if isinstance(body, Text) else Text(plain(body, keep="\n"))

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
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


def history_text(changes: Sequence[TriageChange]) -> Text:
    """The history of a finding's triage, the newest change first."""
    text = Text()
    for change in changes:
        before, after = change.before or Triage(), change.after or Triage()
        text.append(f"{moment(change.at)}  {state_name(before.state)} → {state_name(after.state)}")
        if change.undoes is not None:
            text.append("  " + render(message("tui.undone", "(undone)")))
        for name, value in (
            ("label", after.label),
            ("note", after.note),
            ("link", after.link),
            ("original", after.duplicate_of),
        ):
            if value:
                text.append("  " + named(FIELDS[name], value))
        if change.author:
            text.append("  " + render(message("tui.by_author", "by {author}", author=plain(change.author))))
        text.append("\n")
    return text


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
