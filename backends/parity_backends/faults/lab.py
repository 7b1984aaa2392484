"""Runs many faults through one engine: `python lab.py JOB.json`, in the engine's own interpreter.

Standard library and the engine only, as the worker. A start of the engine costs ten times what a fault does,
so the engine stays and the plugin is configured anew for each capture. The job:

    {"model": DIR, "engine": {LLM keyword arguments}, "sampling": {SamplingParams keyword arguments},
     "requests": [{"id": "p0", "prompt_token_ids": [...]}, ...], "out": DIR, "variant": "base" or "mtp",
     "captures": [{"name": "row_swap-0.1", "fault": "row_swap:rate=0.1:seed=0"}, ...],
     "score": [NAME, ...] or absent}

Each capture becomes OUT/NAME/VARIANT.jsonl, with what was planted in OUT/NAME/planted.jsonl. With "score" the
engine (speculation off) then teacher-forces the completions of OUT/NAME/mtp.jsonl, and its own first capture,
into OUT/NAME/scores.jsonl. stdout has one JSON line per file written,
stderr all that the engine says.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "site"))
OUT = os.dup(1)
"""The real stdout; fd 1 then points at stderr, because vLLM logs to stdout."""
COUNTERS = {
    "drafts": "vllm:spec_decode_num_drafts",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens",
    "preemptions": "vllm:num_preemptions",
}


def say(**fields: Any) -> None:
    os.write(OUT, (json.dumps(fields) + "\n").encode())


def pairs(entry: dict[int, Any]) -> list[list[Any]]:
    return [[int(token), float(item.logprob)] for token, item in entry.items()]


def counters(llm: Any) -> dict[str, int]:
    values = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    return {ours: int(values[theirs]) for ours, theirs in COUNTERS.items() if theirs in values}


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def header(job: dict[str, Any], fault: str) -> dict[str, Any]:
    return {
        "record": "header",
        "schema": "parity.capture/1",
        "arm": f"cpu/{job['variant']}",
        "backend": "cpu",
        "variant": job["variant"],
        "model": Path(job["model"]).name,
        "vocab_size": job.get("vocab_size"),
        "eos_token_ids": job.get("eos_token_ids"),
        "engine": job["engine"],
        "sampling": job["sampling"],
        "environment": {"variables": {"PARITY_FAULT": fault}},
    }


def capture(llm: Any, job: dict[str, Any], name: str, fault: str) -> None:
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    plugin = importlib.import_module("parity_faults")
    folder = Path(job["out"]) / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "planted.jsonl"
    log.unlink(missing_ok=True)
    before, began = counters(llm), time.perf_counter()
    plugin.configure(fault, str(log))
    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=request["prompt_token_ids"]) for request in job["requests"]],
        SamplingParams(**job["sampling"]),
        use_tqdm=False,
    )
    plugin.configure("none")
    records = [header(job, fault)]
    for request, output in zip(job["requests"], outputs):  # noqa: B905 - Python 3.9 has no `strict`
        for sample in output.outputs:
            record = {
                "record": "completion",
                "request": request["id"],
                "round": 0,
                "sample": sample.index,
                "prompt_token_ids": list(request["prompt_token_ids"]),
                "token_ids": [int(token) for token in sample.token_ids],
                "text": sample.text,
                "finish_reason": sample.finish_reason,
                "stop_reason": sample.stop_reason,
                "logprobs": None if sample.logprobs is None else [pairs(entry) for entry in sample.logprobs],
            }
            trace = getattr(sample, "spec_decode_metrics", None)
            if trace is not None:
                record["spec"] = {
                    "accepted": list(trace.per_step_accepted),
                    "drafted": list(trace.per_step_drafted),
                }
            records.append(record)
    counted = {key: value - before[key] for key, value in counters(llm).items()}
    records.append({"record": "footer", "completions": len(records) - 1, "scores": 0, "counters": counted})
    path = folder / f"{job['variant']}.jsonl"
    write(path, records)
    say(file=str(path), seconds=round(time.perf_counter() - began, 2))


def score(llm: Any, job: dict[str, Any], name: str, top: int = 5) -> None:
    """Each distinct sequence once; a score record for every completion of both captures."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    out = Path(job["out"])
    wanted: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[str, str, int]]] = {}
    for path in (out / job["captures"][0]["name"] / "base.jsonl", out / name / "mtp.jsonl"):
        records = read(path)
        for record in records:
            if record["record"] == "completion" and record["token_ids"]:
                sequence = (tuple(record["prompt_token_ids"]), tuple(record["token_ids"]))
                wanted.setdefault(sequence, []).append((records[0]["arm"], record["request"], record["sample"]))
    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=list(prompt + tokens)) for prompt, tokens in wanted],
        SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=top),
        use_tqdm=False,
    )
    records = [header(job, "none")]
    for (prompt, _), output in zip(wanted, outputs):  # noqa: B905 - Python 3.9 has no `strict`
        logprobs = [pairs(entry) for entry in output.prompt_logprobs[len(prompt) :]]
        for arm, request, sample in wanted[(prompt, _)]:
            records.append(
                {
                    "record": "score",
                    "arm": arm,
                    "request": request,
                    "round": 0,
                    "sample": sample,
                    "logprobs": logprobs,
                }
            )
    records.append({"record": "footer", "completions": 0, "scores": len(records) - 1, "counters": {}})
    path = out / name / "scores.jsonl"
    write(path, records)
    say(file=str(path), sequences=len(wanted))


def main() -> None:
    os.dup2(2, 1)
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # One process: the plugin can only be configured anew where the engine core runs in it.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("PARITY_FAULT", "none")
    from vllm import LLM

    llm = LLM(model=job["model"], **job["engine"])
    for item in job["captures"]:
        capture(llm, job, item["name"], item["fault"])
    for name in job.get("score", ()):
        score(llm, job, name)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the engine's own shutdown can take seconds; everything is written


if __name__ == "__main__":
    main()
