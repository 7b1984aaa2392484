"""One view of a run: what every surface draws of it.

    with Store.open(path) as store:
        view = of_store(store, "20261121-042615")
    view = of_captures([baseline, candidate], {candidate.header.arm: comparison})

Terminal, Markdown, page, JSON, SARIF, JUnit, plots, tables and rows draw from a `RunView` and from nothing else, so
they cannot say different things. It is the same whether it comes from the store or from comparisons in memory. Of
single lines and completions, which a screen shows without waiting for all of a run, there are `parity.view.lines` and
`parity.view.completion`.

Names are loaded when they are first used: some bring the comparison along, for which no list of runs should wait.
"""

from typing import TYPE_CHECKING

from parity.lazily import attributes

if TYPE_CHECKING:
    from parity.view.arm import CONTROL, SHORT, ArmView, Figures, KindRate
    from parity.view.captures import of_captures
    from parity.view.commands import next_commands
    from parity.view.evidence import Evidence
    from parity.view.finding import FindingView
    from parity.view.next_command import NextCommand
    from parity.view.run import LOOKED_AT, Output, Run, RunView
    from parity.view.stored import of_store

_HOMES = {
    "arm": ("CONTROL", "SHORT", "ArmView", "Figures", "KindRate"),
    "captures": ("of_captures",),
    "commands": ("next_commands",),
    "evidence": ("Evidence",),
    "finding": ("FindingView",),
    "next_command": ("NextCommand",),
    "run": ("LOOKED_AT", "Output", "Run", "RunView"),
    "stored": ("of_store",),
}

__all__ = [
    "CONTROL",
    "LOOKED_AT",
    "SHORT",
    "ArmView",
    "Evidence",
    "Figures",
    "FindingView",
    "KindRate",
    "NextCommand",
    "Output",
    "Run",
    "RunView",
    "next_commands",
    "of_captures",
    "of_store",
]


__getattr__ = attributes(__name__, _HOMES)
