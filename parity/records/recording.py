"""Which of an engine's steps are kept where they are recorded (docs/steps.md)."""

from __future__ import annotations

from typing import Final

ALL: Final = "all"
RING: Final = "ring"
"""Those around violations, and the last ones; the rest is checked and counted."""
