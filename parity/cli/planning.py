"""Command-line options to a plan, for the commands that make one."""

from __future__ import annotations

from typing import Any

from parity.cli.hunting import churn_request
from parity.errors import ParityError
from parity.pipeline import PlanRequest
from parity.plan import Sampling


def plan_request(options: dict[str, Any]) -> PlanRequest:
    """From the keyword arguments that `plan_options` produces."""
    engine = dict(options["engine"])
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        if options[name] is not None:
            if name in engine:
                raise ParityError(f"{name} was given twice", hint=f"drop --engine {name}=…")
            engine[name] = options[name]
    engine.setdefault("seed", options["seed"])
    return PlanRequest(
        backends=options["backends"],
        variants=options["variants"],
        baseline=options["baseline"],
        model=options["model"],
        prompts=options["prompts"],
        suite=options["suite"],
        num_speculative_tokens=options["num_speculative_tokens"],
        sampling=Sampling(
            temperature=options["temperature"],
            top_p=options["top_p"],
            top_k=options["top_k"],
            repetition_penalty=options["repetition_penalty"],
            max_tokens=options["max_tokens"],
            n=options["n"],
            seed=options["seed"],
            ignore_eos=options["ignore_eos"],
            logprobs=options["logprobs"],
        ),
        rounds=options["rounds"],
        score=options["score"],
        tolerance=options["tolerance"],
        engine=engine,
        positive_controls=options["positive_controls"],
        vary=options["vary"],
        samples=options["samples"],
        churn=churn_request(options),
    )
