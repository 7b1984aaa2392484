"""Several commands of parity, each in a process of its own that is forked from one which has loaded all of it.

python several.py SECONDS < commands: a JSON list of lists of words     > a line of JSON for each command
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

LOADED = (
    "cli.main",
    "cli.runs",
    "cli.report",
    "report.write",
    "report.formats",
    "view",
    "store",
    "view.why",
    "comparator",
    "pipeline",
)


def run(words: list[str], folder: Path) -> None:
    """In the child: as `python -m parity` runs it."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["parity", *words]
    try:
        import_module("parity.__main__").entry()
        code: object = 0
    except SystemExit as end:
        code = end.code
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def one(words: list[str], seconds: float, folder: Path) -> dict[str, object]:
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        try:
            run(words, folder)
        finally:
            os._exit(70)
    code: int | None = None
    usage = None
    while code is None:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
        elif time.monotonic() - began > seconds:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            _, _, usage = os.wait4(pid, 0)
            break
        else:
            time.sleep(0.01)
    out, err = ((folder / name).read_text(errors="replace") for name in ("out", "err"))
    said = {"code": code, "seconds": time.monotonic() - began, "kib": usage.ru_maxrss if usage else 0}
    return {**said, "out": out[:200_000], "err": err[-8000:]}


def main() -> None:
    commands = json.loads(sys.stdin.read())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in LOADED:
        with contextlib.suppress(ImportError):
            import_module(f"parity.{name}")
    with tempfile.TemporaryDirectory(prefix="several-") as name:
        for words in commands:
            print(json.dumps(one(words, float(sys.argv[1]), Path(name))), flush=True)


if __name__ == "__main__":
    main()
