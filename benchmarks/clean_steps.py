"""Clean row-steps by the million: the real engine driven hard, every step recorded, every invariant asked.

    .venv/bin/python benchmarks/clean_steps.py [--model attention|hybrid|tiny] [-k 2] [--minutes 5] [--rows 256]
        [--blocks N] [--states] [--prefix-caching] [--seed 0] [--json FILE]

One start of the CPU engine, with a model that costs next to nothing (`smallest_models.py`; `tiny` is parity's own).
Requests arrive in waves and alone, prompts come in chunks, three in ten are drawn, some have four samples, some are
aborted, some stop at a token; with few blocks many are preempted. No prompt is one token long: vLLM
0.32.0 starts those from a stale state (`reports/one-token-prompt`); and one function of its CPU build is mended
(`mend_expansion`). A round runs until no request is left; then its steps are checked, while the next one runs, and
thrown away: nothing but a violation is kept, in FILE.steps beside the JSON.

FILE adds up over calls: row-steps by model and drafts, what came up in them, and of how many each invariant was asked.
`--table FILE` prints it as a Markdown table.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

AHEAD = 2
"""Rounds that wait to be checked while the engine goes on."""


def outside(args: argparse.Namespace) -> None:
    """In parity's own interpreter: makes the job, starts the engine's and checks what it sends."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "backends"), str(ROOT), str(ROOT / "benchmarks")]
    import subprocess

    from parity_backends.vllm.cpu import CpuBackend
    from parity_backends.vllm.local import worker_source
    from smallest_models import VOCABULARY, write_smallest

    backend = CpuBackend()
    interpreter = backend.interpreter(print)
    total, written = Counter[str](), Counter[str]()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, vocabulary = folder / "model", VOCABULARY
        if args.model == "tiny":
            model, vocabulary = backend.default_model(), 2048  # type: ignore[assignment]
        else:
            write_smallest(args.model, model)
        (folder / "worker.py").write_bytes(worker_source())
        job = {
            "engine": {"model": str(model), **engine_of(args)}, "worker": str(folder / "worker.py"), "folder": name,
            "vocabulary": vocabulary, "seed": args.seed, "minutes": args.minutes, "requests": args.rows * args.waves,
            "rows": args.rows, "tokens": args.tokens, "prompt": args.prompt, "aborts": args.aborts,
            "states": args.states,
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
                rate = total["row_steps"] / (time.monotonic() - began)
                shown = ("row_steps", "violations", "preempted", "resumed", "aborts", "drafted", "drawn", "stopped")
                print({name: total[name] for name in shown}, f"{rate:.0f} row-steps/s", flush=True)
                if args.json:
                    add_to(args.json, f"{args.model}, {drafts_of(args)}", total - written)
                    written = Counter(total)
                process.stdin.write("\n")
                process.stdin.flush()
            code = process.wait()
        if code:
            print((folder / "log").read_text(encoding="utf-8")[-4000:], file=sys.stderr)
            raise SystemExit(code)


def drafts_of(args: argparse.Namespace) -> str:
    return f"{args.k} drafts" if args.k else "no speculation"


def engine_of(args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {
        "dtype": "bfloat16", "enforce_eager": True, "enable_prefix_caching": args.prefix_caching,
        "max_num_seqs": args.rows,
        "max_num_batched_tokens": args.budget, "max_model_len": 256, "seed": 0, "generation_config": "vllm",
        "disable_log_stats": True, "skip_tokenizer_init": args.model != "tiny",
    }  # fmt: skip
    if args.k:
        found["speculative_config"] = {"method": "mtp", "num_speculative_tokens": args.k}
    if args.block_size:
        found["block_size"] = args.block_size
    if args.blocks:
        found["num_gpu_blocks_override"] = args.blocks
    return found


def add_to(path: Path, what: str, more: Counter[str]) -> None:
    """Adds the counts of a round: what is killed on the way keeps what it had."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    mine = Counter(known.get(what, {}))
    mine.update(more)
    known[what] = dict(mine)
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def checked(path: Path, args: argparse.Namespace) -> Counter[str]:
    """What the invariants say of one round, whose file is removed."""
    from parity.capture.steps import read_steps
    from parity.explain.ledger import Ledger
    from parity.explain.predicates import moved
    from parity.explain.violations import check

    found: Counter[str] = Counter()
    for steps in read_steps(path):
        result = check(steps)
        ledger = Ledger(steps)
        found.update(
            row_steps=result.row_steps,
            steps=len(steps.rows),
            violations=len(result.violations),
            bytes=path.stat().st_size,
            resumed=int((steps.numbers("arrival") == 2).sum()),
            chunks=int((steps.lists("handed").counts == 0).sum()),
            drafted=int((steps.lists("drafts").counts > 0).sum()),
            rejected=int(((ledger.emitted > 0) & (ledger.emitted <= steps.lists("drafts").counts)).sum()),
            drawn=int((~ledger.plain).sum()),
            moved=int(moved(ledger).sum()),
            ended=int((steps.numbers("finish") != -1).sum()),
            stopped=int((steps.numbers("finish") == 0).sum()),
            recorder_stopped=int(steps.stopped is not None),
        )
        found.update({f"asked {name}": count for name, count in result.asked.items()})
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
    llm = LLM(**job["engine"])
    mend_expansion()
    recorder = worker.recorder_of(llm, lambda record: None, "clean", lambda name: None, job["states"])
    preempted = counting_preemptions(recorder.scheduler)
    draw = random.Random(job["seed"])
    ends = time.monotonic() + 60 * job["minutes"]
    number = 0
    answers = ThreadPoolExecutor(1)
    waiting: list[Any] = []
    while time.monotonic() < ends:
        number += 1
        steps = Path(job["folder"]) / f"{number}.steps"
        with steps.open("w", encoding="utf-8") as stream:
            recorder.restart(lambda record, stream=stream: stream.write(json.dumps(record) + "\n"))
            recorder.on = True
            before = preempted[0]
            counted = drive(llm.llm_engine, draw, job, number)
            recorder.flush()
            recorder.on = False
        counted["preempted"] = preempted[0] - before
        out.write(json.dumps({"steps": str(steps), "counted": counted}) + "\n")
        out.flush()
        waiting.append(answers.submit(sys.stdin.readline))
        while len(waiting) > AHEAD:
            waiting.pop(0).result()
    while waiting:
        waiting.pop(0).result()
    os._exit(0)


def mend_expansion() -> None:
    """vLLM 0.32.0 on a CPU fills a copy where it should fill a tensor, so that beside a drawn request a greedy one
    seldom gets its likeliest token (`reports/sampled-mtp-cpu`, vllm#55005): every second row-step breaks
    an invariant then."""
    import torch
    from vllm.v1.sample import rejection_sampler

    def expand(output: Any, values: Any, ends: Any, replace_from: Any, replace_to: Any, *_: Any, **__: Any) -> None:
        lengths = torch.diff(ends.long(), prepend=torch.zeros(1, dtype=torch.long))
        output.copy_(torch.where(values == replace_from, replace_to, values).repeat_interleave(lengths))

    rejection_sampler._expand.kernel._impl = expand


def counting_preemptions(scheduler: Any) -> list[int]:
    """The engine's own count, of vllm/v1/core/sched/scheduler.py, `_preempt_request`."""
    count, inner = [0], scheduler._preempt_request

    def preempt(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return inner(*args, **kwargs)

    scheduler._preempt_request = preempt
    return count


def drive(engine: Any, draw: random.Random, job: dict[str, Any], number: int) -> dict[str, int]:
    """One round: requests join while others run; some are aborted on the way."""
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    left, counted = job["requests"], Counter[str]()
    running: dict[str, None] = {}
    rows = job["rows"]
    while left or engine.has_unfinished_requests():
        room = max(0, rows + rows // 8 - len(running))  # some always wait
        joining = min(left, draw.choice((0, 1, 2, room // 2, room)) if running else rows)
        for _ in range(joining):
            left -= 1
            begin, length = draw.randrange(job["vocabulary"]), draw.choice((2, 3, 5, 8, 16, job["prompt"]))
            prompt = [draw.randrange(job["vocabulary"]) for _ in range(length)] if draw.random() < 0.5 else [
                (begin + at) % job["vocabulary"] for at in range(length)
            ]  # fmt: skip
            kind = draw.random()
            drawn = {"temperature": 0.8, "top_p": 0.9} if kind < 0.3 else {"temperature": 0.0}
            stops = [draw.randrange(job["vocabulary"]) for _ in range(8)] if draw.random() < 0.2 else None
            params = SamplingParams(
                max_tokens=draw.randint(1, job["tokens"]), n=4 if kind < 0.05 else 1, ignore_eos=True,
                stop_token_ids=stops, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY, **drawn,
            )  # fmt: skip
            name = f"{number}-{left}"
            engine.add_request(name, TokensPrompt(prompt_token_ids=prompt), params)
            running[name] = None
            counted["requests"] += 1
        if running and draw.random() < job["aborts"]:
            name = draw.choice(list(running))
            del running[name]
            engine.abort_request([name])
            counted["aborts"] += 1
        for output in engine.step():
            if output.finished:
                running.pop(output.request_id, None)
    return dict(counted)


COLUMNS = ("row_steps", "steps", "violations", "drafted", "rejected", "drawn", "moved", "chunks", "preempted",
           "resumed", "aborts", "ended", "stopped")  # fmt: skip


def table(path: Path) -> None:
    known = {name: Counter(counts) for name, counts in json.loads(path.read_text(encoding="utf-8")).items()}
    known["all"] = sum(known.values(), Counter())
    print("| model | " + " | ".join(name.replace("_", "-") for name in COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for name, counts in known.items():
        print(f"| {name} | " + " | ".join(f"{counts[column]:,}" for column in COLUMNS) + " |")
    whole = known["all"]
    asked = {name.removeprefix("asked "): count for name, count in whole.items() if name.startswith("asked ")}
    print(f"\nfewer than {3 / max(1, whole['row_steps']):.2g} of row-steps (95 %); asked of row-steps:")
    print(", ".join(f"`{name}` {count:,}" for name, count in asked.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("attention", "hybrid", "tiny"), default="attention")
    parser.add_argument("-k", type=int, default=2, help="drafts of a step; 0: no speculation")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rows", type=int, default=256, help="rows of a batch (max_num_seqs)")
    parser.add_argument("--waves", type=int, default=8, help="requests of a round for each row")
    parser.add_argument("--budget", type=int, default=1024, help="tokens of a step (max_num_batched_tokens)")
    parser.add_argument("--blocks", type=int, default=0, help="blocks of keys, values and states; 0: as many as fit")
    parser.add_argument("--block-size", type=int, default=0, help="tokens of a block; 0: the engine's own choice")
    parser.add_argument("--tokens", type=int, default=60, help="the longest completion")
    parser.add_argument("--prompt", type=int, default=96, help="the longest prompt")
    parser.add_argument("--aborts", type=float, default=0.05, help="chance of an abort in a step")
    parser.add_argument("--states", action="store_true", help="digest recurrent states, keys and values too")
    parser.add_argument("--prefix-caching", action="store_true", help="not with the hybrid model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="adds to the counts of an earlier call")
    parser.add_argument("--table", type=Path, help="only print what such a file holds")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.table:
        sys.path[:0] = [str(ROOT)]
        table(args.table)
        return
    inside(args.inside) if args.inside else outside(args)


if __name__ == "__main__":
    main()
