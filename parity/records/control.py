"""Positive controls: arms with a fault planted on purpose."""

from __future__ import annotations

from typing import Final

CONTROL: Final = "-control-"
"""In the variant of one, before the fault's name."""

DRAFTER_WRONG: Final = "beneath.drafter_wrong"
"""The note of a comparison whose candidate's drafter is wrong. No finding: it costs acceptance, not tokens."""
