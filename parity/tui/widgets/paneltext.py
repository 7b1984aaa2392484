"""Text with the styles of the theme in use."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from rich.style import Style
from rich.text import Text
from textual.visual import VisualType
from textual.widgets import Static


class Palette(NamedTuple):
    """What the styles are for; everything that they say is also said in words or signs."""

    title: Style
    bar: Style
    chosen: Style
    high: Style
    dim: Style
    span: Style


class PanelText(Static):
    """Text with the styles of the theme."""

    _said: Text | None = None
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"panel--{name}" for name in Palette._fields}

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        """What stands there already is not drawn again."""
        if not (isinstance(content, Text) and content == self._said):
            self._said = content.copy() if isinstance(content, Text) else None
            super().update(content, layout=layout)

    @property
    def palette(self) -> Palette:
        return Palette(*(self.get_component_rich_style(f"panel--{name}", partial=True) for name in Palette._fields))
