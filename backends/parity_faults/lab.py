"""Runs many faults through one engine: `python -m parity_faults.lab JOB.json`, in the engine's own interpreter.

Standard library and the engine only, as the worker; the package is installed there, or its zip file on PYTHONPATH.
A start of the engine costs ten times what a fault does, so the engine stays and the plugin is configured anew for
each capture. The job:

    {"model": DIR, "engine": {LLM keyword arguments}, "sampling": {SamplingParams keyword arguments},
     "requests": [{"id": "p0", "prompt_token_ids": [...]}, ...], "out": DIR, "variant": "base" or "mtp",
     "recorder": FILE, a worker's source with a Recorder in it (docs/steps.md); absent: steps are not recorded,
     "states": true, with digests of recurrent states,
     "sketcher": FILE, the same with a Sketcher (docs/sketches.md); absent: activations are not sketched,
     "captures": [{"name": "row_swap-0.1", "fault": "row_swap:rate=0.1:seed=0",
                   "requests": a number, the first so many only, or requests of its own; absent: all,
                   "sampling": what differs from the job's; absent: nothing,
                   "sketch": false where this one is not sketched}, ...],
     "score": [[NAME, NAME of the folder with its base.jsonl], ...] or absent}

Each capture becomes OUT/NAME/VARIANT.jsonl, with what was planted in OUT/NAME/planted.jsonl, and what the engine did in
each step in OUT/NAME/VARIANT.steps. With "score" the
engine (speculation off) then teacher-forces the completions of OUT/NAME/mtp.jsonl and of that base.jsonl into
OUT/NAME/scores.jsonl; with "sketcher", every prefill is sketched into OUT/scores.sketches. stdout has one JSON line per
file written, stderr all that the engine says.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from parity_faults import configure

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


class Names:
    """Which completion a name of the engine stands for: the engine numbers requests through."""

    def __init__(self) -> None:
        self.requests: dict[int, str] = {}
        self.asked = 0
        """Requests that the engine was given so far."""

    def begin(self, names: list[str]) -> None:
        self.requests = dict(enumerate(names, self.asked))
        self.asked += len(names)

    def __call__(self, engine_id: str) -> dict[str, Any] | None:
        # vLLM adds a random part after the number, and before it which sample it is, of several.
        sample, _, number = engine_id.split("-")[0].rpartition("_")
        request = self.requests.get(int(number))
        return None if request is None else {"request": request, "round": 0, "sample": int(sample or 0)}


class Sketching:
    """The sketcher of the source that the job names, and what it wrote since it was last taken."""

    def __init__(self, llm: Any, job: dict[str, Any], names: Names) -> None:
        worker = ModuleType("sketching_worker")
        exec(compile(Path(job["sketcher"]).read_text(encoding="utf-8"), job["sketcher"], "exec"), worker.__dict__)
        self.lines: list[dict[str, Any]] = []
        self.sketcher = worker.sketcher_of(llm, self.lines.append, "cpu/%s" % job["variant"], names, "parts")

    def take(self) -> list[dict[str, Any]]:
        lines, self.lines[:] = list(self.lines), []
        return lines


def recorder_of(llm: Any, job: dict[str, Any], names: Names) -> Any | None:
    """The flight recorder of the source that the job names, around whatever this package wrapped."""
    if "recorder" not in job:
        return None
    worker = ModuleType("worker")
    exec(compile(Path(job["recorder"]).read_text(encoding="utf-8"), job["recorder"], "exec"), worker.__dict__)
    return worker.recorder_of(llm, say, "cpu/%s" % job["variant"], names, bool(job.get("states")))


def capture(
    llm: Any,
    job: dict[str, Any],
    item: dict[str, Any],
    names: Names,
    recorder: Any | None = None,
    sketching: Sketching | None = None,
) -> None:
    from vllm.inputs import TokensPrompt

    fault, folder = item["fault"], Path(job["out"]) / item["name"]
    job = {**job, "sampling": {**job["sampling"], **item.get("sampling", {})}}
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "planted.jsonl"
    log.unlink(missing_ok=True)
    before, began = counters(llm), time.perf_counter()
    configure(fault, str(log))
    steps: list[dict[str, Any]] = []
    if recorder is not None:
        recorder.restart(steps.append)
        recorder.on = True
    wanted = item.get("requests")
    requests = wanted if isinstance(wanted, list) else job["requests"][:wanted]
    names.begin([request["id"] for request in requests])
    if sketching is not None:
        sketching.sketcher.begin(item["name"])
    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=request["prompt_token_ids"]) for request in requests],
        [parameters({**job["sampling"], **request.get("sampling", {})}) for request in requests],
        use_tqdm=False,
    )
    configure("none")
    if recorder is not None:
        recorder.flush()
        recorder.on = False
        write(folder / f"{job['variant']}.steps", steps)
    if sketching is not None:
        sketching.sketcher.end()
        if sketching.sketcher.drafter is not None:
            once_more(llm, sketching, outputs, names)
        write(folder / f"{job['variant']}.sketches", sketching.take())
    records = [header(job, fault)]
    for request, output in zip(requests, outputs):  # noqa: B905 - Python 3.9 has no `strict`
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


def parameters(asked: dict[str, Any]) -> Any:
    """vLLM's, which has a type of its own for a grammar."""
    from vllm import SamplingParams

    if asked.get("structured_outputs"):
        from vllm.sampling_params import StructuredOutputsParams

        asked = {**asked, "structured_outputs": StructuredOutputsParams(**asked["structured_outputs"])}
    return SamplingParams(**asked)


