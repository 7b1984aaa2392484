"""Runs faults through real engines and judges what came of them: for tests, benchmarks and tables.

Whether a wrong state or a wrong count shows in a token depends on the processor's rounding. So a case is not one
planting: it is repeated with other seeds until a planted row came out damaged, a few times at most.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import parity_faults
from fault_judge import Judgement, judge
from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.local import worker_source

from parity.capture import read_capture, read_scores
from parity.comparator import Comparison, compare
from parity.plan.prompts import load_suite
from parity.plan.requests import tokenise
from parity.records import Capture

BASELINE = "none"
TIMEOUT_SECONDS = 900
ATTEMPTS = 4
SEED = 3
ENGINE: dict[str, Any] = {
    "dtype": "bfloat16",
    "enforce_eager": True,
    "enable_prefix_caching": False,
    # Four rows for many more requests: requests start beside running ones.
    "max_num_seqs": 4,
    "max_num_batched_tokens": 512,
    "max_model_len": 256,
    "seed": 0,
    "generation_config": "vllm",
    "disable_log_stats": False,
}
SPECULATION: dict[str, Any] = {
    "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
    "per_request_spec_decode_metrics": "detailed",
}
RATES = {
    "row_swap": 0.1,
    "row_leak": 0.03,
    "accepted_counts": 0.3,
    "unstable_order": 1.0,
    "state_not_reset": 1.0,
    "unverified_drafts": 0.3,
    "stale_chunk": 0.1,
    "loop": 0.03,
    "garbled_row": 0.05,
    "early_eos": 0.05,
    "chunk_twice": 0.1,
    "bonus_lost": 0.1,
}
"""Share of the steps that are hit: several rows, and not all of each."""
OF_STATE = {"accepted_counts", "unstable_order", "state_not_reset"}
"""The gated delta net forgets: most plantings of these end in the same tokens."""


@dataclass(frozen=True)
class Case:
    """A fault (or "none", "logits_noise") in an engine with its own rounding (0) or with another's (a seed)."""

    fault: str
    noise: int = 0
    when: str = ""
    """Conditions of the rows that it may strike; the rate is 0.5 then."""

    @property
    def name(self) -> str:
        return f"{self.fault}+{self.when}" if self.when else self.fault

    def trial(self, attempt: int) -> Trial:
        text = self.fault
        if self.fault != BASELINE:
            text += f":rate={0.5 if self.when else RATES.get(self.fault, 1.0)}:seed={SEED + attempt}"
        if self.when:
            text += f":when={self.when}"
        if self.noise:
            text += f":noise={self.noise}"
        name = f"{self.name}-noise{self.noise}-{attempt}"
        if self.fault not in RATES:
            return Trial(name, self.fault, text, {"logprobs": 1})
        return Trial(name, self.fault, text)


