"""What sketches cost: tokens/s with and without them, alternating in one engine, and bytes a token and module.

    .venv/bin/python benchmarks/sketches.py [--level layers] [--rows 4] [--pairs 6] [--copies 1] [--json FILE]

One start of the CPU engine with speculation. Each pair runs the same requests once bare (the hooks are there and look
at nothing) and once sketched, in turns first. On a machine that does other things as well wall-clock figures say
little: so tokens are also set against the CPU seconds of the engine's main thread, which runs every step and hook.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def outside(args: argparse.Namespace) -> None:
    """In parity's own interpreter: makes the job and starts the engine's."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "backends"), str(ROOT)]
    from fault_lab import ENGINE, SPECULATION, run_engine, short_requests
    from parity_backends.vllm.cpu import CpuBackend
    from parity_backends.vllm.local import worker_source

    model = args.model or CpuBackend().default_model()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "worker.py").write_bytes(worker_source())
        job = {
            "model": str(model),
            "engine": {**ENGINE, **SPECULATION, "max_num_seqs": args.rows, "max_num_batched_tokens": 2048},
            "requests": [one["prompt_token_ids"] for one in short_requests(model)] * args.copies,
            "tokens": args.tokens,
            "pairs": args.pairs,
            "level": args.level,
            "worker": str(folder / "worker.py"),
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [str(Path(__file__).resolve()), "--inside", str(folder / "job.json")]
        run_engine(CpuBackend().interpreter(print), command, folder / "log")
        result = json.loads((folder / "job.json.result").read_text(encoding="utf-8"))
    print(json.dumps(result, indent=2))
    if args.json:
        args.json.write_text(json.dumps(result), encoding="utf-8")


def inside(path: Path) -> None:
    """In the engine's interpreter."""
    job = json.loads(path.read_text(encoding="utf-8"))
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    worker = ModuleType("worker")
    sys.modules["worker"] = worker
    exec(compile(Path(job["worker"]).read_text(encoding="utf-8"), "worker.py", "exec"), worker.__dict__)
    llm = LLM(model=job["model"], **job["engine"])
    size = {"bytes": 0, "tokens": 0, "modules": 0}

    def write(record: dict[str, Any]) -> None:
        size["bytes"] += len(json.dumps(record, separators=(",", ":"))) + 1
        size["tokens"] += record.get("tokens", 0)
        size["modules"] = len(record.get("modules", ())) or size["modules"]

    sketcher = worker.sketcher_of(llm, write, "cpu/mtp", lambda name: None, job["level"])
    prompts = [TokensPrompt(prompt_token_ids=one) for one in job["requests"]]
    params = [SamplingParams(temperature=0, max_tokens=job["tokens"] - (7 * i) % 23) for i in range(len(prompts))]

    def run(sketched: bool) -> tuple[float, float, Any]:
        began, cpu = time.perf_counter(), time.thread_time()
        if sketched:
            sketcher.begin("generate")
        outputs = llm.generate(prompts, params, use_tqdm=False)
        if sketched:
            sketcher.end()
        seconds, cpu = time.perf_counter() - began, time.thread_time() - cpu
        tokens = [list(one.outputs[0].token_ids) for one in outputs]
        count = sum(map(len, tokens))
        return count / seconds, count / cpu, tokens

    run(False)
    run(True)
    speeds: dict[bool, list[float]] = {False: [], True: []}
    by_cpu: dict[bool, list[float]] = {False: [], True: []}
    said = []
    for pair in range(job["pairs"]):
        for sketched in (False, True) if pair % 2 == 0 else (True, False):
            speed, cpu_speed, tokens = run(sketched)
            speeds[sketched].append(speed)
            by_cpu[sketched].append(cpu_speed)
            said.append(tokens)
    ratios, cpu_ratios = (
        [with_ / without for without, with_ in zip(some[False], some[True], strict=True)] for some in (speeds, by_cpu)
    )
    result = {
        "level": job["level"],
        "modules": size["modules"],
        "rows": job["engine"]["max_num_seqs"],
        "requests": len(prompts),
        "tokens_per_second_bare": round(statistics.median(speeds[False]), 1),
        "tokens_per_second_sketched": round(statistics.median(speeds[True]), 1),
        "median_of_pairs": round(statistics.median(ratios), 4),
        "pairs_each": [round(one, 4) for one in ratios],
        "cpu_median_of_pairs": round(statistics.median(cpu_ratios), 4),
        "cpu_pairs_each": [round(one, 4) for one in cpu_ratios],
        "bytes_a_token": round(size["bytes"] / max(1, size["tokens"]), 1),
        "bytes_a_token_and_module": round(size["bytes"] / max(1, size["tokens"] * size["modules"]), 1),
        "same_tokens_in_all_runs": all(one == said[0] for one in said),
    }
    Path(f"{path}.result").write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=("layers", "parts"), default="parts")
    parser.add_argument("--rows", type=int, default=4, help="rows of a batch (max_num_seqs)")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--copies", type=int, default=1, help="how often the 49 requests are asked")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    inside(args.inside) if args.inside else outside(args)


if __name__ == "__main__":
    main()
