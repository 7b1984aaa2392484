"""A server that parity did not start records itself: a zip file on PYTHONPATH and one variable."""

from __future__ import annotations

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity_backends.vllm.local import recorder_plugin
from real_server import SPECULATION, vllm_server

from parity.capture.steps import RowSteps, read_steps
from parity.explain.violations import check
from parity.pipeline.server_steps import named_by_server
from parity.records import Capture, Completion, Header, Key
from parity.run import Backend

pytestmark = pytest.mark.engine

PROMPTS = [[42, 290, 432, 484, 548, 16], [331, 450, 355, 1234, 331, 450], [1863, 363, 670, 302, 654], [7, 8, 9]]

WRITTEN_SECONDS = 30.0


def asked(url: str, prompt: list[int]) -> Any:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 24, "temperature": 0, "return_token_ids": True}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def served(cpu: Backend, interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], RowSteps]:
    """What the server answered, and what it recorded of it."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "recorder.zip").write_bytes(recorder_plugin())
    variables = {**cpu.env_defaults("mtp"), **cpu.launch_env(interpreter)}
    variables.pop("VLLM_ENABLE_V1_MULTIPROCESSING")  # as a user starts it: the engine in a process of its own
    variables |= {"PYTHONPATH": str(folder / "recorder.zip"), "PARITY_RECORD": str(folder / "steps")}
    model = cpu.default_model()
    assert model is not None
    server = vllm_server(interpreter, model, folder / "server.log", variables, SPECULATION)
    with server as url, ThreadPoolExecutor(len(PROMPTS)) as pool:
        answers = list(pool.map(lambda prompt: asked(url, prompt), PROMPTS))
        steps = written_steps(folder / "steps", sum(len(answer["choices"][0]["token_ids"]) for answer in answers))
    return answers, steps


def written_steps(folder: Path, tokens: int) -> RowSteps:
    """What is in the file once the engine was idle. A server that stops kills its workers without asking them."""
    until = time.monotonic() + WRITTEN_SECONDS
    while time.monotonic() < until:
        for path in folder.iterdir():
            content = path.read_bytes()
            recorded = read_steps(path) if content.endswith(b"\n") else ()
            if recorded and len(recorded[0].lists("handed").values) >= tokens:
                return recorded[0]
        time.sleep(0.1)
    raise AssertionError(f"{tokens} tokens were answered, and their steps are not written after {WRITTEN_SECONDS:g} s")


def test_nothing_of_a_healthy_server_is_accused(served: tuple[list[Any], RowSteps]) -> None:
    checked = check(served[1])
    assert checked.row_steps > len(PROMPTS)
    assert checked.violations == ()
    assert set(checked.unasked) <= {"given", "end"}, "where the worker is a process of its own, it sees no caller"


def test_its_steps_are_of_the_answers(served: tuple[list[Any], RowSteps]) -> None:
    answers, steps = served
    completions = {
        Key(f"p{number}", 0, 0): Completion(
            Key(f"p{number}", 0, 0),
            np.array(PROMPTS[number]),
            np.array(answer["choices"][0]["token_ids"]),
            None,
            "length",
            None,
            server={"id": answer["id"]},
        )
        for number, answer in enumerate(answers)
    }
    named = named_by_server(Capture(Header("server", "server", "", ""), completions, {}), steps)
    handed = steps.lists("handed")
    for key, completion in completions.items():
        [number] = [number for number, one in named.requests.items() if one.key == key]
        rows = steps.numbers("request") == number
        runner = handed.take(rows).values.tolist()
        assert runner[: len(completion.token_ids)] == completion.token_ids.tolist()
        assert len(runner) - len(completion.token_ids) <= 2, "the scheduler cuts at max_tokens, after the runner"
