"""Clean row-steps by the million: the real engine driven hard, every step recorded, every invariant asked.

    .venv/bin/python benchmarks/clean_steps.py [--minutes 10] [--rows 64] [--seed 0] [--blocks 24] [--json FILE]

One start of the CPU engine with speculation and few blocks for keys, values and states. Requests arrive in waves and
alone, prompts come in chunks, some requests are drawn, some have four samples, some are aborted, some are preempted. A
round runs until no request is left; then its steps are checked and thrown away, and what is counted is printed: nothing
but a violation is kept, in FILE.steps beside the JSON. The count grows from call to call with --json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def outside(args: argparse.Namespace) -> None:
    """In parity's own interpreter: makes the job, starts the engine's and checks what it sends."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "backends"), str(ROOT)]
    import subprocess

    from fault_lab import ENGINE, SPECULATION, short_requests
    from parity_backends.vllm.cpu import CpuBackend
    from parity_backends.vllm.local import worker_source

    backend = CpuBackend()
    model = backend.default_model()
    assert model is not None
    interpreter = backend.interpreter(print)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "worker.py").write_bytes(worker_source())
        engine = {**ENGINE, **SPECULATION, "max_num_seqs": args.rows, "max_num_batched_tokens": args.budget}
        if args.blocks:
            engine["num_gpu_blocks_override"] = args.blocks
        job = {
            "model": str(model), "engine": engine, "worker": str(folder / "worker.py"), "folder": name,
            "prompts": [one["prompt_token_ids"] for one in short_requests(model)], "seed": args.seed,
            "minutes": args.minutes, "requests": args.rows * 6, "tokens": args.tokens,
        }  # fmt: skip
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        variables = {**os.environ, **backend.env_defaults("mtp"), **backend.launch_env(interpreter)}
        command = [str(interpreter), str(Path(__file__).resolve()), "--inside", str(folder / "job.json")]
        with (folder / "log").open("w") as log, subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdin is not None
            for line in process.stdout:
                said = json.loads(line)
                total.update(checked(Path(said["steps"]), args))
                total.update(said["counted"])
                total["rounds"] += 1
                print(json.dumps(total), flush=True)
                process.stdin.write("\n")
                process.stdin.flush()
            code = process.wait()
        if code:
            print((folder / "log").read_text(encoding="utf-8")[-4000:], file=sys.stderr)
    if args.json:
        before = json.loads(args.json.read_text(encoding="utf-8")) if args.json.exists() else {}
        total.update(before)
        args.json.write_text(json.dumps(total, indent=1) + "\n", encoding="utf-8")
        print("with those before:", json.dumps(total))


def checked(path: Path, args: argparse.Namespace) -> Counter[str]:
    """What the invariants say of one round, whose file is removed."""
    from parity.capture.steps import read_steps
    from parity.explain.violations import check

    found: Counter[str] = Counter()
    for steps in read_steps(path):
        result = check(steps)
        arrivals = steps.numbers("arrival")
        found.update(
            row_steps=result.row_steps,
            steps=len(steps.rows),
            violations=len(result.violations),
            resumed=int((arrivals == 2).sum()),
            chunks=int((steps.lists("handed").counts == 0).sum()),
            drafted=int((steps.lists("drafts").counts > 0).sum()),
            drawn=len(steps) - sum(steps.requests[int(number)].plain for number in steps.numbers("request")),
            unasked=len(result.unasked),
            stopped=int(steps.stopped is not None),
        )
        found.update(f"violations of {one.invariant}" for one in result.violations)
        if result.violations:
            kept = (args.json or Path("clean_steps.json")).with_suffix(f".{args.seed}-{int(time.time())}.steps")
            kept.write_bytes(path.read_bytes())
            for one in result.violations[:5]:
                print(f"{kept}: step {one.step} row {one.row}: {one.invariant}: {one.expected} {one.found}", flush=True)
    path.unlink()
    return found


def inside(path: Path) -> None:
    """In the engine's interpreter: rounds until the time is up. stdout has a line for each."""
    job = json.loads(path.read_text(encoding="utf-8"))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    worker = ModuleType("worker")
    sys.modules["worker"] = worker
    exec(compile(Path(job["worker"]).read_text(encoding="utf-8"), "worker.py", "exec"), worker.__dict__)
    llm = LLM(model=job["model"], **job["engine"])
    recorder = worker.recorder_of(llm, lambda record: None, "cpu/mtp", lambda name: None)
    draw = random.Random(job["seed"])
    ends = time.monotonic() + 60 * job["minutes"]
    number = 0
    while time.monotonic() < ends:
        number += 1
        steps = Path(job["folder"]) / f"{number}.steps"
        with steps.open("w", encoding="utf-8") as stream:
            recorder.restart(lambda record, stream=stream: stream.write(json.dumps(record) + "\n"))
            recorder.on = True
            counted = drive(llm.llm_engine, draw, job, number)
            recorder.flush()
            recorder.on = False
        out.write(json.dumps({"steps": str(steps), "counted": counted}) + "\n")
        out.flush()
        sys.stdin.readline()
    os._exit(0)


def drive(engine: Any, draw: random.Random, job: dict[str, Any], number: int) -> dict[str, int]:
    """One round: requests join while others run; some are aborted on the way."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    left, running, counted = job["requests"], [], Counter[str]()
    while left or engine.has_unfinished_requests():
        joining = min(left, draw.choice((0, 0, 1, 2, 3, job["requests"] // 4)) if running else job["requests"] // 3)
        for _ in range(joining):
            left -= 1
            prompt = [token for _ in range(draw.choice((1, 1, 2, 4))) for token in draw.choice(job["prompts"])]
            kind = draw.random()
            drawn = {"temperature": 0.8, "top_p": 0.9} if kind < 0.3 else {"temperature": 0.0}
            samples = 4 if kind < 0.05 else 1
            params = SamplingParams(max_tokens=draw.randint(1, job["tokens"]), n=samples, ignore_eos=True, **drawn)
            name = f"{number}-{left}"
            engine.add_request(name, TokensPrompt(prompt_token_ids=prompt[:190]), params)
            running.append(name)
            counted["requests"] += 1
        if running and draw.random() < 0.02:
            engine.abort_request([running.pop(draw.randrange(len(running)))])
            counted["aborts"] += 1
        for output in engine.step():
            if output.finished and output.request_id in running:
                running.remove(output.request_id)
    return dict(counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch (max_num_seqs)")
    parser.add_argument("--budget", type=int, default=512, help="tokens of a step (max_num_batched_tokens)")
    parser.add_argument("--blocks", type=int, default=0, help="blocks of keys, values and states; 0: as many as fit")
    parser.add_argument("--tokens", type=int, default=60, help="the longest completion")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="adds to the counts of an earlier call")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    inside(args.inside) if args.inside else outside(args)


if __name__ == "__main__":
    main()
