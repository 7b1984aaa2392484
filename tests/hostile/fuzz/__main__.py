"""`python -m tests.hostile.fuzz [DOOR …] --inputs N`: mutated inputs at each door, by coverage where atheris is installed.

atheris (`pip install atheris`) counts a fault as the end of a run, so faults are caught here, told once for each place in
the code, and kept as files. Exit code 3 where there were any.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

SLOW_SECONDS = 5.0
"""Of processor time for one small input."""

MOST_MIB = 256
"""Of memory that one small input asks for, beyond all before it (the fuzzer itself keeps its corpus in memory)."""

INSTRUMENTED = {
    "reader": ["parity.capture"], "recorded": ["parity.explain", "parity.capture"], "sketched": ["parity.explain", "parity.capture"], "comparator": ["parity.comparator"], "store": ["parity.store", "parity.pipeline.analyse"],
    "cells": ["parity.store", "parity.view", "parity.report"], "reports": ["parity.view", "parity.report"],
    "screens": ["parity.view", "parity.tui"], "app": ["parity.tui"],
}  # fmt: skip
"""Whose coverage guides; all of parity where nothing is named."""

POOL = 300


class Session:
    """One door, and what was found at it."""

    def __init__(self, door: str, keep: Path) -> None:
        from tests.hostile.fuzz.doors import tried

        self.door, self.keep, self.tried = door, keep, tried
        self.inputs = self.let_in = 0
        self.slowest = 0.0
        self.faults: dict[str, str] = {}
        self.taken: list[bytes] = []
        """Some of what was let in: what further inputs are made of."""
        self.began = time.monotonic()

    def __call__(self, data: bytes) -> None:
        self.inputs += 1
        began, before = time.process_time(), peak_mib()
        try:
            taken = self.tried(self.door, data)
            self.let_in += taken
            if taken and len(data) < LONGEST and (len(self.taken) < POOL or self.inputs % 16 == 0):
                self.taken = [*self.taken[-POOL:], data]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - each is a fault, and the next input is tried
            self.fault(error, data)
        took = time.process_time() - began
        self.slowest = max(self.slowest, took)
        if took > SLOW_SECONDS:
            self.fault(TimeoutError(f"{took:.1f} s"), data)
        if peak_mib() > before + MOST_MIB:
            self.fault(MemoryError(f"{peak_mib() - before} MiB"), data)
        if self.inputs % 1000 == 0:
            print(self.row(), flush=True)

    def fault(self, error: BaseException, data: bytes) -> None:
        frames = [one for one in traceback.extract_tb(error.__traceback__) if "/parity/" in one.filename]
        place = f"{frames[-1].filename.rpartition('/parity/')[2]}:{frames[-1].lineno}" if frames else "?"
        name = f"{type(error).__name__} at {place}"
        if name in self.faults:
            return
        path = self.keep / f"{self.door}-{len(self.faults)}"
        path.write_bytes(data)
        self.faults[name] = str(path)
        print(f"{self.door}: {name}: {str(error)[:200]} ({path})", flush=True)

    def row(self) -> str:
        took = time.monotonic() - self.began
        found = (
            self.door,
            self.inputs,
            self.let_in,
            len(self.faults),
            f"{self.slowest:.1f} s",
            f"{peak_mib()} MiB",
            f"{took:.0f} s",
        )
        return "| " + " | ".join(map(str, found)) + " |"


LONGEST = 20_000
"""Bytes of an input that others are made of."""


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def another(rng: random.Random, session: Session, seeds: list[bytes], data: bytes) -> bytes:
    """A mutation of this input, of a beginning or of one that was let in; of a capture mostly one that leaves it one."""
    from tests.hostile.fuzz.doors import CAPTURES, GENTLE
    from tests.hostile.fuzz.gentle import gently
    from tests.hostile.fuzz.mutation import mutated

    how = rng.random()
    begin = data if how < 0.4 and data else rng.choice(seeds if how < 0.5 or not session.taken else session.taken)
    gentle = GENTLE.get(session.door, gently if session.door in CAPTURES else None)
    if gentle is not None and rng.random() < 0.7:
        try:
            return gentle(rng, begin)
        except (ValueError, ArithmeticError, RecursionError, LookupError, TypeError, AttributeError):
            return gentle(rng, rng.choice(seeds))  # this one is no capture any more
    return mutated(rng, begin)


def drawn(session: Session, seeds: list[bytes], inputs: int, seed: int, seconds: float) -> None:
    """Without coverage."""
    rng = random.Random(f"{seed} {session.door}")
    while session.inputs < inputs and time.monotonic() - session.began < seconds:
        session(another(rng, session, seeds, b""))


def guided(session: Session, seeds: list[bytes], inputs: int, seed: int, seconds: float) -> NoReturn:
    """By coverage of parity's code: libFuzzer keeps what reaches something new. It ends this process."""
    import atheris

    corpus = session.keep / f"corpus-{session.door}"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(data)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.04:
            return bytes(atheris.Mutate(data, most))
        return another(rng, session, seeds, data)[:most]

    def one(data: bytes) -> None:
        session(data)
        if session.inputs >= inputs or time.monotonic() - session.began > seconds:
            print(session.row(), flush=True)
            os._exit(3 if session.faults else 0)

    arguments = [sys.argv[0], f"-max_len={2 * LONGEST}", "-len_control=0", "-rss_limit_mb=4000", "-timeout=900", "-verbosity=0",
                 f"-seed={seed + 1}", f"-artifact_prefix={session.keep}/", str(corpus)]  # fmt: skip
    atheris.Setup(arguments, one, custom_mutator=mutate)
    atheris.Fuzz()
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("doors", nargs="*")
    parser.add_argument("--inputs", type=int, default=20_000, help="for each door")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each door, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-faults"), help="directory for what was found")
    parser.add_argument("--plain", action="store_true", help="without coverage")
    args = parser.parse_args()
    os.nice(10)
    args.keep.mkdir(parents=True, exist_ok=True)
    os.environ["PARITY_HOME"] = str(args.keep / "home")
    try:
        import atheris

        coverage = not args.plain
    except ImportError:
        coverage = False
    if coverage and len(args.doors) != 1:
        return each_alone(args)
    with atheris.instrument_imports(include=INSTRUMENTED.get(args.doors[0], ["parity"])) if coverage else nullcontext():
        from tests.hostile.fuzz.doors import DOORS, beginnings

    failed = False
    for door in args.doors or list(DOORS):
        session = Session(door, args.keep)
        if coverage:
            guided(session, beginnings(door), args.inputs, args.seed, args.seconds)
        drawn(session, beginnings(door), args.inputs, args.seed, args.seconds)
        print(session.row(), flush=True)
        failed |= bool(session.faults)
    return 3 if failed else 0


def each_alone(args: argparse.Namespace) -> int:
    """A process for each door: what is instrumented stays so."""
    import subprocess

    from tests.hostile.fuzz.doors import DOORS

    worst = 0
    for door in args.doors or list(DOORS):
        command = [sys.executable, "-m", "tests.hostile.fuzz", door, "--inputs", str(args.inputs), "--seconds",
                   str(args.seconds), "--keep", str(args.keep), "--seed", str(args.seed)]  # fmt: skip
        worst = max(worst, abs(subprocess.run(command, check=False).returncode))
    return worst


if __name__ == "__main__":
    sys.exit(main())
