"""What running through parity costs, without and with the flight recorder, against `LLM.generate` as it is.

    python benchmarks/overhead.py [--requests 64] [--tokens 128] [--rounds 16] [--only mtp] [--out FILE]
    python benchmarks/overhead.py --backend cuda [--model DIR] [--engine KEY=VALUE …]

One engine an arm, in parity's own worker. Each round runs the same requests twice, in turns first: once by a plain
`LLM.generate`, once through parity. Every second round is recorded: the recorder's doors are taken off the engine for
all that is not. Both halves of a round lie seconds apart in one process, so that a machine that is busy for minutes is
so for both; what is given is the median over rounds of parity's time by that of `LLM.generate`, and how far that median
is sure (95 %, by order statistics). Parity's time ends when the round's last completion, validated and in the capture
file, has arrived in the supervising process, or with the recorder's last block where that comes later.

`of a processor`: the same of the seconds that the processors worked, in the engine's process for both and in the
supervising one for parity. Say it of a machine that does other work as well. The first two rounds warm up and do not
count. The targets are 1.03, and 1.06 recorded.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from parity_backends.vllm.cpu import CpuBackend

from parity.cli.options import Setting
from parity.plan import Arm, Model, Plan, Request, Sampling
from parity.plan.prompts import load_suite
from parity.plan.requests import tokenise
from parity.run import ArmEvent, Backend, OfCheckpoint, Phase, load_backend, run_arm

ARMS = (("base", None), ("base", 1), ("base", 5), ("mtp", None))
"""Variants, and how many logprobs are asked for."""

WARM = 2
"""Rounds that do not count: one of each kind."""

ALTERNATING = """

class Alternating(Arm):
    def _run(self, this):
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        if not hasattr(self, "doors"):
            self.kept = self.recorder
            self.doors = [(owner, name, owner.__dict__[name]) for owner, name in self.kept.doors]
        prompts = [TokensPrompt(prompt_token_ids=one["prompt_token_ids"]) for one in self.requests]
        params = SamplingParams(**self.plan["sampling"])
        run, said = super()._run, {}

        def open_doors(recorded):
            for owner, name, door in self.doors:
                owner.__dict__.pop(name, None)
                if recorded:
                    setattr(owner, name, door)
            self.recorder = self.kept if recorded else None

        def spent(what, work):
            began, processor = time.perf_counter(), time.process_time()
            work()
            said[what] = [began, time.perf_counter(), time.process_time() - processor]

        def plain():
            open_doors(False)
            spent("plain", lambda: self.llm.generate(prompts, params, use_tqdm=False))

        def through_parity():
            open_doors(this.number % 2 == 1)
            spent("parity", lambda: run(this))

        for half in (plain, through_parity) if this.number // 2 % 2 else (through_parity, plain):
            half()
        with open(TIMES, "a") as file:
            file.write(json.dumps(said) + "\\n")


Arm = Alternating
"""
"""Goes after the worker's text: its arm with the plain half. `perf_counter` is one clock for all processes."""


def alternately(name: str, times: Path) -> Backend:
    """That backend, with a worker that writes into `times` how long both halves of each round took."""

    class Alternately(type(load_backend(name))):  # type: ignore[misc]
        def worker_source(self) -> bytes:
            return super().worker_source() + f"\nTIMES = {str(times)!r}\n{ALTERNATING}".encode()

    return Alternately()