def once_more(llm: Any, sketching: Sketching, outputs: list[Any], names: Names) -> None:
    """Prompts and completions as prompts: what the drafter's decode steps are set against."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    tokens = [[*one.prompt_token_ids, *sample.token_ids] for one in outputs for sample in one.outputs]
    names.asked += len(tokens)
    names.requests = {}
    sketching.sketcher.begin("prefill")
    llm.generate(
        [TokensPrompt(prompt_token_ids=one) for one in tokens],
        SamplingParams(temperature=0.0, max_tokens=1),
        use_tqdm=False,
    )
    sketching.sketcher.end()


def score(llm: Any, job: dict[str, Any], name: str, base_name: str, known: dict[Any, Any], top: int = 5) -> None:
    """A score record for every completion of the candidate and of the baseline's same requests.

    `known` holds what was scored before: each distinct sequence is teacher-forced once for all folders.
    """
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    out = Path(job["out"])
    candidate, base = read(out / name / "mtp.jsonl"), read(out / base_name / "base.jsonl")
    asked = {record["request"] for record in candidate if record["record"] == "completion"}
    wanted: list[tuple[Any, dict[str, Any]]] = []
    for records in (base, candidate):
        for record in records:
            if record["record"] == "completion" and record["token_ids"] and record["request"] in asked:
                key = {name: record[name] for name in ("request", "round", "sample")}
                sequence = (tuple(record["prompt_token_ids"]), tuple(record["token_ids"]))
                wanted.append((sequence, {"record": "score", "arm": records[0]["arm"], **key}))
    unknown = list(dict.fromkeys(sequence for sequence, _ in wanted if sequence not in known))
    if unknown:
        outputs = llm.generate(
            [TokensPrompt(prompt_token_ids=list(prompt + tokens)) for prompt, tokens in unknown],
            SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=top),
            use_tqdm=False,
        )
        for sequence, output in zip(unknown, outputs):  # noqa: B905 - Python 3.9 has no `strict`
            known[sequence] = [pairs(entry) for entry in output.prompt_logprobs[len(sequence[0]) :]]
    scores = [{**record, "logprobs": known[sequence]} for sequence, record in wanted]
    footer = {"record": "footer", "completions": 0, "scores": len(scores), "counters": {}}
    path = out / name / "scores.jsonl"
    write(path, [header(job, "none"), *scores, footer])
    say(file=str(path), sequences=len(unknown))


def main() -> None:
    os.dup2(2, 1)
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # One process: the plugin can only be configured anew where the engine core runs in it.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("PARITY_FAULT", "none")
    from vllm import LLM

    llm = LLM(model=job["model"], **job["engine"])
    names = Names()
    recorder = recorder_of(llm, job, names)
    sketching = Sketching(llm, job, names) if "sketcher" in job else None
    for item in job["captures"]:
        capture(llm, job, item, names, recorder, sketching if item.get("sketch", True) else None)
    known: dict[Any, Any] = {}
    if sketching is not None:
        sketching.sketcher.begin("scores")
    for name, base_name in job.get("score", ()):
        score(llm, job, name, base_name, known)
    if sketching is not None:
        sketching.sketcher.end()
        write(Path(job["out"]) / "scores.sketches", sketching.take())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the engine's own shutdown can take seconds; everything is written


if __name__ == "__main__":
    main()
