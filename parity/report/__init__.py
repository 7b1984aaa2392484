"""What people get to see of a run: the terminal's summary and the reports that leave the machine.

    with Store.open(path) as store:
        text = write_report(store, "20261121-042615", "md", "vllm")

`write_report` is the one entry for every format (docs/report.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.report.write import FORMATS, TARGETS, ReportOptions, write_report

__all__ = ["FORMATS", "TARGETS", "ReportOptions", "write_report"]


def __getattr__(name: str) -> Any:
    """Loaded when first asked for: the terminal's summary needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from parity.report import write

    return getattr(write, name)
