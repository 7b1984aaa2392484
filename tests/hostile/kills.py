"""Signals at random moments of a run and of its resumes, until it ends; then all is as if nobody had.

Each seed is a run: up to six times a process of it (parity, a worker, what is below it, ssh, the connection or the worker
on the far side) gets SIGKILL, SIGTERM, SIGINT or SIGHUP, and the run is resumed. Captures and scores then hold the same
records once each, verdict, findings, store and files are those of a run that was left alone, and no process stays.

    python -m tests.hostile kills --engine fake|far|cpu|cpu-far --first-seed 0 --count 50
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from asked import Asked
from judging import MARK, ROOT, Ended, Place, judged, leaks, orphans, place
from processes import Process, below, outliving

sys.path.insert(0, str(ROOT / "tests"))

from sshd import NoSshd, Sshd, find_sshd

KILLS = 200
MOST = 6
"""Kills of one run."""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDED = (0, 2, 3, 4, 130, *(-number for number in SIGNALS))
"""Exit codes of a run that was hit: its own, and those of a process that a signal ended."""
MARGIN = 60.0
"""Seconds for a run to end after a signal beyond what one takes that is left alone."""
PATIENCE = 45.0
"""Seconds for what it started to end."""
CACHE = ROOT / "build" / "sshd"

FAKE = ("--backends", "fake", "--suite", "smoke", "--max-tokens", "16", "--rounds", "3")
REAL = ("--backends", "fake,cpu", "--variants", "base", "--suite", "smoke", "--max-tokens", "32", "--rounds", "4")
"""One start of the real engine, beside a baseline that needs none."""
TARGETS = {
    "fake": ("parity", "worker", "below the worker"),
    "far": ("parity", "ssh", "connection", "far worker"),
    "cpu": ("parity", "worker", "below the worker"),
    "cpu-far": ("parity", "ssh", "connection", "far worker", "below the far worker"),
}


@dataclass
class Site:
    """How runs are started, and where their processes are."""

    engine: str
    sshd: Sshd | None = None

    @property
    def real(self) -> bool:
        return self.engine.startswith("cpu")

    @property
    def env(self) -> dict[str, str]:
        return {"FAKE_STEP": "0"} if self.real else {"FAKE": "corrupt", "FAKE_STEP": "0.03"}

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        name = "cpu" if self.real else "fake"
        words = ["run", *(REAL if self.real else FAKE), "--out", "run"]
        if self.real:
            words += ["--python", f"cpu={interpreter()}"]
        if self.sshd is not None:
            env = {} if self.real else {**self.env, "FAKE_STARTS": str(self.sshd.directory / "starts.txt")}
            prefix = [*self.sshd.command, *(["env"] if env else []), *(f"{key}={value}" for key, value in env.items())]
            words += ["--host", f"{name}={' '.join(prefix)}"]
            words += [] if self.real else ["--python", f"fake={sys.executable}"]
        return tuple(words)

    def processes(self, leader: int) -> list[Process]:
        """All below parity, here and on the far side."""
        assert self.sshd is None or self.sshd.process is not None
        there = [] if self.sshd is None or self.sshd.process is None else below(self.sshd.process.pid)
        return [*below(leader), *there]

    def targets(self, leader: Process) -> dict[str, list[Process]]:
        """Who may be hit now, by name."""
        here = below(leader.pid)
        workers = [one for one in here if one.is_python and "parity_worker" in " ".join(one.words)]
        found = {"parity": [leader], "ssh": [one for one in here if one.is_ssh]}
        if self.sshd is not None and self.sshd.process is not None:
            there = below(self.sshd.process.pid)
            far = [one for one in there if one.is_python and "parity_worker" in " ".join(one.words)]
            found["connection"] = [one for one in there if one not in far and not one.is_python]
            found["far worker"] = far[:1]
            found["below the far worker"] = far[1:] or [deeper for one in far for deeper in below(one.pid)]
        else:
            found["worker"] = workers[:1]
            found["below the worker"] = workers[1:] or [deeper for one in workers for deeper in below(one.pid)]
        return found


def interpreter() -> Path:
    """The Python that has vLLM for CPU."""
    from parity.run import load_backend

    return load_backend("cpu").interpreter(lambda line: print(line, file=sys.stderr, flush=True))


@contextlib.contextmanager
def site_of(engine: str) -> Iterator[Site]:
    """Raises NoSshd where there is none for a far engine."""
    if not engine.endswith("far"):
        yield Site(engine)
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="parity-sshd-") as name:
        running = Sshd(find_sshd(CACHE), Path(name)).start()
        try:
            yield Site(engine, running)
        finally:
            running.stop()


# ------------------------------------------------------------------ what a run came to


def completions(path: Path) -> list[Any]:
    """What identifies a completion and all that the engine said of it; a doubled one stands twice."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    names = ("request", "round", "sample", "prompt_token_ids", "token_ids", "text", "finish_reason", "logprobs", "spec")
    found = [[one.get(name) for name in names] for one in records if one["record"] == "completion"]
    return sorted(found, key=lambda one: json.dumps(one[:3]))