@dataclass(frozen=True)
class Trial:
    """One capture of the lab: its folder, the fault's name, PARITY_FAULT."""

    name: str
    fault: str
    text: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the other trials."""


@dataclass
class Outcome:
    """What the trials of one case gave, in their order."""

    case: Case
    trials: list[Trial] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)

    @property
    def damaged(self) -> int:
        return sum(len(one.damaged) for one in self.judgements)


def short_requests(model: Path) -> list[dict[str, Any]]:
    """Prompts of 2 to 49 tokens.

    Not of one token: such a request gets another's state from vLLM 0.32.0 itself (docs/fault-lab.md).
    """
    suite = [request for request in tokenise(load_suite("mixed"), model) if 1 < len(request.prompt_token_ids) < 50]
    return [{"id": r.id, "prompt_token_ids": list(r.prompt_token_ids)} for r in suite]


def run_engine(interpreter: Path, command: Sequence[str], log: Path, **variables: str) -> None:
    """Runs a command in the engine's interpreter, everything it says in `log`, and leaves no process behind.

    Raises RuntimeError with the end of the log where it fails.
    """
    backend = CpuBackend()
    environment = {**os.environ, **backend.env_defaults("mtp"), **backend.launch_env(interpreter), **variables}
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            [str(interpreter), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=TIMEOUT_SECONDS)
        finally:
            # An engine core of its own outlives the process that started it by seconds, or for good.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        raise RuntimeError(f"exit code {code}; {log} ends:\n{log.read_text(encoding='utf-8')[-4000:]}")


def run_job(interpreter: Path, folder: Path, variant: str, job: Mapping[str, Any]) -> None:
    """Runs the lab with this job; its log is FOLDER/VARIANT.log."""
    path = folder / f"{variant}.json"
    path.write_text(json.dumps({**job, "variant": variant, "out": str(folder)}), encoding="utf-8")
    command = ["-m", "parity_faults.lab", str(path)]
    run_engine(interpreter, command, folder / f"{variant}.log", **parity_faults.unpacked(folder))


def run_trials(interpreter: Path, folder: Path, trials: Sequence[Trial], settings: Mapping[str, Any]) -> None:
    """Two engine starts: all captures with speculation, then the baseline (where it is missing) and the scores.

    `settings` are those of the speculating engine that differ from ENGINE.
    """
    model = CpuBackend().default_model()
    assert model is not None
    job = {
        "model": str(model),
        "sampling": {"temperature": 0.0, "max_tokens": 40},
        "requests": short_requests(model),
        "vocab_size": 2048,
        "eos_token_ids": [0],
    }
    source = folder / "worker.py"
    source.write_bytes(worker_source())
    captures = [{"name": one.name, "fault": one.text, "sampling": dict(one.sampling)} for one in trials]
    run_job(
        interpreter,
        folder,
        "mtp",
        {**job, "engine": {**ENGINE, **SPECULATION, **settings}, "captures": captures, "recorder": str(source)},
    )
    known = (folder / BASELINE / "base.jsonl").exists()
    baseline = [] if known else [{"name": BASELINE, "fault": "none"}]
    score = [[one.name, BASELINE] for one in trials]
    run_job(interpreter, folder, "base", {**job, "engine": ENGINE, "captures": baseline, "score": score})


def planted(folder: Path) -> list[dict[str, Any]]:
    """What the plugin logged for one trial; nothing where it logged nothing."""
    log = folder / "planted.jsonl"
    if not log.exists():
        return []
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["record"] == "planted"]


def without_logprobs(capture: Capture) -> Capture:
    """As a run makes it by default: without decode-time logprobs."""
    completions = {key: replace(one, logprobs=None) for key, one in capture.completions.items()}
    return replace(capture, completions=completions)


def compared(folder: Path, trial: Trial) -> Comparison:
    """The comparison of a trial with the baseline, by tokens and scores alone."""
    own = folder / trial.name
    candidate = without_logprobs(read_capture(own / "mtp.jsonl"))
    return compare(read_capture(folder / BASELINE / "base.jsonl"), candidate, read_scores(own / "scores.jsonl"))


def judged(folder: Path, trial: Trial) -> Judgement:
    """The comparison of a trial, set against what was planted."""
    own = folder / trial.name
    candidate, scores = read_capture(own / "mtp.jsonl"), read_scores(own / "scores.jsonl")
    fault = trial.fault if trial.fault != BASELINE else "logits_noise"
    return judge(fault, compared(folder, trial).to_json(), planted(own), candidate, scores)


def run_until_damaged(
    interpreter: Path, folder: Path, cases: Iterable[Case], settings: Mapping[str, Any] | None = None
) -> list[Outcome]:
    """Every case once; then those faults of which no row came out damaged again with other seeds, up to ATTEMPTS."""
    outcomes = [Outcome(case) for case in cases]
    waiting = outcomes
    for attempt in range(ATTEMPTS):
        trials = [outcome.case.trial(attempt) for outcome in waiting]
        run_trials(interpreter, folder, trials, settings or {})
        for outcome, trial in zip(waiting, trials, strict=True):
            outcome.trials.append(trial)
            outcome.judgements.append(judged(folder, trial))
        waiting = [
            outcome
            for outcome in waiting
            if outcome.case.fault in RATES and not outcome.case.when and not outcome.damaged
        ]
        if not waiting:
            break
    return outcomes
