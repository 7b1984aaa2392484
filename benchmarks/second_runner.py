"""Faults in vLLM's second model runner: each planted row-step, and what the recorder's invariants say.

    .venv/bin/python benchmarks/second_runner.py [--prompts 8] [--tokens 10] [--rate 0.25] [--asynchronous]

In the environment `cpu-v2` (Triton's interpreter, some tokens a second), one start of the engine. Printed is a line for
each fault and for a clean capture: row-steps, planted, found at their step and row, and accused elsewhere. By default
the engine schedules synchronously; vLLM's default on CUDA is `--asynchronous`. There the last step is asked for before
all requests are known to have ended. Nobody takes its tokens, so it is in no file, and what is planted there does not
count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "backends"), str(ROOT)]


def main() -> None:
    import parity_faults
    from fault_lab import ENGINE, SPECULATION, planted, run_engine, short_requests
    from parity_backends.vllm.cpu_v2 import SWITCHES, CpuV2Backend
    from parity_backends.vllm.local import worker_source
    from parity_faults import second_runner

    from parity.capture.steps import read_steps
    from parity.explain.violations import check

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.25)
    parser.add_argument("--asynchronous", action="store_true", help="asynchronous scheduling, as on CUDA")
    args = parser.parse_args()
    backend = CpuV2Backend()
    model = backend.default_model()
    assert model is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "worker.py").write_bytes(worker_source())
        faults = {"none": "none", **{fault: f"{fault}:rate={args.rate}:seed=3" for fault in second_runner.ALL}}
        job = {
            "model": str(model),
            "variant": "mtp",
            "out": name,
            "sampling": {"temperature": 0.0, "max_tokens": args.tokens},
            "requests": short_requests(model)[: args.prompts],
            "engine": {**ENGINE, **SPECULATION, "async_scheduling": args.asynchronous},
            "recorder": str(folder / "worker.py"),
            "captures": [{"name": fault, "fault": text} for fault, text in faults.items()],
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = ["-m", "parity_faults.lab", str(folder / "job.json")]
        variables = {**SWITCHES, **parity_faults.unpacked(folder)}
        run_engine(backend.interpreter(print), command, folder / "log", **variables)
        for fault in faults:
            (steps,) = read_steps(folder / fault / "mtp.steps")
            checked = check(steps)
            kept = set(steps.columns["step"].tolist())
            due = {(one["step"], one["row"], one["request"]) for one in planted(folder / fault) if one["step"] in kept}
            found = {(one.step, one.row, one.request.engine_id) for one in checked.violations}
            by = ", ".join(sorted({one.invariant for one in checked.violations}))
            print(
                f"{fault}: {checked.row_steps} row-steps, {len(due)} planted, {len(due & found)} found, "
                f"{len(found - due)} elsewhere; {by}; not asked: {list(checked.unasked)}"
            )


if __name__ == "__main__":
    main()
