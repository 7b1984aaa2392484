"""Text with the styles of the theme in use."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from rich.style import Style
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

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"panel--{name}" for name in Palette._fields}

    @property
    def palette(self) -> Palette:
        return Palette(*(self.get_component_rich_style(f"panel--{name}", partial=True) for name in Palette._fields))
