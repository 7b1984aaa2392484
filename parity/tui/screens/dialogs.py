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

from parity.store import Triage, TriageChange, TriageState
from parity.tui.bindings import APP, GROUPS, MOVE, Command
from parity.tui.format import fit, moment, plain
from parity.tui.outside import FollowUp

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A window that Esc closes without an answer."""

    BINDINGS: ClassVar[list[Any]] = [Binding("escape", "dismiss", "Close", show=False)]


class Confirm(Dialog[bool]):
    """A question that only `y` answers with yes."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n,q", "answer(False)", "No", show=False),
    ]

    def __init__(self, question: str, detail: str = "") -> None:
        super().__init__()
        self.question, self.detail = question, detail

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(plain(self.question)), classes="heading")
            if self.detail:
                yield Static(Text(plain(self.detail, keep="\n")))
            yield Static(Text("y yes   n no"), classes="keys")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Reading(Dialog[None]):
    """Text to read, and to copy by hand where the terminal does not take a copy."""

    BINDINGS: ClassVar[list[Any]] = [Binding("q,enter", "dismiss", "Close", show=False)]

    def __init__(self, heading: str, body: str | Text) -> None:
        super().__init__()
        self.heading = heading
        self.body = body if isinstance(body, Text) else Text(plain(body, keep="\n"))

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(plain(self.heading)), classes="heading")
            with VerticalScroll():
                yield Static(self.body)
            yield Static(Text("Esc closes"), classes="keys")


class AskText(Dialog[str]):
    """One line of text, such as a path."""

    def __init__(self, heading: str, value: str = "", detail: str = "") -> None:
        super().__init__()
        self.heading, self.value, self.detail = heading, value, detail

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(plain(self.heading)), classes="heading")
            if self.detail:
                yield Static(Text(plain(self.detail)))
            yield Input(self.value, id="answer")
            yield Static(Text("Enter accepts   Esc cancels"), classes="keys")

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
            yield Static(Text("Show only"), classes="heading")
            yield OptionList(*(Option(self._line(at)) for at in range(len(self.options))))
            yield Static(Text("Space chooses   Enter applies   c clears   Esc cancels"), classes="keys")

    def _line(self, at: int) -> Text:
        group, value, count = self.options[at]
        chosen = (group, value) in self.chosen
        sign = "[x]" if chosen else "[ ]"
        line = f"{sign} {group:<9}{fit(plain(value), 34, middle=True)}{count:>10,}"
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
        self, heading: str, said: Triage | None, original: str | None, history: Sequence[TriageChange]
    ) -> None:
        super().__init__()
        self.heading, self.said, self.original, self.history = heading, said, original, history

    def compose(self) -> ComposeResult:
        said = self.said or Triage()
        states = [(state.value, state) for state in TriageState]
        fields = (
            ("label", "label", said.label, "a word or two to find it by"),
            ("note", "note", said.note, "why"),
            ("link", "link", said.link, "the issue it was reported in"),
            ("original", "duplicate of", said.duplicate_of or self.original or "", "fingerprint"),
        )
        with Vertical(classes="dialog"):
            yield Static(Text(plain(self.heading)), classes="heading")
            with Horizontal(classes="field"):
                yield Static("state", markup=False)
                if self.said is None:
                    yield Select(states, prompt="as it is", id="state", compact=True)
                else:
                    yield Select(states, value=said.state, allow_blank=False, id="state", compact=True)
            for name, title, value, hint in fields:
                with Horizontal(classes="field"):
                    yield Static(title, markup=False)
                    yield Input(plain(value), placeholder=hint, id=name)
            if self.history:
                yield Static("history", markup=False, classes="heading")
                with VerticalScroll():
                    yield Static(history_text(self.history[:20]))
            yield Static(Text("Enter or ctrl+s saves   Tab next field   Esc cancels"), classes="keys")

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
                self.notify("a duplicate needs the fingerprint of its original", severity="error", markup=False)
                return
            answer.update(state=state, duplicate_of=original if state is TriageState.DUPLICATE else None)
        self.dismiss(answer)


class Choose(Listing[tuple[str, FollowUp]]):
    """Commands to go on with: run one here, or copy it."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("y", "copy", "Copy", show=False),
        Binding("q", "dismiss", "Close", show=False),
    ]

    def __init__(self, heading: str, choices: Sequence[FollowUp]) -> None:
        super().__init__()
        self.heading, self.choices = heading, choices

    def compose(self) -> ComposeResult:
        options = []
        for choice in self.choices:
            text = Text(plain(choice.title), style="bold")
            if choice.detail:
                text.append(f"\n{plain(choice.detail)}", style="not bold")
            text.append(f"\n{plain(choice.line)}", style="not bold dim")
            options.append(Option(text))
        with Vertical(classes="dialog"):
            yield Static(Text(plain(self.heading)), classes="heading")
            yield OptionList(*options)
            yield Static(Text("Enter starts it in this terminal   y copies it   Esc cancels"), classes="keys")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(("run", self.choices[event.option_index]))

    def action_copy(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None:
            self.dismiss(("copy", self.choices[at]))


def history_text(changes: Sequence[TriageChange]) -> Text:
    """The history of a finding's triage, the newest change first."""
    text = Text()
    for change in changes:
        before = change.before.state.value if change.before else "new"
        after = change.after or Triage()
        text.append(f"{moment(change.at)}  {before} → {after.state.value}")
        if change.undoes is not None:
            text.append("  (undone)")
        for name, value in (
            ("label", after.label),
            ("note", after.note),
            ("link", after.link),
            ("of", after.duplicate_of),
        ):
            if value:
                text.append(f"  {name}: {plain(value)}")
        text.append("\n")
    return text


class Help(Reading):
    """All keys, from the registry that binds them."""

    def __init__(self, group: str | None) -> None:
        body = Text()
        if group in GROUPS:
            title, commands = GROUPS[group]
            _keys(body, title, commands)
        _keys(body, "Moving", MOVE)
        _keys(body, "Everywhere", APP)
        for name, (title, commands) in GROUPS.items():
            if name != group:
                _keys(body, title, commands)
        super().__init__("Keys", body)


def _keys(body: Text, title: str, commands: Sequence[Command]) -> None:
    body.append(f"{title}\n", style="bold underline")
    for command in commands:
        body.append(f"  {command.shown_keys:<16}", style="bold")
        body.append(f"{command.title}\n")
