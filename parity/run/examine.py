"""`parity doctor`'s side of a backend: one small program looks at the host, the adapter judges what it saw."""

from __future__ import annotations

import json

from parity.errors import BackendError
from parity.messages import message
from parity.plan.hosts import Host
from parity.run.backend import Examinable
from parity.run.checks import Check, State
from parity.run.launch import place_in_words, run_python

SECONDS = 180.0
"""For the whole look: importing torch on a busy host takes its time."""


def examine(backend: Examinable, host: Host, model: str) -> list[Check]:
    """Look at the host of a backend and at the checkpoint `model` there ("": at none).

    A host that cannot be asked is one problem; nothing is raised.
    """
    python = None if host.python or host.far else backend.examined_python()
    if python is None and not host.python and not host.far:
        return [
            Check(
                message("run.engine", "engine"),
                State.PROBLEM,
                message("run.no_python_engine", "no Python with an engine here"),
                message("run.see_hint_backend", "see the hint of this backend"),
            )
        ]
    source, arguments = backend.probe()
    try:
        answer = run_python(host, source, [*arguments, model], timeout=SECONDS, python=str(python) if python else None)
        facts = json.loads(answer.splitlines()[-1])
        if not isinstance(facts, dict):
            raise ValueError(answer[-200:])
    except BackendError as error:
        return [
            Check(
                message("run.host", "host"),
                State.PROBLEM,
                error.message,
                error.hint or message("run.try_by_hand", "try the same command by hand"),
            )
        ]
    except (ValueError, IndexError):
        return [
            Check(
                message("run.host", "host"),
                State.PROBLEM,
                message(
                    "run.answered_something_else",
                    "{place} answered with something else than JSON",
                    place=place_in_words(host),
                ),
                message("run.python_newer_name", "is it a Python 3.9 or newer? name another with --python"),
            )
        ]
    return backend.judge(facts)
