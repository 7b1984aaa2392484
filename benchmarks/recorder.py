"""What the flight recorder costs: tokens/s with and without it, alternating in one engine, and bytes a row-step.

    .venv/bin/python benchmarks/recorder.py [--rows 4] [--pairs 8] [--copies 1] [--json FILE]

One start of the CPU engine with speculation. Each pair runs the same requests once as vLLM is and once recorded, in
turns first; what is compared is the median, and pair by pair. On a machine that does other things as well, wall-clock
figures say little: so tokens are also set against the CPU seconds of the engine's main thread, which runs every step,
and the recorder's own part is the CPU time of that thread inside its doors. All runs do the same work in the same step:
`of_steps` compares the sums over steps of each step's median over the runs, with the wait for the last block, and is
what says most where something else ran in between.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
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

    model = CpuBackend().default_model()
    assert model is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "worker.py").write_bytes(worker_source())
        engine = {**ENGINE, **SPECULATION, "max_num_seqs": args.rows, "max_num_batched_tokens": 2048}
        job = {
            "model": str(model),
            "engine": engine,
            "requests": [one["prompt_token_ids"] for one in short_requests(model)] * args.copies,
            "tokens": args.tokens,
            "pairs": args.pairs,
            "worker": str(folder / "worker.py"),
            "steps": str(folder / "a.steps"),
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [str(Path(__file__).resolve()), "--inside", str(folder / "job.json")]
        run_engine(CpuBackend().interpreter(print), command, folder / "log")
        result = json.loads((folder / "job.json.result").read_text(encoding="utf-8"))
    print(json.dumps(result, indent=2))
    if args.json:
        args.json.write_text(json.dumps(result), encoding="utf-8")


class Spent:
    """Seconds of a thread's own processor time, by door, in packing, in waiting for what is packed."""

    def __init__(self, worker: Any, recorder: Any) -> None:
        self.doors, self.thread, self.wall, self.flushing, self.engine = Counter[str](), 0.0, 0.0, 0.0, 0.0
        look, packed = recorder.look, worker.packed

        def timed_look(door: Any, *args: Any) -> Any:
            began, cpu = time.perf_counter(), time.thread_time()
            try:
                return look(door, *args)
            finally:
                self.wall += time.perf_counter() - began
                self.doors[door.__name__] += time.thread_time() - cpu  # type: ignore[assignment]

        def timed_packing(*args: Any) -> Any:
            cpu = time.thread_time()
            try:
                return packed(*args)
            finally:
                self.thread += time.thread_time() - cpu

        recorder.look, worker.packed = timed_look, timed_packing

    def clear(self) -> None:
        self.doors.clear()
        self.thread = self.wall = self.flushing = self.engine = 0.0


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
    written = open(job["steps"], "a", encoding="utf-8")  # noqa: SIM115 - as long as the process
    recorder = worker.recorder_of(
        llm, lambda record: written.write(json.dumps(record) + "\n"), "cpu/mtp", lambda name: None
    )
    doors = [(owner, name, owner.__dict__[name]) for owner, name in recorder.doors]
    spent = Spent(worker, recorder)
    prompts = [TokensPrompt(prompt_token_ids=one) for one in job["requests"]]
    params = [SamplingParams(temperature=0, max_tokens=job["tokens"] - (7 * i) % 23) for i in range(len(prompts))]

    each_step: dict[bool, list[list[float]]] = {False: [], True: []}
    waits: list[float] = []
    step = llm.llm_engine.step

    def timed_step() -> Any:
        began = time.perf_counter()
        try:
            return step()
        finally:
            each_step[recorder.on][-1].append(time.perf_counter() - began)

    llm.llm_engine.step = timed_step

    def run(recorded: bool) -> tuple[float, float, Any]:
        for owner, name, door in doors:
            owner.__dict__.pop(name, None)
            if recorded:
                setattr(owner, name, door)
        recorder.on = recorded
        each_step[recorded].append([])
        began, cpu = time.perf_counter(), time.thread_time()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        flushing = time.perf_counter()
        recorder.flush()
        ended = time.perf_counter()
        seconds, cpu = ended - began, time.thread_time() - cpu
        spent.flushing += ended - flushing
        waits.extend([ended - flushing] * recorded)
        spent.engine += cpu * recorded
        tokens = [list(one.outputs[0].token_ids) for one in outputs]
        count = sum(map(len, tokens))
        return count / seconds, count / cpu, tokens

    run(False)
    run(True)
    spent.clear()
    waits.clear()
    each_step[False].clear()
    each_step[True].clear()
    steps_before = recorder.step
    speeds: dict[bool, list[float]] = {False: [], True: []}
    by_cpu: dict[bool, list[float]] = {False: [], True: []}
    said = []
    for pair in range(job["pairs"]):
        for recorded in (False, True) if pair % 2 == 0 else (True, False):
            speed, cpu_speed, tokens = run(recorded)
            speeds[recorded].append(speed)
            by_cpu[recorded].append(cpu_speed)
            said.append(tokens)
    written.flush()
    steps = recorder.step - steps_before
    rows = sum(json.loads(line).get("rows", 0) for line in Path(job["steps"]).read_text(encoding="utf-8").splitlines())
    ratios, cpu_ratios = (
        [with_ / without for without, with_ in zip(some[False], some[True], strict=True)] for some in (speeds, by_cpu)
    )
    bare, with_recorder = (
        sum(statistics.median(times) for times in zip(*each_step[recorded], strict=True)) for recorded in (False, True)
    )
    result = {
        "of_steps": round(bare / (with_recorder + statistics.median(waits)), 4),
        "of_steps_without_the_last_block": round(bare / with_recorder, 4),
        "ms_of_all_steps": [round(1000 * bare, 2), round(1000 * with_recorder, 2)],
        "pairs": job["pairs"],
        "rows": job["engine"]["max_num_seqs"],
        "requests": len(prompts),
        "tokens_per_second_bare": round(statistics.median(speeds[False]), 1),
        "tokens_per_second_recorded": round(statistics.median(speeds[True]), 1),
        "of_medians": round(statistics.median(speeds[True]) / statistics.median(speeds[False]), 4),
        "median_of_pairs": round(statistics.median(ratios), 4),
        "pairs_each": [round(one, 4) for one in ratios],
        "cpu_of_medians": round(statistics.median(by_cpu[True]) / statistics.median(by_cpu[False]), 4),
        "cpu_pairs_each": [round(one, 4) for one in cpu_ratios],
        "share_of_main_thread_in_doors": round(sum(spent.doors.values()) / spent.engine, 4),
        "cpu_ms_in_doors_a_step": round(1000 * sum(spent.doors.values()) / max(1, steps), 4),
        "ms_in_doors_a_step": round(1000 * spent.wall / max(1, steps), 4),
        "cpu_ms_of_each_door": {name: round(1000 * one / max(1, steps), 4) for name, one in spent.doors.items()},
        "cpu_ms_packing_a_step": round(1000 * spent.thread / max(1, steps), 4),
        "ms_waiting_for_the_last_block_a_run": round(1000 * spent.flushing / job["pairs"], 4),
        "ms_a_run": round(1000 * sum(map(len, said[0])) / statistics.median(speeds[True]), 1),
        "steps": steps,
        "row_steps_written": rows,
        "bytes_a_row_step": round(Path(job["steps"]).stat().st_size / max(1, rows), 1),
        "same_tokens_in_all_runs": all(one == said[0] for one in said),
    }
    Path(f"{path}.result").write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4, help="rows of a batch (max_num_seqs)")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--copies", type=int, default=1, help="how often the 49 requests are asked")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    inside(args.inside) if args.inside else outside(args)


if __name__ == "__main__":
    main()
