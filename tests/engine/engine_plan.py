"""A small plan for the real engine, and what one engine start gives for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from parity.run import Backend, ScoreItem

PROMPTS = ("In the beginning God", "def main(argv):", "The capital of France is", "And it came to pass")


class BaseArm(NamedTuple):
    """What one engine start gave: `cpu-base.jsonl`, `scores.jsonl` and `base.log` in `directory`."""

    directory: Path
    capture: Path
    asked: list[ScoreItem]
    said: list[str]
    """What the session said while scoring."""


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
