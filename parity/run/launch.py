"""The command line that starts a Python program on a host, here or behind a prefix.

    PREFIX [bash -c 'eval "$0" </dev/null >&2 && exec "$@"; …' SETUP] env NAME=VALUE… PYTHON -u -c CODE ARG…

The prefix is used word for word. What follows it is quoted once for every shell that reads it: ssh joins its
arguments with spaces and has the login shell of the other side split them again; `docker exec`, `podman exec`,
`kubectl exec` and `env` pass words on as they are. The program itself never stands in the command line: it goes
down stdin, so nothing has to be there but the interpreter.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from parity.errors import BackendError
from parity.messages import Message, message, verbatim
from parity.plan.hosts import Host
from parity.run.process import worker_environment
from parity.run.words import printable
from parity.secrecy import blanked, command_words
from parity.text import visible

DEFAULT_PYTHON = "python3"
"""Looked up on the far side's PATH where a host names no interpreter."""

_BASH_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Of a variable that a script can change at all."""

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""More than this from a small program is not an answer."""

_SETUP = (
    '{before}eval "$0" </dev/null >&2{after} && exec "$@"; echo "parity: this setup ended with status $?" >&2; exit 78'
)
"""Run by bash: the text of SETUP as $0, then the rest in its place. A setup script that prints or reads does
not touch the protocol."""

_PLAIN_SETUP = _SETUP.format(before="", after="")
_KEEPING_SETUP = _SETUP.format(before="parity_kept=$(declare -p $1) && shift && ", after=' && eval "$parity_kept"')
"""On this machine the variables that $1 names keep the values that they came with, whatever SETUP exports, and stand in
no argument that others could read."""

_READ_AND_RUN = (
    "import os,sys,threading;s=os.fdopen(os.dup(0),'rb');c=compile(s.read({size}),'probe','exec');"
    "threading.Thread(target=lambda:(s.read(),os._exit(9)),daemon=True).start();exec(c,{{'__name__':'__main__'}})"
)
"""Ends when its stdin does: no program stays behind on a host that parity has lost."""

_TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class Launch:
    """What to hand to the operating system."""

    argv: list[str]
    env: dict[str, str] = field(repr=False)

    @property
    def shown(self) -> str:
        """For a message: the prefix and the interpreter, without environment and code."""
        return shlex.join(command_words(self.argv[:12]))


def command_line(host: Host, program: Sequence[str], env: Mapping[str, str]) -> Launch:
    """The launch of `program` (an interpreter and its arguments) on `host` with `env` set there."""
    words = list(program)
    if not host.far:
        if host.setup:
            kept = " ".join(name for name in env if _BASH_NAME.fullmatch(name))
            words = [
                "bash",
                "-c",
                *((_KEEPING_SETUP, host.setup, kept) if kept else (_PLAIN_SETUP, host.setup)),
                *words,
            ]
        return Launch(words, worker_environment(env))
    if env:
        words = ["env", *(f"{name}={value}" for name, value in env.items()), *words]
    if host.setup:
        words = ["bash", "-c", _PLAIN_SETUP, host.setup, *words]
    return Launch([*_kept_alive(host.command), *(quoted(word, host.quoting) for word in words)], dict(os.environ))


def quoted(word: str, times: int) -> str:
    """The word, so that it comes out as it is after `times` shells."""
    for _ in range(times):
        word = shlex.quote(word)
    return word


def _kept_alive(command: Sequence[str]) -> list[str]:
    """ssh must not ask anybody anything, and must notice a dead connection: unless the user says otherwise."""
    words = list(command)
    if words[0].rsplit("/", 1)[-1] != "ssh":
        return words
    options: list[str] = []
    for name, value in (("BatchMode", "yes"), ("ServerAliveInterval", "15"), ("ServerAliveCountMax", "4")):
        if not any(name.lower() in word.lower() for word in words):
            options += ["-o", f"{name}={value}"]
    return [words[0], *options, *words[1:]]


def python_of(host: Host) -> str:
    """The interpreter behind a command prefix."""
    return host.python or DEFAULT_PYTHON


def run_python(
    host: Host, source: str, args: Sequence[str] = (), timeout: float = 60.0, *, python: str | None = None
) -> str:
    """Run a small Python program on `host`, return what it prints (UTF-8, what is not is replaced).

    `source` travels on stdin; `args` are its sys.argv[1:]. `python` is the interpreter where the host names none
    (default: this one here, python3 behind a command). The answer is untrusted. Raises BackendError when it
    cannot be started, fails, prints too much or takes longer than `timeout` seconds, with the end of its stderr.
    """
    data = source.encode()
    interpreter = host.python or python or (DEFAULT_PYTHON if host.far else sys.executable)
    if not host.far:
        interpreter = os.path.expanduser(interpreter)
    launch = command_line(host, [interpreter, "-u", "-c", _READ_AND_RUN.format(size=len(data)), *args], host.env)
    where = place_in_words(host)
    try:
        process = subprocess.Popen(
            launch.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=launch.env,
            start_new_session=True,
        )
    except OSError as error:
        raise BackendError(
            message(
                "run.cannot_run_2",
                "cannot run {argv} for {where}: {said}",
                argv=launch.argv[0],
                where=where,
                said=str(error.strerror or error),
            ),
            hint=message(
                "run.command_backend_installed", "is the command of this backend installed and spelled right?"
            ),
        ) from error
    out, err, late = _converse(process, data, timeout)
    if late:
        raise BackendError(
            message(
                "run.did_not_answer",
                "{where} did not answer within {timeout:.0f} s{tail}",
                where=where,
                timeout=timeout,
                tail=_tail(err, host),
            ),
            hint=remedy(host, err)
            or message("run.can_host_reached", "can the host be reached by hand with the same command?"),
        )
    if len(out) > MAX_ANSWER_BYTES:
        raise BackendError(
            message(
                "run.answered_more_than",
                "{where} answered with more than {max_answer_bytes} MiB where little was asked for",
                where=where,
                max_answer_bytes=MAX_ANSWER_BYTES >> 20,
            )
        )
    if process.returncode:
        raise BackendError(
            message(
                "run.ended_exit_code",
                "{interpreter} on {where} ended with exit code {returncode}{tail}",
                interpreter=interpreter,
                where=where,
                returncode=process.returncode,
                tail=_tail(err, host),
            ),
            hint=remedy(host, err),
        )
    return out.decode("utf-8", "replace")


