"""Names of a package that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def attributes(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package: `homes` has, for each module below it, the names that are found there."""
    home = {name: module for module, names in homes.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
