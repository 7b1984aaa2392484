"""One engine environment for all tests here, and one engine start where a test can share it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from parity.run import ArmSession, Backend, load_backend, run_arm

PROMPTS = ("In the beginning God", "def main(argv):", "The capital of France is", "And it came to pass")


@pytest.fixture(scope="session")
def cpu() -> Backend:
    return load_backend("cpu")


@pytest.fixture(scope="session")
def interpreter(cpu: Backend) -> Path:
    """A Python with vLLM for CPU: the managed environment, built when missing, or $PARITY_CPU_PYTHON."""
    return cpu.interpreter(lambda line: print(line, file=sys.stderr, flush=True))


def make_plan(cpu: Backend, *, max_tokens: int = 16, rounds: int = 1, **sampling: Any) -> dict[str, Any]:
    """Four prompts, arms cpu/base and cpu/mtp, as `parity plan` would write it."""
    model = cpu.default_model()
    assert model is not None
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return {
        "schema": "parity.plan/1",
        "model": {"name": model.name, "path": str(model), "vocab_size": 2048, "eos_token_ids": [0]},
        "rounds": rounds,
        "sampling": {
            "temperature": 0.0,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "max_tokens": max_tokens,
            "min_tokens": 0,
            "n": 1,
            "seed": 0,
            "stop": [],
            "stop_token_ids": [],
            "ignore_eos": False,
            "skip_special_tokens": True,
            "logprobs": None,
            **sampling,
        },
        "requests": [
            {"id": f"p{i}", "prompt": prompt, "prompt_token_ids": tokenizer.encode(prompt).ids}
            for i, prompt in enumerate(PROMPTS)
        ],
        "arms": [
            {
                "name": f"cpu/{variant}",
                "backend": "cpu",
                "variant": variant,
                "engine": {**cpu.engine_defaults(variant, num_speculative_tokens=2), "max_model_len": 256},
                "env": cpu.env_defaults(variant),
            }
            for variant in cpu.variants
        ],
        "baseline": "cpu/base",
    }


@pytest.fixture(scope="session")
def base_plan(cpu: Backend) -> dict[str, Any]:
    return json.loads(json.dumps(make_plan(cpu)))


@pytest.fixture(scope="session")
def base_arm(
    interpreter: Path, base_plan: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ArmSession, Path]]:
    """A `cpu/base` session that has generated, with its engine still up, and its directory."""
    directory = tmp_path_factory.mktemp("base")
    with run_arm(base_plan, "cpu/base", directory / "cpu-base.jsonl", directory / "base.log") as session:
        session.generate()
        yield session, directory