def _converse(process: subprocess.Popen[bytes], data: bytes, timeout: float) -> tuple[bytes, bytes, bool]:
    """Its stdout (at most one byte over the bound), the end of its stderr, and whether it had to be killed for
    taking too long. Its stdin stays open until then: the far side ends when it closes."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    last: deque[bytes] = deque(maxlen=16)
    late = threading.Event()

    def write() -> None:
        try:
            stdin.write(data)
            stdin.flush()
        except (BrokenPipeError, ValueError):
            return  # it has ended already: its exit code and last words tell why

    def collect() -> None:
        while chunk := stderr.read1(65536):  # type: ignore[attr-defined]
            last.append(chunk)

    def expire() -> None:
        late.set()
        _kill_session(process)

    threads = [threading.Thread(target=work, daemon=True) for work in (write, collect)]
    clock = threading.Timer(timeout, expire)
    for thread in (*threads, clock):
        thread.start()
    try:
        out = stdout.read(MAX_ANSWER_BYTES + 1)
        if len(out) > MAX_ANSWER_BYTES:
            _kill_session(process)
        process.wait()
    except BaseException:
        _kill_session(process)
        process.wait()
        raise
    finally:
        clock.cancel()
        for thread in threads:
            thread.join(2.0)
        for pipe in (stdin, stdout, stderr):
            with suppress(OSError):
                pipe.close()
    return out, b"".join(last), late.is_set()


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()


def place_in_words(host: Host) -> Message:
    """For messages: how the host is reached."""
    if not host.far:
        return message("run.this_machine", "this machine")
    return verbatim(f"`{visible(shlex.join(command_words(list(host.command))))}`")


def _tail(err: bytes, host: Host) -> str:
    said = blanked(err.decode("utf-8", "replace"), host.secrets)
    lines = [printable(line)[:400] for line in said.splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-_TAIL_LINES:])


_REMEDIES = (
    (
        "Permission denied (",
        message(
            "run.parity_types_no",
            "parity types no password: set up a key, until `ssh -o BatchMode=yes HOST true` works",
        ),
    ),
    (
        "Host key verification failed",
        message("run.connect_once_hand", "connect once by hand, look at the key, and accept it"),
    ),
    (
        "Could not resolve hostname",
        message("run.hosts_name_unknown", "the host's name is unknown here: look at ~/.ssh/config and the spelling"),
    ),
    (
        "Connection refused",
        message("run.nothing_listens_there", "nothing listens there: is sshd up, and the port right?"),
    ),
    (
        "Connection timed out",
        message(
            "run.host_cannot_reached", "the host cannot be reached: is it up, is there a VPN or a jump host (ssh -J)?"
        ),
    ),
    (
        "No route to host",
        message(
            "run.host_cannot_reached", "the host cannot be reached: is it up, is there a VPN or a jump host (ssh -J)?"
        ),
    ),
    (
        "No such container",
        message("run.host_names_containers", "`docker ps` on that host names the containers that run"),
    ),
    ("is not running", message("run.start_container_first", "start the container first; parity starts none")),
    ("the input device is not a TTY", message("run.drop_command_only", "drop -t from the command: only -i is wanted")),
    (
        "unable to upgrade connection",
        message(
            "run.kubectl_exec_could", "kubectl exec could not attach: is the pod running, and are you allowed to exec?"
        ),
    ),
    (
        "this setup ended with status",
        message("run.setup_must_end", "its setup must end with status 0: run it there by hand, in bash"),
    ),
)


def remedy(host: Host, err: bytes | str) -> Message | None:
    """What to do about a failure to get as far as Python, from the last words of the way there; None: unknown."""
    text = err.decode("utf-8", "replace") if isinstance(err, bytes) else err
    for words, advice in _REMEDIES:
        if words in text:
            return advice
    missing = ("command not found", "No such file or directory", "executable file not found", "not found in $PATH")
    if host.far and any(words in text for words in missing):
        return message(
            "run.there_name_interpreter",
            "is {python} there? Name the interpreter that has the engine with python = … in "
            "parity.toml, or --python {host}=PATH",
            python=python_of(host),
            host=host.name,
        )
    return None
