"""Faults planted in a real engine: what was planted is what is found, and nothing else is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from parity_backends import faults
from parity_backends.cpu import CpuBackend
from parity_backends.faults.judge import Judgement, judge

from parity.capture import read_capture, read_scores
from parity.comparator import compare
from parity.plan.prompts import load_suite
from parity.plan.tokenise import tokenise

pytestmark = pytest.mark.engine

LAB = Path(faults.__file__).with_name("lab.py")
PLANTED = {
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
CONTROLS = {"none": "none", "logits_noise": "logits_noise:rate=1:seed=3"}
ENGINE: dict[str, Any] = {
    "dtype": "bfloat16",
    "enforce_eager": True,
    "enable_prefix_caching": False,
    # Four rows for twelve requests: requests start beside running ones.
    "max_num_seqs": 4,
    "max_num_batched_tokens": 512,
    "max_model_len": 256,
    "seed": 0,
    "generation_config": "vllm",
    "disable_log_stats": False,
}


def _engine(folder: Path, interpreter: Path, command: list[str], log: str, **more: str) -> None:
    """Runs a command in the engine's interpreter, everything it says in a file, and leaves no process behind."""
    backend = CpuBackend()
    environment = {**os.environ, **backend.env_defaults("mtp"), **backend.launch_env(interpreter), **more}
    with (folder / log).open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            [str(interpreter), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=500)
        finally:
            # An engine core of its own outlives the process that started it by seconds, or for good.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == 0, (folder / log).read_text(encoding="utf-8")[-4000:]


@pytest.fixture(scope="module")
def interpreter() -> Path:
    return CpuBackend().interpreter(print)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, interpreter: Path) -> Path:
    """A folder of captures, one per fault, from two engine starts."""
    folder = tmp_path_factory.mktemp("lab")
    model = CpuBackend().default_model()
    assert model is not None
    suite = [request for request in tokenise(load_suite("mixed"), model) if len(request.prompt_token_ids) < 50]
    texts = {name: f"{name}:rate={rate}:seed=3" for name, rate in PLANTED.items()} | CONTROLS
    job = {
        "model": str(model),
        "sampling": {"temperature": 0.0, "max_tokens": 40},
        "requests": [{"id": r.id, "prompt_token_ids": list(r.prompt_token_ids)} for r in suite[::4][:12]],
        "out": str(folder),
        "vocab_size": 2048,
        "eos_token_ids": [0],
    }
    speculation = {
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
        "per_request_spec_decode_metrics": "detailed",
    }
    jobs = {
        "mtp": {
            "engine": {**ENGINE, **speculation},
            "captures": [{"name": name, "fault": text} for name, text in texts.items()],
        },
        "base": {
            "engine": ENGINE,
            "captures": [{"name": "none", "fault": "none"}],
            "score": [[name, "none"] for name in texts],
        },
    }
    for variant, own in jobs.items():
        path = folder / f"{variant}.json"
        path.write_text(json.dumps({**job, **own, "variant": variant}), encoding="utf-8")
        _engine(folder, interpreter, [str(LAB), str(path)], f"{variant}.log")
    return folder


def _planted(folder: Path) -> list[dict[str, Any]]:
    log = folder / "planted.jsonl"
    if not log.exists():
        return []
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["record"] == "planted"]


def _judged(lab: Path, name: str) -> Judgement:
    candidate, scores = read_capture(lab / name / "mtp.jsonl"), read_scores(lab / name / "scores.jsonl")
    comparison = compare(read_capture(lab / "none" / "base.jsonl"), candidate, scores).to_json()
    return judge(name, comparison, _planted(lab / name), candidate, scores)


@pytest.mark.parametrize("name", PLANTED)
def test_every_damaged_row_is_found_and_no_other(lab: Path, name: str) -> None:
    result = _judged(lab, name)
    assert result.truths, "nothing was planted"
    assert result.damaged, "no planted row came out damaged"
    assert result.verdict == "DIVERGED"
    assert [truth.request for truth in result.caught] == [truth.request for truth in result.damaged]
    assert result.accused == []


def test_kind_and_first_token_are_right(lab: Path) -> None:
    results = [_judged(lab, name) for name in PLANTED]
    caught = sum(len(result.caught) for result in results)
    assert caught >= 30
    assert sum(len(result.right_kind) for result in results) >= 0.9 * caught
    assert sum(len(result.right_token) for result in results) >= 0.9 * caught


@pytest.mark.parametrize("name", CONTROLS)
def test_noise_of_the_size_of_rounding_is_not_reported(lab: Path, name: str) -> None:
    candidate, scores = read_capture(lab / name / "mtp.jsonl"), read_scores(lab / name / "scores.jsonl")
    result = compare(read_capture(lab / "none" / "base.jsonl"), candidate, scores)
    assert result.corrupt == []
    assert result.verdict == "PASS"
    if name == "logits_noise":
        assert len(_planted(lab / name)) > 100
        clean = read_capture(lab / "none" / "mtp.jsonl")
        changed = [
            key
            for key, completion in candidate.completions.items()
            if completion.token_ids.tolist() != clean.completions[key].token_ids.tolist()
        ]
        assert changed, "the noise changed no token, so it shows nothing"


MULTIPROCESS = """
import json, os, sys
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    assert "parity" not in sys.modules
    llm = LLM(sys.argv[1], **json.loads(sys.argv[2]))
    outputs = llm.generate(["In the beginning God", "Once upon a time"], SamplingParams(temperature=0, max_tokens=12))
    found = [[output.outputs[0].finish_reason, len(output.outputs[0].token_ids)] for output in outputs]
    with open(sys.argv[3], "w") as file:
        json.dump({"pid": os.getpid(), "found": found}, file)
    os._exit(0)
"""


def test_the_plugin_reaches_an_engine_core_in_another_process(tmp_path: Path, interpreter: Path) -> None:
    """As on a far host: a zip file on PYTHONPATH, the environment, nothing of parity, a core of its own."""
    bundle, log, script = tmp_path / "plugin.zip", tmp_path / "planted.jsonl", tmp_path / "run.py"
    bundle.write_bytes(faults.bundle())
    script.write_text(MULTIPROCESS, encoding="utf-8")
    model = CpuBackend().default_model()
    variables = faults.environment("early_eos", rate=1.0, log=str(log), max=1)
    variables |= {"PYTHONPATH": str(bundle), "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    answer = tmp_path / "answer.json"
    command = [str(script), str(model), json.dumps(ENGINE), str(answer)]
    _engine(tmp_path, interpreter, command, "engine.log", **variables)
    answered = json.loads(answer.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    [planted] = [line for line in lines if line["record"] == "planted"]
    installed = {line["pid"] for line in lines if line["record"] == "installed"}
    assert installed - {answered["pid"]}, "no other process had it"
    assert sorted(reason for reason, _ in answered["found"]) == ["length", "stop"]
    [stopped] = [length for reason, length in answered["found"] if reason == "stop"]
    assert stopped == planted["position"] + 1
