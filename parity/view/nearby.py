"""A finding and the text around it, for a look without opening it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parity.view.alignment import EQUAL, SUBSTITUTED, Alignment
from parity.view.completion import CompletionView

BEFORE, AFTER = 24, 40
"""Rows shown before a finding, and from its first one on as many as it has and these."""
MOST = 160
"""Rows of a finding that are shown."""


def nearby(view: CompletionView) -> tuple[CompletionView, range]:
    """The view aligned, and its rows around the finding. Long streams are laid side by side by position alone:
    aligning them takes longer than a look."""
    placed = _by_position(view) if view.long else view.aligned()
    row = placed.row_of_finding()
    finding = view.finding
    length = 1 if finding is None else max(1, min(MOST, finding.length or 1))
    return placed, range(max(0, row - BEFORE), min(len(placed.alignment), row + length + AFTER))


def _by_position(view: CompletionView) -> CompletionView:
    at = (view.finding.position if view.finding else view.first_difference) or 0
    first, last = max(0, at - BEFORE), max(0, at) + MOST + AFTER
    positions = np.arange(first, max(first, min(last, max(len(view.left), len(view.right)))))
    left = np.where(positions < len(view.left), positions, -1)
    right = np.where(positions < len(view.right), positions, -1)
    same = np.zeros(len(positions), dtype=bool)
    both = (left >= 0) & (right >= 0)
    same[both] = view.left[left[both]] == view.right[right[both]]
    return replace(view, alignment=Alignment(left, right, np.where(same, EQUAL, SUBSTITUTED).astype(np.uint8)))
