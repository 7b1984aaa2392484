"""The two themes. Any other theme of Textual can be chosen in the command palette."""

from __future__ import annotations

from typing import Final

from textual.theme import Theme

DARK: Final = Theme(
    name="parity-dark",
    primary="#6ea8fe",
    secondary="#3d5a80",
    accent="#d2a8ff",
    warning="#e3b341",
    error="#ff7b72",
    success="#56d364",
    foreground="#d6dde6",
    background="#0f141b",
    surface="#161d27",
    panel="#212b38",
    dark=True,
    variables={"block-cursor-background": "#23456c", "block-cursor-foreground": "#ffffff"},
)
LIGHT: Final = Theme(
    name="parity-light",
    primary="#0a58ca",
    secondary="#8fb3e8",
    accent="#7b3fc4",
    warning="#8a5a00",
    error="#c42b2b",
    success="#1a7f37",
    foreground="#1f2933",
    background="#fbfbf9",
    surface="#f0f1ee",
    panel="#e1e4e0",
    dark=False,
    variables={"block-cursor-background": "#cfe2ff", "block-cursor-foreground": "#0b1f3a"},
)
