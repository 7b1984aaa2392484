"""What recording the chosen tokens' own logprobs costs an engine, and whether it changes a token.

    python benchmarks/own_logprobs.py [--variants base,mtp] [--requests 64] [--tokens 64] [--rounds 6] [--out FILE]

One engine per variant, in one process: rounds of all requests with `logprobs` None, 0 and 5 in turn, as vLLM gives them
by itself and as flat lists, which is what parity asks for, so that what the machine does besides falls on all.
The cost is the median over rounds of the ratio to None in the same turn; its range is that of the middle half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from parity.plan.prompts import load_suite
from parity.plan.requests import tokenise
from parity.run import load_backend

ASKED: dict[str, dict[str, object]] = {
    "None": {"logprobs": None},
    "0": {"logprobs": 0},
    "0 flat": {"logprobs": 0, "flat_logprobs": True},
    "5 flat": {"logprobs": 5, "flat_logprobs": True},
}
"""Parameters of `SamplingParams` by how the rows are named; the first is what the others are set against."""

ALTERNATING = """
import json, os, sys, time
job = json.load(open(sys.argv[1]))
from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
llm = LLM(model=job["model"], **job["engine"])
prompts = [TokensPrompt(prompt_token_ids=ids) for ids in job["prompts"]]
turns = []
for number in range(job["rounds"] + 1):
    turn = {}
    names = list(job["asked"])
    for top in names[number % len(names):] + names[:number % len(names)]:
        params = SamplingParams(temperature=0.0, max_tokens=job["tokens"], ignore_eos=True, **job["asked"][top])
        wall, processor = time.perf_counter(), time.process_time()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        turn[top] = {
            "seconds": time.perf_counter() - wall,
            "processor_seconds": time.process_time() - processor,
            "tokens": [list(output.outputs[0].token_ids) for output in outputs],
            "widths": sorted({len(entry) for output in outputs for entry in output.outputs[0].logprobs or []}),
        }
    turns.append(turn)
json.dump(turns[1:], open(sys.argv[2], "w"))
os._exit(0)
"""


def measured(variant: str, args: argparse.Namespace) -> list[dict[str, dict[str, object]]]:
    """Turns of rounds by what was asked; the first, which warms up, is left out."""
    cpu = load_backend("cpu")
    model = cpu.default_model()
    assert model is not None
    known = tokenise(load_suite("mixed"), str(model))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = {
            "model": str(model),
            "engine": dict(cpu.engine_defaults(variant, num_speculative_tokens=2)),
            "prompts": [list(known[index % len(known)].prompt_token_ids) for index in range(args.requests)],
            "tokens": args.tokens,
            "rounds": args.rounds,
            "asked": ASKED,
        }
        (folder / "job.json").write_text(json.dumps(job))
        interpreter = cpu.interpreter(lambda line: print(line, file=sys.stderr))
        env = {**os.environ, **cpu.launch_env(interpreter), **cpu.env_defaults(variant)}
        with (folder / "log").open("w") as log:
            command = [str(interpreter), "-c", ALTERNATING, str(folder / "job.json"), str(folder / "out.json")]
            subprocess.run(command, env=env, stdout=log, stderr=log, check=True, timeout=900)
        turns: list[dict[str, dict[str, object]]] = json.loads((folder / "out.json").read_text())
    return turns


def quartiles(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    at = [round(share * (len(ordered) - 1)) for share in (0.25, 0.5, 0.75)]
    return ordered[at[0]], ordered[at[1]], ordered[at[2]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", default="base,mtp")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file too")
    args = parser.parse_args()
    rows = []
    for variant in args.variants.split(","):
        turns = measured(variant, args)
        for top in ASKED:
            made = [turn[top] for turn in turns]
            row: dict[str, object] = {"variant": variant, "logprobs": top, "widths": made[0]["widths"]}
            row["tokens_differ"] = sum(
                one["tokens"] != turn["None"]["tokens"] for one, turn in zip(made, turns, strict=True)
            )
            for clock in ("seconds", "processor_seconds"):
                ratios = [float(turn[top][clock]) / float(turn["None"][clock]) for turn in turns]  # type: ignore[arg-type]
                row[clock] = [round(value, 3) for value in quartiles(ratios)]
            rows.append(row)
            print(json.dumps(row), flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
