"""What running through parity costs, against `LLM.generate` in a bare script.

    python benchmarks/overhead.py [--requests 64] [--tokens 64] [--rounds 4] [--out FILE]

Both get the same engine settings, the same token ids and the same logprobs, each round all requests at
once. Bare: the time of each `LLM.generate` call. Parity: the time between "engine ready" (first round) or
the last completion of the round before, and the arrival of the round's last completion, validated and in
the capture file, in the supervising process. The two alternate, process by process; the figure is the
ratio of the medians over rounds. The target is at most 1.10. Takes about five minutes on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parity.plan import Arm, Model, Plan, Request, Sampling
from parity.plan.prompts import load_suite
from parity.plan.requests import tokenise
from parity.run import ArmEvent, Backend, Phase, load_backend, run_arm

BARE = """
import json, os, sys, time
job = json.load(open(sys.argv[1]))
from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
llm = LLM(model=job["model"], **job["engine"])
prompts = [TokensPrompt(prompt_token_ids=ids) for ids in job["prompts"]]
params = SamplingParams(**job["sampling"])
seconds, tokens = [], 0
for _ in range(job["rounds"]):
    began = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds.append(time.perf_counter() - began)
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
json.dump({"seconds": seconds, "tokens": tokens}, open(sys.argv[2], "w"))
os._exit(0)
"""


def make_plan(cpu: Backend, variant: str, args: argparse.Namespace, logprobs: int | None) -> Plan:
    model = cpu.default_model()
    assert model is not None
    requests = tokenise(load_suite("mixed"), str(model))
    tokens = args.tokens if variant == "base" else max(8, args.tokens // 4)  # mtp is slow on this backend
    engine = cpu.engine_defaults(variant, num_speculative_tokens=2)
    return Plan(
        model=Model(model.name, str(model), {}, None, ()),
        requests=tuple(
            Request(f"p{i}", None, requests[i % len(requests)].prompt_token_ids) for i in range(args.requests)
        ),
        arms=(Arm(f"cpu/{variant}", "cpu", variant, engine, cpu.env_defaults(variant)),),
        baseline=f"cpu/{variant}",
        sampling=Sampling(max_tokens=tokens, seed=None, logprobs=logprobs),
        rounds=args.rounds,
    )


def through_parity(plan: Plan, folder: Path) -> list[float]:
    """Seconds of each round, as the supervisor sees them."""
    count = len(plan.requests)
    marks: list[float] = []

    def watch(event: ArmEvent) -> None:
        now = time.perf_counter()
        if event.phase is Phase.READY:
            marks[:] = [now]
        elif event.phase is Phase.GENERATING and event.done == len(marks) * count:
            marks.append(now)

    with run_arm(plan, plan.baseline, folder / "capture.jsonl", folder / "parity.log", on_event=watch) as session:
        session.generate()
    return [after - before for before, after in itertools.pairwise(marks)]


def bare(plan: Plan, folder: Path, cpu: Backend) -> tuple[list[float], int]:
    """Seconds of each `LLM.generate`, and the tokens of one round."""
    arm = plan.arms[0]
    job = {
        "model": plan.model.path,
        "engine": dict(arm.engine),
        "sampling": plan.sampling.to_json(),
        "rounds": plan.rounds,
        "prompts": [request.prompt_token_ids for request in plan.requests],
    }
    (folder / "job.json").write_text(json.dumps(job))
    interpreter = cpu.interpreter(lambda line: print(line, file=sys.stderr))
    env = {**os.environ, **cpu.launch_env(interpreter), **arm.env}
    with (folder / "bare.log").open("w") as log:
        subprocess.run(
            [str(interpreter), "-c", BARE, str(folder / "job.json"), str(folder / "out.json")],
            env=env, stdout=log, stderr=log, check=True, timeout=600,
        )  # fmt: skip
    out = json.loads((folder / "out.json").read_text())
    return out["seconds"], out["tokens"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="per completion; a quarter of it for mtp")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file too")
    args = parser.parse_args()
    cpu = load_backend("cpu")
    rows = []
    for variant, logprobs in (("base", None), ("base", 1), ("base", 5), ("mtp", None)):
        plan = make_plan(cpu, variant, args, logprobs)
        with tempfile.TemporaryDirectory() as name:
            plain, tokens = bare(plan, Path(name), cpu)
            ours = through_parity(plan, Path(name))
        row = {
            "arm": f"cpu/{variant}",
            "logprobs": logprobs,
            "tokens_per_round": tokens,
            "bare_seconds": [round(value, 3) for value in plain],
            "parity_seconds": [round(value, 3) for value in ours],
            "bare_tokens_per_second": round(tokens / statistics.median(plain)),
            "parity_tokens_per_second": round(tokens / statistics.median(ours)),
            "ratio": round(statistics.median(ours) / statistics.median(plain), 3),
        }
        rows.append(row)
        print(
            f"{row['arm']:9} logprobs {logprobs!s:4}  bare {row['bare_tokens_per_second']:6,} tokens/s  "
            f"parity {row['parity_tokens_per_second']:6,} tokens/s  ratio {row['ratio']:.3f}",
            file=sys.stderr,
            flush=True,
        )
    text = json.dumps(rows, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
