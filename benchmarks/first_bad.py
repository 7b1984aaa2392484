"""The first bad version of an engine, over real versions, and the same again when killed in the middle.

    python benchmarks/first_bad.py DIRECTORY [--versions 0.27.1,0.29.0,0.31.0,0.32.0] [--begins 0.31.0] [--kill-at 35]

A fault that is dormant before one version is planted in the arm with speculation, and `parity bisect versions` is asked
for it: once without a disturbance, once killed with SIGKILL at its `--kill-at`th shot and started again. Wanted: both
name the version from which the fault is planted, and every version could be asked (0.27.1 runs the embedded checkpoint
with `mamba_ssm_cache_dtype=float32` only, so the plan has it for all). Exit code 1 where one is missed. Environments
that are missing are built: minutes and 2.5 GB each. Interrupted, the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from parity.run import load_backend

COMMAND = [sys.executable, "-m", "parity"]


def faulty_plan(path: Path, fault: str) -> None:
    """Writes a plan of two prompts whose candidate has the fault; 20 rounds say how often it is to be seen."""
    directory = path.parent
    prompts = directory / "prompts.txt"
    prompts.write_text("In the beginning God\nThe capital of France is\n")
    make = ["plan", "--backends", "cpu", "--prompts", str(prompts), "--max-tokens", "16", "--rounds", "20"]
    make += ["--score", "differing", "--engine", "mamba_ssm_cache_dtype=float32", "-o", str(directory / "plan.json")]
    subprocess.run([*COMMAND, *make], check=True)
    plan = json.loads((directory / "plan.json").read_text())
    for arm in plan["arms"]:
        if arm["name"] != plan["baseline"]:
            arm["env"].update(load_backend("cpu").plant(fault))
    path.write_text(json.dumps(plan))


def bisect(args: argparse.Namespace, plan: Path, name: str, kill_at: int | None = None) -> dict[str, Any]:
    """What the command says, with the seconds it took; killed at that shot first where one is given."""
    versions = args.versions.split(",")
    out = args.directory / name
    command = [*COMMAND, "bisect", "versions", versions[0], versions[-1], "--versions", args.versions]
    command += ["--plan", str(plan), "--out", str(out), "--db", str(args.directory / "parity.db"), "--json"]
    print(f"$ parity {' '.join(command[3:])}", file=sys.stderr, flush=True)
    began = time.monotonic()
    state = args.directory / f"{name}.json"
    if state.exists():
        known: dict[str, Any] = json.loads(state.read_text())
        if "first_bad" in known:
            return known
        killed = known["killed_at"]
    else:
        killed = 0
    if kill_at is not None and not killed:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        while process.poll() is None and shots(out) < kill_at:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed = shots(out)
        state.write_text(json.dumps({"killed_at": killed}))
        print(f"killed with {killed} shots in the notebook", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        sys.exit(done.returncode)
    found = {**json.loads(done.stdout), "wall": time.monotonic() - began, "killed_at": killed}
    state.write_text(json.dumps(found, indent=1))
    return found


def shots(out: Path) -> int:
    notebook = out / "shots.jsonl"
    return notebook.read_bytes().count(b'"record":"shot"') if notebook.exists() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--versions", default="0.27.1,0.29.0,0.31.0,0.32.0")
    parser.add_argument("--begins", default="0.31.0", help="the version from which the fault is planted")
    parser.add_argument("--fault", default="chunk_twice:rate=0.1:independent=1")
    parser.add_argument("--kill-at", type=int, default=35, help="the shot at which the second search is killed")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    plan = args.directory / "faulty.json"
    if not plan.exists():
        faulty_plan(plan, f"{args.fault}:from_version={args.begins}")
    held = []
    for name, kill_at in (("whole", None), ("killed", args.kill_at)):
        found = bisect(args, plan, name, kill_at)
        versions = {step["tried"]: step for step in found["steps"]}
        right = found["first_bad"] == args.begins and found["named"]
        held += [right, not any(step.get("why") for step in versions.values())]
        print(
            f"{'ok    ' if right else 'MISSED'}  {name}: first bad {found['first_bad']}, last good {found['last_good']}"
        )
        for version in found["versions"]:
            step = versions.get(version)
            if step:
                answer = step.get("why") or f"{step['failures']} of {step['shots']} shots failed"
                print(f"        {version}: {answer}")
        print(f"        {found['shots']} shots, {found['engine_starts']} engine starts, {found['wall']:.0f} s", end="")
        print(f", killed after {found['killed_at']} shots" if kill_at is not None else "")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
