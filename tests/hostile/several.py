"""Several commands of parity, each in a process of its own that is forked from one which has loaded all of it.

python several.py SECONDS [DEED …] < commands: a JSON list of lists of words     > a line of JSON for each command

DEED: what is done to each process before its command begins (`DEEDS`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
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


def full(number: int) -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def without_directory() -> None:
    gone = Path(tempfile.mkdtemp(prefix="gone-"))
    os.chdir(gone)
    shutil.rmtree(gone)


def half_directory() -> None:
    """Below one whose name is no UTF-8."""
    half = os.fsencode(Path.cwd()) + b"/x\xff"
    os.makedirs(half, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink("../run", half + b"/run")
    os.chdir(half)


def as_anybody() -> None:
    """Without the capabilities of root that pass over the modes of files: capget(2), capset(2), on Linux."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    for at in (0, 1, 2):  # effective, permitted, inheritable; DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER
        data[at] &= ~0b1110
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def crash() -> None:
    """Whatever the command is, an error of parity that says the whole command line."""
    from parity.cli import speaking

    def raising(*_: object) -> None:
        raise ValueError(" ".join(sys.argv))

    speaking.SpeakingContext.invoke = raising  # type: ignore[assignment]


DEEDS: dict[str, Callable[[], None]] = {
    "stdin closed": lambda: os.close(0), "stdin a directory": lambda: os.dup2(os.open("/", os.O_RDONLY), 0) and None, "stdout closed": lambda: os.close(1), "stdout full": lambda: full(1),
    "stderr closed": lambda: os.close(2), "stderr full": lambda: full(2), "all closed": lambda: os.closerange(0, 3), "no directory": without_directory, "a directory of no text": half_directory, "anybody": as_anybody, "crash": crash,
    "few files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24)),
}  # fmt: skip


def run(words: list[str], folder: Path, deeds: list[str]) -> None:
    """In the child: as `python -m parity` runs it."""
    for number, name in ((1, "out"), (2, "err")):
        opened = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    for deed in deeds:
        DEEDS[deed]()
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


def one(words: list[str], seconds: float, folder: Path, deeds: list[str]) -> dict[str, object]:
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        try:
            run(words, folder, deeds)
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
    commands = json.loads(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in LOADED:
        with contextlib.suppress(ImportError):
            import_module(f"parity.{name}")
    with tempfile.TemporaryDirectory(prefix="several-") as name:
        for words in commands:
            sys.stdout.buffer.write(
                json.dumps(one(words, float(sys.argv[1]), Path(name), sys.argv[2:])).encode() + b"\n"
            )
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
