"""`parity doctor`'s side of a backend: one small program looks at the host, the adapter judges what it saw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from parity.errors import BackendError
from parity.plan.hosts import Host
from parity.records import Json
from parity.run.launch import place_in_words, run_python

SECONDS = 180.0
"""For the whole look: importing torch on a busy host takes its time."""


class State(StrEnum):
    """How a check went."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. A problem has a remedy."""

    name: str
    state: State
    found: str
    remedy: str | None = None

    def to_json(self) -> dict[str, Json]:
        return {"name": self.name, "state": str(self.state), "found": self.found, "remedy": self.remedy}


@runtime_checkable
class Examinable(Protocol):
    """A backend whose host can be looked at."""

    def probe(self) -> tuple[str, Sequence[str]]:
        """A program for the host (standard library, Python 3.9) that prints JSON, and its first arguments."""
        ...

    def examined_python(self) -> Path | None:
        """The interpreter to look at on this machine; None where there is none yet."""
        ...

    def judge(self, facts: Mapping[str, Json]) -> list[Check]:
        """What the answers mean. They come from another host: strings are not to be trusted."""
        ...


def examine(backend: Examinable, host: Host, model: str) -> list[Check]:
    """Look at the host of a backend and at the checkpoint `model` there ("": at none).

    A host that cannot be asked is one problem; nothing is raised.
    """
    python = None if host.python or host.far else backend.examined_python()
    if python is None and not host.python and not host.far:
        return [Check("engine", State.PROBLEM, "no Python with an engine here", "see the hint of this backend")]
    source, arguments = backend.probe()
    try:
        answer = run_python(host, source, [*arguments, model], timeout=SECONDS, python=str(python) if python else None)
        facts = json.loads(answer.splitlines()[-1])
        if not isinstance(facts, dict):
            raise ValueError(answer[-200:])
    except BackendError as error:
        return [Check("host", State.PROBLEM, str(error), str(error.hint or "try the same command by hand"))]
    except (ValueError, IndexError):
        return [Check("host", State.PROBLEM, f"{place_in_words(host)} answered with something else than JSON",
                      "is it a Python 3.9 or newer? name another with --python")]  # fmt: skip
    return backend.judge(facts)
