"""The columns of the list of runs."""

from __future__ import annotations

from collections.abc import Mapping

from parity.messages import message
from parity.records import Kind
from parity.tui.format import moment, plain, seconds
from parity.tui.names import FIELDS, status_name
from parity.tui.widgets.table import Column
from parity.view.lines import RunLine

WIDE = 100
_COLOURS = {"PASS": "good", "DIVERGED": "corrupt", "INCONCLUSIVE": "warning", "ERROR": "corrupt"}


def _verdict(line: RunLine) -> tuple[str, str]:
    word = line.run.verdict or line.status
    return status_name(word), _COLOURS.get(word, "dim")


def kinds_said(counts: Mapping[str, int]) -> str:
    """The counts by kind, near-ties last."""
    kinds = sorted(counts.items(), key=lambda item: (item[0] == Kind.NEAR_TIE, -item[1]))
    return ", ".join(f"{count:,} {plain(kind)}" for kind, count in kinds)


def called(line: RunLine) -> str:
    """Its name and its tags."""
    return " ".join(filter(None, [plain(line.run.name), *(f"#{plain(tag)}" for tag in line.run.tags)]))


def _arms(line: RunLine) -> str:
    return " ".join(plain(arm.name) for arm in line.arms)


def _count(line: RunLine, number: int, style: str) -> tuple[str, str]:
    if not line.compared:
        return "-", "dim"  # nobody knows yet
    return f"{number:,}", style if number else "dim"


COLUMNS: list[Column[RunLine]] = [
    Column(FIELDS["verdict"], 12, _verdict, "verdict"),
    Column(FIELDS["date"], 16, lambda line: (moment(line.run.created), ""), "date"),
    Column(FIELDS["found"], 7, lambda line: _count(line, line.others, "corrupt"), "found", right=True),
    Column(FIELDS["new"], 6, lambda line: _count(line, line.new, "warning"), "new", right=True),
    Column(FIELDS["known"], 6, lambda line: _count(line, line.known, ""), right=True, from_width=WIDE),
    Column(message("tui.column.ties", "ties"), 6, lambda line: _count(line, line.near_ties, "dim"), right=True),
    Column(FIELDS["time"], 6, lambda line: (seconds(line.run.duration), ""), "time", right=True),
    # In a narrow table a name says more than arms.
    Column(message("runs.arms", "arms"), 0, lambda line: (called(line) or _arms(line), ""), least=12, below_width=WIDE),
    Column(FIELDS["name"], 0, lambda line: (called(line), ""), "name", least=10, from_width=WIDE),
    Column(message("runs.arms", "arms"), 0, lambda line: (_arms(line), ""), least=12, middle=True, from_width=WIDE),
    Column(FIELDS["model"], 0, lambda line: (plain(line.run.model), "dim"), "model", from_width=120),
    Column(
        message("tui.column.kinds", "kinds"), 0, lambda line: (kinds_said(line.counts), ""), from_width=140, least=14
    ),
]