def make_plan(variant: str, logprobs: int | None, args: argparse.Namespace) -> Plan:
    backend = load_backend(args.backend)
    model = args.model or CpuBackend().default_model()
    assert model is not None
    engine = dict(backend.engine_defaults(variant, num_speculative_tokens=2) | dict(args.engine))
    if isinstance(backend, OfCheckpoint):
        engine = backend.for_checkpoint(engine, json.loads((model / "config.json").read_text(encoding="utf-8")))
    requests = tokenise(load_suite("mixed"), str(model))
    tokens = args.tokens if variant == "base" else max(8, args.tokens // 4)  # mtp is slow on this backend
    return Plan(
        model=Model(model.name, str(model), {}, None, ()),
        requests=tuple(
            Request(f"p{i}", None, requests[i % len(requests)].prompt_token_ids) for i in range(args.requests)
        ),
        arms=(
            Arm(
                f"{args.backend}/{variant}",
                args.backend,
                variant,
                engine,
                backend.env_defaults(variant),
            ),
        ),
        baseline=f"{args.backend}/{variant}",
        sampling=Sampling(max_tokens=tokens, seed=None, logprobs=logprobs),
        rounds=WARM + 2 * args.rounds,
        record=True,
    )


def measured(plan: Plan, folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Of each round that counts: seconds and processor seconds of both halves, is it recorded; tokens of one round."""
    count, marks, tokens = len(plan.requests), [], 0

    def watch(event: ArmEvent) -> None:
        nonlocal tokens
        if event.phase is Phase.GENERATING and event.done == (len(marks) + 1) * count:
            marks.append((time.perf_counter(), time.process_time()))
            tokens = event.tokens

    times = folder / "times.jsonl"
    backend = alternately(plan.arms[0].backend, times)
    before = time.process_time()
    with run_arm(
        plan, plan.baseline, folder / "capture.jsonl", folder / "parity.log", on_event=watch, backend=backend
    ) as session:
        session.generate()
    rounds = []
    for number, line in enumerate(times.read_text().splitlines()):
        half = json.loads(line)
        arrived, own = marks[number]
        plain, ours = half["plain"], half["parity"]
        rounds.append(
            {
                "recorded": number % 2 == 1,
                "plain": plain[1] - plain[0],
                "parity": (max(arrived, ours[1]) if number % 2 else arrived) - ours[0],
                "plain_processor": plain[2],
                "parity_processor": ours[2] + own - before,
            }
        )
        before = own
    return rounds[WARM:], tokens // len(marks)


def median_of(ratios: list[float]) -> tuple[float, float, float]:
    """The median, and the order statistics between which it lies with 95 %."""
    ordered, size = sorted(ratios), len(ratios)
    chance, low = 0.5**size, 0
    while chance <= 0.025 and low < size // 2:
        low += 1
        chance += math.comb(size, low) * 0.5**size
    return statistics.median(ordered), ordered[max(0, low - 1)], ordered[size - max(1, low)]


def said(rounds: list[dict[str, Any]], *, recorded: bool) -> dict[str, tuple[float, float, float]]:
    some = [one for one in rounds if one["recorded"] is recorded]
    return {
        name: median_of([one["parity" + suffix] / one["plain" + suffix] for one in some])
        for name, suffix in (("ratio", ""), ("of_a_processor", "_processor"))
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128, help="per completion; a quarter of it for mtp")
    parser.add_argument("--rounds", type=int, default=16, help="of each kind, beside one to warm up")
    parser.add_argument("--only", choices=sorted({variant for variant, _ in ARMS}), help="this variant alone")
    parser.add_argument("--backend", default="cpu", help="cpu or cuda")
    parser.add_argument("--model", type=Path, help="checkpoint, if not the embedded one")
    as_setting = partial(Setting().convert, param=None, ctx=None)
    parser.add_argument("--engine", type=as_setting, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file too")
    args = parser.parse_args()
    rows = []
    for variant, logprobs in ARMS:
        if args.only not in (None, variant):
            continue
        plan = make_plan(variant, logprobs, args)
        with tempfile.TemporaryDirectory() as name:
            rounds, tokens = measured(plan, Path(name))
        row = {
            "arm": plan.baseline,
            "logprobs": logprobs,
            "tokens_per_round": tokens,
            "parity": said(rounds, recorded=False),
            "recorded": said(rounds, recorded=True),
            "rounds": rounds,
        }
        rows.append(row)
        plain = tokens / statistics.median(one["plain"] for one in rounds)
        print(f"{plan.baseline:9} logprobs {logprobs!s:4}  LLM.generate {plain:6,.0f} tokens/s", end="")
        for kind in ("parity", "recorded"):
            (middle, low, high), processor = row[kind]["ratio"], row[kind]["of_a_processor"][0]
            print(f"  {kind} ratio {middle:.3f} ({low:.3f} to {high:.3f}), of a processor {processor:.3f}", end="")
        print(flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
