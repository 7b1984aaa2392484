"""How much memory parity takes while arms generate, are scored, read, compared and stored; arm by arm.

    python benchmarks/memory.py [--arms 1,2,4,8] [--rounds 40] [--tokens 64] [--differing 10] [--score differing]

Runs `parity run` with an engine of a few lines behind the real worker (the one of the tests): 64 prompts × 8 samples ×
`--rounds` rounds of `--tokens` tokens for the baseline and for each of N candidates, one completion in `--differing`
parting at a near-tie. Reads the peak of parity's own process (`VmHWM` in /proc, so Linux only), set back to what the
process has whenever a stage begins, so each figure is that stage's own:

- start: from the first import to the first engine
- generating: engines run, completions go to the files
- scoring: the baseline's engine teacher-forces what differs
- comparing: captures are read, compared, stored and shown

Needs parity with its test files beside it, no engine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

DOUBLES = Path(__file__).parents[1] / "tests" / "support"
STAGES = ("start", "generating", "scoring", "comparing")
SAMPLES = 8

PARITY = """
import atexit, os, sys

def tell():
    with open("/proc/self/status") as status, open(os.environ["PEAK_FILE"], "w") as file:
        file.write(str(next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))))

atexit.register(tell)
from parity.cli.main import entry
sys.exit(entry())
"""
"""`parity` in a process that leaves the peak of its last stage behind."""


def environment(folder: Path, differing: int) -> dict[str, str]:
    """One in which parity finds the fake backend, with a home of its own."""
    metadata = folder / "site" / "fake_backend-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-backend\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[parity.backends]\nfake = backend:FakeBackend\n")
    inherited = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "PARITY_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join(filter(None, (inherited, str(folder / "site"), str(DOUBLES)))),
        "FAKE_STARTS": str(folder / "starts.txt"),
        "FAKE_EVERY": str(differing),
        "PARITY_LANG": "en",
    }


def plan_of(arms: int, options: argparse.Namespace, folder: Path, env: dict[str, str]) -> Path:
    """A plan file with that many candidates: the same one under several names."""
    path = folder / "plan.json"
    parts = ["--backends", "fake", "--max-tokens", options.tokens, "--samples", SAMPLES]
    parts += ["--rounds", options.rounds, "--score", options.score, "-o", path]
    subprocess.run([sys.executable, "-m", "parity", "plan", *map(str, parts)], env=env, check=True, capture_output=True)
    plan: dict[str, Any] = json.loads(path.read_text())
    (candidate,) = (arm for arm in plan["arms"] if arm["name"] != plan["baseline"])
    plan["arms"] = [arm for arm in plan["arms"] if arm is not candidate]
    for number in range(arms):
        plan["arms"].append({**deepcopy(candidate), "name": f"{candidate['name']}-{number + 1}"})
    path.write_text(json.dumps(plan))
    return path


def peak(pid: int, *, set_back: bool) -> int:
    """MiB; the largest resident size since the last time it was set back. 0 where the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)
        if set_back:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return 0
    return found


def stage_after(line: str, now: str) -> str:
    """The stage that a line of parity's progress begins."""
    says = line.partition(": ")[2].split(",")[0].split(" ")[0].strip()
    if says in ("starting", "generating", "scoring"):
        return "scoring" if says == "scoring" else "generating"
    return "comparing" if says == "done" else now


def measure(arms: int, options: argparse.Namespace) -> dict[str, Any]:
    """Peaks in MiB and seconds by stage, and the first line of what the run came to."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        folder = Path(name)
        env = environment(folder, options.differing)
        command = ["run", "--plan", str(plan_of(arms, options, folder, env))]
        with (folder / "out.txt").open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", PARITY, *command, *(["--json"] if options.as_json else [])],
                env={**env, "PEAK_FILE": str(folder / "peak.txt")},
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert process.stderr is not None
        peaks: dict[str, int] = defaultdict(int)
        seconds: dict[str, float] = defaultdict(float)
        stage, since, said = "start", time.perf_counter(), ""
        for line in process.stderr:
            said = line
            following = stage_after(line, stage)
            if following != stage:
                peaks[stage] = max(peaks[stage], peak(process.pid, set_back=True))
                seconds[stage] += time.perf_counter() - since
                stage, since = following, time.perf_counter()
        if process.wait() not in (0, 1, 4):
            raise SystemExit(f"parity ended with {process.returncode}: {said}")
        seconds[stage] += time.perf_counter() - since
        peaks[stage] = max(peaks[stage], int((folder / "peak.txt").read_text()))
        with (folder / "out.txt").open() as told:
            return {"arms": arms, "peak_mib": dict(peaks), "seconds": dict(seconds), "told": told.readline().strip()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", default="1,2,4,8", help="numbers of candidates")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--differing", type=int, default=10, help="one completion in this many")
    parser.add_argument("--score", default="differing", choices=["all", "differing", "none"])
    parser.add_argument("--as-json", action="store_true", help="the result as JSON instead of the summary")
    parser.add_argument("--scratch", help="where the runs are written for the time being")
    parser.add_argument("--json", dest="json_file", help="also write the numbers here")
    options = parser.parse_args()
    print(
        f"{64 * SAMPLES * options.rounds} completions of {options.tokens} tokens an arm, one in {options.differing} "
        f"differs, --score {options.score}; peak of parity's process in MiB (seconds)"
    )
    print("candidates  " + "".join(f"{stage:>18s}" for stage in STAGES))
    results = []
    for arms in map(int, options.arms.split(",")):
        results.append(measure(arms, options))
        cells = [
            f"{results[-1]['peak_mib'].get(stage, 0)} ({results[-1]['seconds'].get(stage, 0):.1f})" for stage in STAGES
        ]
        print(f"{arms:10d}  " + "".join(f"{cell:>18s}" for cell in cells), flush=True)
    if options.json_file:
        Path(options.json_file).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
