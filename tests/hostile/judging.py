"""One command of parity against something hostile, with a budget of seconds and of memory, and what went wrong."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
ENGINE = ROOT / "tests" / "unit" / "pipeline" / "fake_engine.py"
KEY = "sk-HOSTILE0secret0"
"""Stands in the environment of every command; it must come out nowhere."""
MARK = "PARITY_HOSTILE_MARK"


@dataclass
class Ended:
    """How a command ended. `problems` is empty where it did as it should."""

    name: str
    code: int | None
    seconds: float
    peak_mib: int
    out: str
    err: str
    problems: list[str] = field(default_factory=list)

    def line(self) -> str:
        said = "; ".join(self.problems) or "good"
        return f"{self.name}: exit {self.code}, {self.seconds:.1f} s, {self.peak_mib} MiB: {said}"


@dataclass
class Place:
    """A home, a working directory, and a backend `fake` whose engine is a few lines."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PARITY")},
            "PARITY_HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(map(str, (self.root / "site", SUPPORT, ROOT, ROOT / "backends"))),
            "FAKE_STARTS": str(self.root / "starts.txt"),
            "OPENBLAS_NUM_THREADS": "1",
            "HOSTILE_KEY": KEY,
            **env,
        }

    def run(
        self, name: str, *args: str, seconds: float = 60.0, mib: int = 700, env: Mapping[str, str] | None = None,
        fine: Sequence[int] = (0, 2, 3, 4),
    ) -> Ended:  # fmt: skip
        """`parity ARGS`, killed after `seconds`. `fine`: exit codes that are answers (1 is, where it says DIVERGED)."""
        mark = secrets.token_hex(8)
        outside = before(self.root)
        out, err = self.root / "out.txt", self.root / "err.txt"
        began = time.monotonic()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "parity", *args], cwd=self.work, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, start_new_session=True, env={**self.environment(env or {}), MARK: mark},
            )  # fmt: skip
            code, peak = waited(process, seconds)
        took = time.monotonic() - began
        ended = Ended(
            name,
            code,
            took,
            peak >> 10,
            out.read_text(errors="replace")[:200_000],
            err.read_text(errors="replace")[-8000:],
        )
        ended.problems += judged(ended, fine, mib)
        left = orphans(mark)
        if left:
            ended.problems.append(f"{len(left)} processes left")
        ended.problems += [f"wrote {path}" for path in sorted(before(self.root) - outside)]
        ended.problems += leaks(self.root, ended)
        return ended

    def run_several(
        self, name: str, commands: Sequence[Sequence[str]], *, seconds: float = 60.0, mib: int = 700,
        env: Mapping[str, str | None] | None = None, deeds: Sequence[str] = (), fine: Sequence[int] = (0, 2, 3, 4),
    ) -> Iterator[Ended]:  # fmt: skip
        """Each command by itself, forked from one process that has loaded parity: for many commands on one place.

        `env`: None takes a variable away. `deeds`: what is done to each process first (`several.DEEDS`).
        Processes that stay, files where none belong and leaks are looked for at the end, and are the last one's."""
        mark, outside = secrets.token_hex(8), before(self.root)
        variables = {**self.environment({}), MARK: mark, **(env or {})}
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("several.py")), str(seconds), *deeds], cwd=self.work,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            env={one: value for one, value in variables.items() if value is not None},
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(commands).encode())
        process.stdin.close()
        for at, (command, line) in enumerate(zip(commands, process.stdout, strict=False)):
            said = json.loads(line)
            ended = Ended(
                f"{name}: {' '.join(command[:3])}",
                said["code"],
                said["seconds"],
                said["kib"] >> 10,
                said["out"],
                said["err"],
            )
            ended.problems += judged(ended, fine, mib)
            ended.problems += leaks(self.root, ended) if at + 1 == len(commands) else []
            if at + 1 == len(commands):
                process.wait(10)
                ended.problems += [f"left: {pid}" for pid in orphans(mark)]
                ended.problems += [f"wrote {path}" for path in sorted(before(self.root) - outside)]
            yield ended
        assert process.wait(10) == 0


def judged(ended: Ended, fine: Sequence[int], mib: int) -> list[str]:
    problems = []
    if ended.code is None:
        problems.append("HANG")
    elif ended.code == 1:
        if "DIVERGED" not in ended.out:
            problems.append("exit 1 without DIVERGED")
    elif ended.code not in fine:
        problems.append(f"exit {ended.code}")
    if "Traceback" in ended.err or "failed unexpectedly" in ended.err:
        problems.append("TRACEBACK " + ended.err.strip().splitlines()[-1][:200])
    if "\x1b" in ended.err or "\x1b" in ended.out:
        problems.append("escape sequence")
    if ended.peak_mib > mib:
        problems.append(f"{ended.peak_mib} MiB")
    return problems


def waited(process: subprocess.Popen[bytes], seconds: float) -> tuple[int | None, int]:
    """(exit code, peak memory in KiB of it and of what it waited for); None where it had to be killed.

    What the kernel reports at the end is no less than what the process that started it had by then (getrusage(2),
    ru_maxrss: kept over exec), so it counts only beyond that; below, the process itself is looked at while it runs.
    """
    until = time.monotonic() + seconds
    ours, peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        peak = max(peak, resident_peak(process.pid))
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
            break
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    if usage.ru_maxrss > ours:
        peak = max(peak, usage.ru_maxrss)
    return (None if time.monotonic() > until else process.returncode), peak


def resident_peak(pid: int) -> int:
    """The most memory that a running process has had since its program began, in KiB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def orphans(mark: str, patience: float = 5.0) -> list[int]:
    """Processes that the command started and that outlive it, killed here. They get a moment to end by themselves."""
    until = time.monotonic() + patience
    while True:
        found = marked(mark)
        if not found or time.monotonic() > until:
            break
        time.sleep(0.1)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def marked(mark: str) -> list[int]:
    found, wanted = [], f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if wanted in Path(f"/proc/{name}/environ").read_bytes():
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append(int(name))
        except OSError:
            continue
    return found


def before(root: Path) -> set[Path]:
    """Files where none of ours belong: beside home, work and what the campaign itself wrote, and canaries."""
    ours = {"home", "work", "site", "out.txt", "err.txt", "starts.txt", "given"}
    found = {path for path in root.iterdir() if path.name not in ours}
    return found | set(root.rglob("PWNED*"))


def leaks(root: Path, ended: Ended) -> list[str]:
    """Where the key came out: on the terminal, or in any file below the home and the working directory."""
    found = [name for name, text in (("stdout", ended.out), ("stderr", ended.err)) if KEY in text]
    for place in ("home", "work"):
        for path in (root / place).rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 26:
                found += [str(path)] if KEY.encode() in path.read_bytes() else []
    return [f"LEAK to {where}" for where in found]


@contextlib.contextmanager
def place() -> Iterator[Place]:
    with TemporaryDirectory(prefix="hostile-") as name:
        made = Place(Path(name))
        for folder in (made.home, made.work, made.root / "given"):
            folder.mkdir()
        metadata = made.root / "site" / "fake_backend-0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-backend\nVersion: 0\n")
        (metadata / "entry_points.txt").write_text("[parity.backends]\nfake = backend:FakeBackend\n")
        yield made
