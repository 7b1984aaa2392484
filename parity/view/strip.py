"""The heat strip of a located fault: modules × tokens around it, as text."""

from __future__ import annotations

from typing import Final

from parity.records.evidence import LocatedEvidence

SHADES: Final = " ░▒▓█"
"""Excess over the usual distance as a share of what accuses: below a quarter, a half, three quarters, one; or more."""

MOST_MODULES: Final = 12


def strip_lines(one: LocatedEvidence) -> list[str]:
    """A line for each module from the one before the first that is off; nothing where no strip was kept.

    A cell is a token; the located one stands between bars.
    """
    if not one.strip or one.module not in one.strip_modules or one.input_position not in one.strip_positions:
        return []
    first = one.strip_modules.index(one.module)
    shown = [number for number in range(len(one.strip_modules)) if number >= first - 1][:MOST_MODULES]
    wide = max(len(one.strip_modules[number]) for number in shown)
    at = one.strip_positions.index(one.input_position)
    return [f"{one.strip_modules[number]:<{wide}}  {_cells(one.strip[number], at)}" for number in shown]


def _cells(shares: tuple[float, ...], at: int) -> str:
    cells = [SHADES[min(max(int(share * 4), 0), 4)] for share in shares]
    return "".join(f"|{cell}|" if place == at else cell for place, cell in enumerate(cells))
