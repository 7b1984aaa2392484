"""An interpreter that has an engine imported already: each command it is given runs in a fork of one process.

    with warm("ascend-emulated", folder) as python:    # to be named with --python

Importing vLLM and vllm-ascend takes most of the start of a small engine. Commands other than `-u -c TEXT` (parity's
workers) go to the real interpreter. Variables that count during imports are those of `warm`.
"""

from __future__ import annotations

import array
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

MODULES = "transformers scipy pandas numba torch_npu triton vllm vllm.entrypoints.llm vllm_ascend.platform"
"""What an engine imports before it has read its settings; what comes later may be patched according to these."""

CLIENT = """#!{python} -S
import array, json, os, signal, socket, sys
if sys.argv[1:3] != ["-u", "-c"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
said = json.dumps({{"code": sys.argv[3], "argv": sys.argv[4:], "env": dict(os.environ), "cwd": os.getcwd()}}).encode()
server.sendmsg([len(said).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))])
server.sendall(said)
for one in (0, 1):
    os.close(one)  # the worker's alone, so that their ends are seen
pid = int(server.recv(20) or 0)
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
sys.exit(int(server.recv(20) or 1))
"""


def received(connection: socket.socket) -> tuple[dict[str, object], list[int]]:
    """What is to be run, and its three files."""
    files = array.array("i")
    head, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * files.itemsize))
    for _level, _kind, data in ancillary:
        files.frombytes(data)
    left, said = int.from_bytes(head, "big"), b""
    while len(said) < left:
        said += connection.recv(left - len(said))
    return json.loads(said), list(files)


def run(asked: dict[str, object], files: list[int]) -> None:
    """In the fork: become the command."""
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    # What the imports set stays.
    os.environ.update(asked["env"])  # type: ignore[call-overload]
    os.chdir(str(asked["cwd"]))
    sys.argv = ["-c", *asked["argv"]]  # type: ignore[misc]
    exec(compile(str(asked["code"]), "<string>", "exec"), {"__name__": "__main__"})


def main(folder: Path, modules: list[str]) -> None:
    address = str(folder / "warm.socket")
    for name in modules:
        importlib.import_module(name)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(8)
    client = folder / "python"
    made = folder / "python.new"
    made.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    made.chmod(0o755)
    made.rename(client)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while True:
        connection, _ = listening.accept()
        if os.fork():  # the keeper waits for the command, this process for the next one
            connection.close()
            continue
        listening.close()
        asked, files = received(connection)
        pid = os.fork()
        if not pid:
            connection.close()
            code = 1
            try:
                run(asked, files)
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(bool(end.code))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        for file in files:
            os.close(file)
        connection.sendall(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.sendall(str(max(os.waitstatus_to_exitcode(status), 0)).encode())
        os._exit(0)


@contextmanager
def warm(backend: str, folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[Path]:
    """A Python for this backend's workers, while the context lasts. `folder` is made anew."""
    from parity.run import load_backend

    adapter = load_backend(backend)
    python = adapter.interpreter(print)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = {**os.environ, **adapter.env_defaults("mtp"), **adapter.launch_env(python), **(variables or {})}
    with (folder / "log").open("wb") as log:
        command = [str(python), __file__, str(folder), *MODULES.split()]
        server = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        while not os.access(folder / "python", os.X_OK):
            if server.poll() is not None:
                raise RuntimeError(f"{python} did not import {MODULES}: {folder / 'log'} says why")
            time.sleep(0.2)
        yield folder / "python"
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
