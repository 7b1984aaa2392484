"""`kill -9` of parity at random moments of a run, again in its resumes, until it ends; then all is as if nobody had.

Captures hold the same completions once each, and verdict and findings are those of a run that was left alone.
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
from pathlib import Path
from typing import Any

from judging import Ended, Place, place

KILLS = 200
RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "16", "--rounds", "3", "--out", "run")
ENV = {"FAKE": "corrupt", "FAKE_STEP": "0.03"}


def completions(path: Path) -> list[tuple[Any, ...]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    found = [(r["request"], r["round"], r["sample"], *r["token_ids"]) for r in records if r["record"] == "completion"]
    return sorted(found)


def outcome(here: Place) -> dict[str, Any]:
    """What a run came to, without what differs from run to run."""
    root = here.work / "run"
    result = json.loads((root / "result.json").read_text())
    arms = {
        name: sorted((one["request"], one["round"], one["kind"], one["position"]) for one in arm["findings"])
        for name, arm in result["arms"].items()
    }
    captures = {path.name: completions(path) for path in sorted(root.glob("fake-*.jsonl"))}
    return {"verdict": result["verdict"], "arms": arms, "captures": captures}


def killed(here: Place, args: tuple[str, ...], after: float) -> tuple[bool, int | None]:
    """Start it, kill it after so many seconds: whether the kill hit, and else its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "parity", *args], cwd=here.work, env=here.environment(ENV), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return False, process.wait(after)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return True, None


def campaign(short: bool) -> Iterator[Ended]:
    draw = random.Random(0)
    with place() as alone:
        first = alone.run("left alone", *RUN, seconds=120, env=ENV)
        yield first
        wanted, usual = outcome(alone), first.seconds
    hits = 0
    while hits < (2 if short else KILLS):
        with place() as here:
            began, mine = time.monotonic(), 0
            for _ in range(6):
                resumable = (here.work / "run" / "plan.json").exists()
                if not resumable and (here.work / "run").exists():
                    break  # killed while the directory was made: nothing was begun
                args = ("run", "--resume", "--out", "run") if resumable else RUN
                hit, _ = killed(here, args, draw.uniform(0.3, usual))
                mine += hit
                if not hit:
                    break
            hits += mine
            if not (here.work / "run" / "plan.json").exists():
                continue
            ended = here.run(f"{mine} kills", "run", "--resume", "--out", "run", seconds=120, env=ENV)
            ended.seconds = time.monotonic() - began
            if not ended.problems and outcome(here) != wanted:
                ended.problems.append("another outcome than that of a run left alone")
            yield ended
