"""What the three screens have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.screen import Screen
from textual.widgets import Static

from parity.messages import Message
from parity.tui.bindings import MOVE
from parity.tui.command import bindings

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel

    from parity.store.browse import Browser
    from parity.tui.app import ParityApp


class ParityScreen(Screen[None]):
    """A screen over the store. `group` names its keys in the registry."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(MOVE)]
    group: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, Text] = {}

    def _compositor_refresh(self) -> None:
        """A screen that is about to be drawn whole is not drawn in parts before: over ssh that is twice the bytes."""
        if not self._repaint_required and not self.parity.holding:
            super()._compositor_refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Asked by Textual for each key: one that can do nothing now is none, and the line of keys leaves it out."""
        return self.possible(action) if self.is_mounted else True

    def possible(self, action: str) -> bool:
        """Is there anything on the screen that this could be done with?"""
        return True

    @property
    def parity(self) -> ParityApp:
        from parity.tui.app import ParityApp

        app = self.app
        assert isinstance(app, ParityApp)
        return app

    @property
    def store(self) -> Browser | None:
        return self.parity.store

    @property
    def reading(self) -> bool:
        """Is what the keys are for not there yet? They wait for it."""
        return False

    def reload(self) -> None:
        """Read again what is shown."""

    def tell(self, said: Message, *, severity: SeverityLevel = "information") -> None:
        """A word in the corner, for a moment."""
        self.parity.tell(said, severity=severity)

    def set_shown(self, selector: str, shown: bool) -> None:
        """Show or hide a widget; asking for what is so already would lay out the screen again."""
        widget = self.query_one(selector)
        if widget.display != shown:
            widget.display = shown

    def set_text(self, selector: str, text: str | Text, *, layout: bool = True) -> None:
        """Show text that is never taken for markup; what stands there already is not drawn again.

        `layout`: it may take another number of lines.
        """
        said = Text(text) if isinstance(text, str) else text
        if self._shown.get(selector) != said:
            self._shown[selector] = said
            self.query_one(selector, Static).update(said, layout=layout)