def counted(path: Path) -> Any:
    """Steps and tokens of each round, without times and without what is said of the resumes."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    rounds = [(one["round"], one["counters"].get("tokens")) for one in records if one["record"] == "round"]
    (footer,) = (one for one in records if one["record"] == "footer")
    return sorted(rounds), footer["completions"], footer["counters"].get("replay_differences", 0)


def scored(path: Path) -> list[Any]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    names = ("arm", "request", "round", "sample", "logprobs")
    return sorted(
        ([one[name] for name in names] for one in records if one["record"] == "score"),
        key=lambda one: json.dumps(one[:4]),
    )


def outcome(here: Place) -> dict[str, Any]:
    """What a run came to, without what differs from run to run."""
    root = here.work / "run"
    result = json.loads((root / "result.json").read_text())
    captures = [path for path in sorted(root.glob("*-*.jsonl")) if not path.name.startswith("scores")]
    found = {
        "verdict": result["verdict"],
        "findings": {
            name: sorted([one["request"], one["round"], one["kind"], one["position"]] for one in arm["findings"])
            for name, arm in result["arms"].items()
        },
        "captures": {path.name: completions(path) for path in captures},
        "counted": {path.name: counted(path) for path in captures},
        "scores": {path.name: scored(path) for path in sorted(root.glob("scores*.jsonl"))},
        "files": sorted(str(path.relative_to(here.root)) for path in (*root.rglob("*"), *here.home.iterdir())),
    }
    return dict(json.loads(json.dumps(found)))


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """In words; files that SQLite keeps beside an open database are no difference."""
    said = []
    for name in wanted:
        if name == "files":
            strange = {one for one in set(found[name]) ^ set(wanted[name]) if not one.endswith(("-wal", "-shm"))}
            said += [f"file {one}" for one in sorted(strange)]
        elif found[name] != wanted[name]:
            said.append(f"other {name} than a run left alone: {first_difference(found[name], wanted[name])}")
    return said


def first_difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        name = next(one for one in {**found, **wanted} if found.get(one) != wanted.get(one))
        return f"{name}: {first_difference(found.get(name), wanted.get(name))}"
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return first_difference(*next((a, b) for a, b in zip(found, wanted, strict=True) if a != b))
    return f"{str(found)[:100]} for {str(wanted)[:100]}"


# ------------------------------------------------------------------ a kill


@dataclass
class Hit:
    """What one signal did."""

    said: str
    problems: list[str]
    code: int | None
    seconds: float
    hit: bool


def lines_of(run: Path) -> int:
    found = 0
    for path in run.glob("*.jsonl"):
        with contextlib.suppress(OSError):
            found += path.read_bytes().count(b"\n")
    return found


def moment(draw: random.Random, usual: float, lines: int, run: Path, process: subprocess.Popen[bytes]) -> str | None:
    """Wait for a random moment: of time, or of what has been written. None where the run ended before."""
    began, written = time.monotonic(), draw.randrange(lines) if draw.random() < 0.5 else None
    after = draw.uniform(0.0, 0.3) if written is not None else draw.uniform(0.2, usual)
    already = lines_of(run)
    while written is not None and lines_of(run) < max(written, already + 1):
        if process.poll() is not None or time.monotonic() - began > usual + MARGIN:
            return None
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after)
        return None
    return f"{time.monotonic() - began:.2f} s, {lines_of(run)} lines"


def killed(here: Place, site: Site, args: tuple[str, ...], draw: random.Random, usual: float, lines: int) -> Hit:
    """Start it, and hit one of its processes; what stays is a problem."""
    mark, began = os.urandom(8).hex(), time.monotonic()
    out, err = here.root / "out.txt", here.root / "err.txt"
    wanted, number = draw.choice(TARGETS[site.engine]), draw.choice(SIGNALS)
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "parity", *args], cwd=here.work, env={**here.environment(site.env), MARK: mark},
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
        )  # fmt: skip
        try:
            leader = Process(process.pid, started(process.pid))
            at = moment(draw, usual, lines, here.work / "run", process)
            there = {} if at is None else targets_with(wanted, site, leader, process)
            target = wanted if there.get(wanted) else "parity"
            seen = site.processes(process.pid)
            if process.poll() is not None:
                at = None
            if at is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(there[target]).pid, number)
        except BaseException:
            process.kill()
            raise
        problems = []
        try:
            code: int | None = process.wait(usual + MARGIN)
        except subprocess.TimeoutExpired:
            seen += site.processes(process.pid)
            process.kill()
            code = process.wait()
            problems.append("HANG")
    said = Ended("", code, 0.0, 0, out.read_text(errors="replace"), err.read_text(errors="replace")[-8000:])
    found = judged(said, ENDED, 1 << 20)
    if target != "parity" and "failed unexpectedly" not in said.err:
        found = [one for one in found if not one.startswith("TRACEBACK")]  # the end of a worker's log, quoted
    problems += found + leaks(here.root, said)
    left = outliving(seen, PATIENCE)
    problems += [f"left: {' '.join(one.words)[:80]}" for one in left]
    problems += [f"left of what it started: {pid}" for pid in orphans(mark)]
    for one in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    if problems:
        problems.append("said: " + " | ".join(said.err.strip().splitlines()[-3:])[-300:])
    told = f"{number.name} of {target} after {at}" if at else "over before it"
    return Hit(told, problems, code, time.monotonic() - began, at is not None)


def targets_with(
    wanted: str, site: Site, leader: Process, process: subprocess.Popen[bytes]
) -> dict[str, list[Process]]:
    """Who may be hit, as soon as the one that is wanted is there; after a while without it."""
    until = time.monotonic() + MARGIN
    while not (found := site.targets(leader)).get(wanted) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.05)
    return found


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def one_run(here: Place, site: Site, seed: int, most: int, alone: dict[str, Any]) -> Iterator[Ended]:
    """A run of this seed: each kill that hit, and how it ended."""
    draw = random.Random(f"{site.engine} {seed}")
    run, began = here.work / "run", time.monotonic()
    for turn in range(min(MOST if site.real else draw.randint(1, MOST), most)):
        resumed = (run / "plan.json").exists()
        if not resumed and run.exists():
            left = sorted(path.name for path in run.rglob("*"))
            run.rename(
                here.root / "given" / f"unbegun-{turn}"
            )  # killed while it was made: parity asks for another name
            if set(left) - {"lock", "logs", "run.json", "plan.json.part"}:
                yield Ended(f"seed {seed}", None, 0.0, 0, "", "", [f"begun without a plan: {left}"])
        args = ("run", "--resume", "--out", "run") if resumed else site.arguments
        hit = killed(here, site, args, draw, alone["seconds"], alone["lines"])
        if not hit.hit:
            if hit.problems:
                yield Ended(f"seed {seed}: {hit.said}", hit.code, hit.seconds, 0, "", "", hit.problems)
            break
        yield Ended(f"seed {seed}: {hit.said}", hit.code, hit.seconds, 0, "hit", "", hit.problems)
    if run.exists() and not (run / "plan.json").exists():
        run.rename(here.root / "given" / "unbegun")
    args = ("run", "--resume", "--out", "run") if run.exists() else site.arguments
    ended = here.run(f"seed {seed}, resumed", *args, seconds=alone["seconds"] * 3 + MARGIN, env=site.env)
    if not ended.problems:
        ended.problems += differences(outcome(here), alone["outcome"])
        checked = here.run("check", "runs", "check", env=site.env, fine=(0,))
        ended.problems += checked.problems and [f"runs check: {checked.code}", checked.out[-300:]]
    ended.seconds = time.monotonic() - began
    yield ended


def left_alone(site: Site, keep: Path | None) -> tuple[dict[str, Any], list[Ended]]:
    """An undisturbed run's outcome, read from `keep` where an earlier call wrote it."""
    if keep is not None and keep.exists():
        return dict(json.loads(keep.read_text())), []
    with place() as here:
        ended = here.run("left alone", *site.arguments, seconds=600, env=site.env, fine=(0, 4))
        if ended.problems:
            return {}, [ended]
        found = {"outcome": outcome(here), "seconds": ended.seconds, "lines": lines_of(here.work / "run")}
    if keep is not None:
        keep.parent.mkdir(parents=True, exist_ok=True)
        keep.write_text(json.dumps(found))
    return found, [ended]


def campaign(asked: Asked) -> Iterator[Ended]:
    """Runs from `first` on, until `count` kills hit."""
    count = 2 if asked.short else asked.count or KILLS
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        # What this process ignores (nohup) its children would ignore; what is caught here is not caught by them.
        signal.signal(number, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        try:
            site = stack.enter_context(site_of(asked.engine))
        except NoSshd as why:
            yield Ended(asked.engine, None, 0.0, 0, "", str(why), [f"no sshd: {why}"])
            return
        alone, said = left_alone(site, asked.keep)
        yield from said
        if not alone:
            return
        hits, seed = 0, asked.first
        while hits < count:
            with place() as here:
                for ended in one_run(here, site, seed, min(MOST, count - hits), alone):
                    hits += ended.out == "hit"
                    yield ended
            seed += 1
        print(f"{asked.engine}: {hits} kills hit; next: --first-seed {seed}", flush=True)
