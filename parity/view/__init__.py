"""One view of a run: what every surface draws of it.

    with Store.open(path) as store:
        view = of_store(store, "20261121-042615")
    view = of_captures([baseline, candidate], {candidate.header.arm: comparison})

Terminal, Markdown, page, JSON, SARIF, JUnit, plots, tables and rows draw from a `RunView` and from nothing else, so
they cannot say different things. It is the same whether it comes from the store or from comparisons in memory.
"""

from parity.view.arm import CONTROL, SHORT, ArmView, Figures, KindRate
from parity.view.captures import of_captures
from parity.view.commands import NextCommand, next_commands
from parity.view.evidence import Evidence
from parity.view.finding import FindingView
from parity.view.run import LOOKED_AT, Output, Run, RunView
from parity.view.stored import of_store

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
