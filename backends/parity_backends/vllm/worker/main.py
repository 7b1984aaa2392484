"""Where the worker begins: under a supervisor, or by hand."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from typing import IO, Any, Callable

from parity_backends.worker.protocol import Channel, end_children, serve
from parity_backends.worker.records import items_to_score
from parity_backends.worker.sentences import WorkerError
from parity_backends.worker.sketch_modules import PARTS

from .arm import Arm

ENGINE_PACKAGES = ("vllm", "torch", "numpy")
NO_ENGINE = "%s has no %s: run this file with the Python that has vLLM, as /path/to/its/bin/python %s PLAN --arm ARM\n"


def supervised(stream: IO[bytes]) -> None:
    serve(stream, Arm)


def preload(backend: str) -> dict[str, str]:
    """What must be loaded before Python is: vLLM for CPU sets it for processes it starts, too late for this one."""
    library = os.path.join(sys.prefix, "lib", "libiomp5.so")
    present = os.environ.get("LD_PRELOAD", "")
    if backend != "cpu" or "libiomp5.so" in present or not os.path.exists(library):
        return {}
    return {"LD_PRELOAD": library + ":" + present if present else library}


def by_hand(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Run one arm of a parity plan; the capture goes to stdout.")
    parser.add_argument("plan", help="plan file made by `parity plan`")
    parser.add_argument("--arm", required=True, help="name of the arm, for example cpu/base")
    parser.add_argument("--model", help="checkpoint directory on this host, where it differs from the plan's")
    parser.add_argument("--score", action="append", default=[], metavar="CAPTURE",
                        help="score the completions of this capture instead (repeatable)")  # fmt: skip
    parser.add_argument("--steps", metavar="FILE", help="record every engine step into this file (CAPTURE.steps)")
    parser.add_argument("--sketches", metavar="FILE", help="sketch activations into this file (CAPTURE.sketches)")
    parser.add_argument("--top", type=int, default=5, help="top logprobs per scored token")
    args = parser.parse_args(argv)
    try:
        with open(args.plan, encoding="utf-8") as file:
            plan = json.load(file)
        items = [item for path in args.score for item in items_to_score(path)]
        arms = {arm["name"]: arm for arm in plan["arms"]}
    except OSError as error:
        parser.error("cannot read %s: %s" % (error.filename, error.strerror))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        parser.error("not a plan of `parity plan`, or not a capture: %s: %s" % (type(error).__name__, error))
    if args.arm not in arms:
        parser.error("the plan has no arm %r; it has %s" % (args.arm, ", ".join(arms)))
    arm_plan = arms[args.arm]
    if args.model:
        plan["model"]["path"] = args.model
    wanted = {**preload(arm_plan["backend"]), **(arm_plan.get("env") or {})}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # Some (LD_PRELOAD, OMP_*) only count when set before the process starts.
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, "-u", os.path.abspath(__file__), *argv])
    channel = Channel(events=False)
    plan["record"] = bool(args.steps)
    plan["sketch"] = (plan.get("sketch") or PARTS) if args.sketches else ""
    arm = Arm(plan, args.arm, channel, threading.Event())
    if args.steps:
        arm.write_steps = lines_into(args.steps)
    if args.sketches:
        arm.write_sketches = lines_into(args.sketches)
    try:
        arm.start()
        if args.score:
            done = arm.score(items, args.top)
            counted = {"unscored": len(items) - done, "engine_start_seconds": round(arm.start_seconds, 3)}
            channel.record({"record": "footer", "completions": 0, "scores": done, "counters": counted})
        else:
            arm.generate(list(range(plan.get("rounds", 1))))
        arm.close()
    except ModuleNotFoundError as error:
        if error.name not in ENGINE_PACKAGES:
            raise
        parser.exit(2, NO_ENGINE % (sys.executable, error.name, os.path.abspath(__file__)))
    except WorkerError as error:
        parser.exit(3, "%s: %s\n" % (parser.prog, error))
    finally:
        end_children(group=False)


def lines_into(path: str) -> Callable[[dict[str, Any]], None]:
    """Writes each record as a line of a file, at once."""
    with open(path, "w", encoding="utf-8"):
        pass  # what cannot be written is found before an engine starts

    def write(record: dict[str, Any]) -> None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")

    return write


if __name__ == "__main__":
    by_hand(sys.argv[1:])
