"""The formats that a report can be written in: a module each, named as the format is, with one `FORMAT`.

Adding a format means adding its module here (docs/report.md describes it).
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from parity.report.format import Format


def names() -> tuple[str, ...]:
    """Those there are, without importing any."""
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(__path__)))


def format_named(name: str) -> Format:
    """Imported when it is asked for. Raises KeyError where there is none of that name."""
    if name not in names():
        raise KeyError(name)
    found = import_module(f"{__name__}.{name}").FORMAT
    assert isinstance(found, Format)
    return found


__all__ = ["format_named", "names"]
