"""A rare fault found, narrowed down and shown again, on a real engine: how long it takes, and what is left of it.

    python benchmarks/reduce.py DIRECTORY [--fault chunk_twice:rate=0.01] [--rounds 2] [--tokens 32] [--minutes 10]

An engine with a fault planted at one step in a hundred plays the engine under test: it is in both arms, and the fault
shows with speculation only. The arms differ in three more settings that do not matter. Three commands, each as a user
would type it: `parity run`; `parity reduce`, with its look at the settings and the run of the reduced plan in fresh
engines; `parity bisect settings` of the run's arms.

Wanted: the run is DIVERGED; the reduced plan has at most four requests and a quarter of the tokens and fails again in
fresh engines, in at most ten minutes on two cores, all of it; both the reduction and the bisect name speculation. Exit
code 1 where one is missed. Interrupted, the same command goes on: every stage keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from parity.run import load_backend

DIVERGED = 1
IRRELEVANT = {"max_num_batched_tokens": 1024, "seed": 1}
"""Engine settings in which the failing arm differs besides speculation."""


def parity(*arguments: str) -> tuple[int, str, float]:
    """Exit code, stdout and seconds of a command."""
    began = time.monotonic()
    print("$ parity " + " ".join(arguments), file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", "parity", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, time.monotonic() - began


class Stages:
    """Results of the stages that are over, in a file; time is added up over attempts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def put(self, name: str, value: Any) -> None:
        self.done[name] = value
        self.path.write_text(json.dumps(self.done, indent=1))


def faulty_plan(directory: Path, args: argparse.Namespace) -> Path:
    path = directory / "faulty.json"
    if path.exists():
        return path
    code, _, _ = parity(
        "plan", "--backends", "cpu", "--suite", "mixed", "--score", "differing", "--max-tokens", str(args.tokens),
        "--rounds", str(args.rounds), "--max-num-seqs", str(args.rows), "-o", str(directory / "plan.json"),
    )  # fmt: skip
    if code:
        sys.exit(code)
    plan = json.loads((directory / "plan.json").read_text())
    fault = load_backend("cpu").plant(args.fault)
    for arm in plan["arms"]:
        arm["env"].update(fault)
        if arm["name"] != plan["baseline"]:
            arm["engine"].update(IRRELEVANT)
            arm["env"]["VLLM_CPU_KVCACHE_SPACE"] = "2"
    path.write_text(json.dumps(plan))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fault", default="chunk_twice:rate=0.01")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rows", type=int, default=16, help="max_num_seqs: the batch runs in waves of so many rows")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--until", choices=("run", "reduce", "bisect"), default="bisect", help="the last stage to run")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    database = str(args.directory / "parity.db")
    stages = Stages(args.directory / "stages.json")
    plan = faulty_plan(args.directory, args)

    if "run" not in stages.done:
        out = args.directory / "run"
        how = (
            ["--resume", "--out", str(out)]
            if (out / "plan.json").exists()
            else ["--plan", str(plan), "--out", str(out)]
        )
        code, text, seconds = parity("run", *how, "--db", database, "--json")
        if code not in (0, DIVERGED):
            return code
        result = json.loads(text)
        kinds = {name: arm["counts"] for name, arm in result["arms"].items()}
        stages.put("run", {"code": code, "run": result["run"], "kinds": kinds, "seconds": seconds})
    if stages.done["run"]["code"] != DIVERGED:
        print("the run did not find the fault: is it planted often enough for its steps?")
        return 1
    run = stages.done["run"]["run"]
    if args.until == "run":
        return 0

    if "reduce" not in stages.done:
        code, text, seconds = parity(
            "reduce", "--run", run, "--db", database, "--json", "--minutes", str(args.minutes),
            "-o", str(args.directory / "reduced.json"), "--out", str(args.directory / "reduce"),
        )  # fmt: skip
        if not text:
            return code
        stages.put("reduce", {"code": code, **json.loads(text), "wall": seconds})
    if args.until == "reduce":
        return 0
    if "bisect" not in stages.done:
        code, text, _ = parity(
            "bisect", "settings", "cpu/mtp", "cpu/base", "--run", run, "--db", database, "--json",
            "--out", str(args.directory / "bisect"),  # a notebook of its own: the reduction's has the answers already
        )  # fmt: skip
        if not text:
            return code
        stages.put("bisect", {"code": code, **json.loads(text)})
    return report(stages.done)


def report(done: dict[str, Any]) -> int:
    reduce, bisect = done["reduce"], done["bisect"]
    before, after = reduce["before"], reduce["after"] or reduce["before"]
    named = [one["name"] for one in bisect["settings"] or []]
    needed = [one["name"] for one in (reduce["settings"] or {}).get("settings") or []]
    confirmation = reduce["confirmation"] or {"round": {"rate": 0, "low": 0, "high": 1}, "shots": 0, "failures": 0}
    rows = [
        ("found in one command", done["run"]["code"] == DIVERGED, f"{done['run']['kinds']}"),
        ("at most four requests", after["requests"] <= 4, f"{before['requests']} → {after['requests']}"),
        ("a quarter of the tokens", after["tokens"] <= before["tokens"] / 4, f"{before['tokens']} → {after['tokens']}"),
        ("in ten minutes", reduce["wall"] <= 600, f"{reduce['wall']:.0f} s, {reduce['shots']} shots"),
        ("needs speculation only", needed == ["speculation"], f"{needed}"),
        ("reproduces with fresh engines", reduce["reproduced"] is not None, f"{reduce['attempts']}"),
        ("names speculation", named == ["speculation"], f"{named} of {[one['name'] for one in bisect['differ']]}"),
    ]
    for what, holds, figures in rows:
        print(f"{'ok    ' if holds else 'MISSED'}  {what:32} {figures}")
    share, plan = confirmation["round"], confirmation.get("plan", {})
    print(
        f"{confirmation['failures']} of {confirmation['shots']} new shots failed: {share['rate']} a round "
        f"({share['low']} to {share['high']} at 95 %), all {after['rounds']} rounds with {plan.get('probability')}"
    )
    print(
        f"run: {done['run']['seconds']:.0f} s (the last attempt); reduce: {reduce['engine_starts']} engine starts; "
        f"bisect: {bisect['shots']} shots, {bisect['engine_starts']} engine starts, {bisect['seconds']:.0f} s"
    )
    return 0 if all(holds for _, holds, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
