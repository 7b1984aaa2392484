"""Finding an adapter by its name.

An adapter lives outside this package (entry point group `parity.backends`) and is loaded by name only;
listing the names imports nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parity.errors import BackendError, ParityError
from parity.messages import message
from parity.run.backend import Backend, OwnSettings, Versioned

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "parity.backends"
_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)*")  # becomes part of a path and of a pip requirement


def starts_an_engine(name: str) -> bool:
    """Is an arm of this backend an engine that `vllm.LLM` starts? So is one of a backend that is not installed."""
    return name.partition("@")[0] not in _installed() or not isinstance(load_backend(name), OwnSettings)


def is_installed_engine(name: str) -> bool:
    """Is this a backend, installed here, whose arms are engines that `vllm.LLM` starts?"""
    return name.partition("@")[0] in _installed() and starts_an_engine(name)


def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # reads mail headers, and brings what it needs for that

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def backend_names() -> list[str]:
    """Names of the installed adapters, sorted; imports none of them."""
    return sorted(_installed())


def load_backend(name: str) -> Backend:
    """The adapter called `name`, or `NAME@VERSION` for another version of its engine.

    Raises ParityError for a name that is not installed and BackendError for an adapter that does not load.
    """
    name, at, version = name.partition("@")
    backend = _load(name)
    if not at:
        return backend
    if not isinstance(backend, Versioned):
        raise ParityError(
            message(
                "run.backend_takes_no",
                "backend {name!r} takes no version ({name}@{version}): parity builds no environments for it",
                name=name,
                version=version,
            ),
            hint=message(
                "run.point_parity_python",
                "point PARITY_{upper}_PYTHON at a Python with that version, or name one per host",
                upper=name.upper(),
            ),
        )
    if not _VERSION.fullmatch(version):
        raise ParityError(
            message("run.not_version", "{version!r} is not a version", version=version),
            hint=message("run.such", "such as {name}@0.29.0", name=name),
        )
    return backend.at_version(version)


def _load(name: str) -> Backend:
    installed = _installed()
    if name not in installed:
        known = ", ".join(sorted(installed)) or "none"
        raise ParityError(
            message(
                "run.unknown_backend_installed", "unknown backend {name!r}; installed: {known}", name=name, known=known
            ),
            hint=message(
                "run.adapters_python_packages",
                "adapters are Python packages with an entry point in the group {group!r}",
                group=GROUP,
            ),
        )
    entry = installed[name]
    try:
        backend = entry.load()()
    except Exception as error:
        raise BackendError(
            message(
                "run.adapter_backend_not",
                "the adapter of backend {name!r} ({entry}) does not load: {said}: {said_2}",
                name=name,
                entry=entry.value,
                said=type(error).__name__,
                said_2=str(error),
            ),
            hint=message("run.reinstall_package_provides", "reinstall the package that provides it"),
        ) from error
    if not isinstance(backend, Backend):
        raise BackendError(
            message("run.not_implement_parity", "{entry} does not implement parity.run.Backend", entry=entry.value)
        )
    return backend
