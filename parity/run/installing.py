"""One command of an installation: its output kept in a log, a sign of life now and then, advice where it fails."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from parity.errors import BackendError
from parity.messages import Message, Say, message

INDEX_VARIABLE = "PARITY_EXTRA_INDEX_URL"
NOT_PASSED_ON = frozenset({"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"})
"""The last is set in many containers; what an import has compiled would not be there for the first engine's start."""
_TICK_SECONDS = 10.0
_TAIL_LINES = 15


def run_logged(command: Sequence[str], log: Path, say: Say, doing: Message, special_index: str | None) -> None:
    """Run a command with its output at the end of `log`, one line now and then to `say`.

    It keeps the lock of who started it (`parity.run.envs`). Raises BackendError with the end of the output;
    `special_index`: the package index that its advice names.
    """
    env = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    latest: list[Message | str] = [doing]
    began = said = time.monotonic()
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
            close_fds=False,  # but for those made inheritable Python closes them
        )
    except OSError as error:
        raise BackendError(
            message("run.cannot_run", "cannot run {command}: {strerror}", command=command[0], strerror=error.strerror),
            hint=message("run.name_another_python", "name another with --python"),
        ) from error
    assert process.stdout is not None
    output = process.stdout

    def collect() -> None:
        with log.open("a", encoding="utf-8") as file:
            for line in output:
                file.write(line)
                tail.append(line.rstrip())
                if not line.startswith(("WARNING", " ")):
                    latest[0] = line.strip()[:80]

    collector = threading.Thread(target=collect, daemon=True)
    collector.start()
    try:
        while process.poll() is None:
            time.sleep(0.05)
            if time.monotonic() - said >= _TICK_SECONDS:
                said = time.monotonic()
                say(
                    message("run.stage_time", "      {seconds:.0f} s: {latest}", seconds=said - began, latest=latest[0])
                )
    except BaseException:
        process.kill()
        process.wait()
        raise
    collector.join(5.0)
    if process.returncode:
        shown = "".join(f"\n  {line}" for line in tail if line.strip())
        raise BackendError(
            message(
                "run.failed_exit_code",
                "{doing} failed with exit code {returncode}; the end of {log}:{shown}",
                doing=doing,
                returncode=process.returncode,
                log=str(log),
                shown=shown,
            ),
            hint=_advice("\n".join(tail), special_index),
        )


def _advice(tail: str, special_index: str | None) -> Message:
    if "ensurepip" in tail:
        return message(
            "run.python_no_venv",
            "this Python has no venv module: install the python3-venv package, or name another with --python",
        )
    if "No matching distribution found" in tail or "Could not find a version" in tail:
        return message(
            "run.name_index_extra",
            "name an index that has it: --extra-index-url {index}, or set {index_variable}",
            index=special_index or "URL",
            index_variable=INDEX_VARIABLE,
        )
    if "No space left" in tail:
        return message(
            "run.disk_full_make",
            "the disk is full: make room (an engine takes about 2 GB), or set PARITY_HOME to another place",
        )
    return message("run.mend_pip_says", "mend what pip says and run the same command again")
