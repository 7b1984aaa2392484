"""A stand-in for vLLM, as small as the reproduction script needs it. It plays what $FAKE_VLLM (JSON) says.

outputs: one dictionary per round, request id (the first prompt token) → [[token ids], finish reason] per sample;
reference: logprob gaps in nats by token id; fails: raise at engine start.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

PLAY: dict[str, Any] = json.loads(os.environ["FAKE_VLLM"])


@dataclass
class EngineArgs:
    model: str = ""
    dtype: str = "auto"
    max_num_seqs: int = 0
    speculative_config: Any = None


class SamplingParams:
    def __init__(self, **wanted: Any) -> None:
        self.__dict__.update(wanted)


class LLM:
    def __init__(self, model: str, **settings: Any) -> None:
        if PLAY.get("fails"):
            raise RuntimeError("no such device")
        EngineArgs(model, **settings)
        self.reference = "speculative_config" not in settings
        if self.reference and os.environ.get("PARITY_FAULT"):
            raise RuntimeError("a fault is planted in the reference")
        self.round = 0

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(decode=lambda ids, skip_special_tokens: " ".join(map(str, ids)))

    def generate(self, prompts: list[Any], params: Any, use_tqdm: bool = True) -> list[Any]:
        if self.reference:
            return [self._scored(prompt["prompt_token_ids"]) for prompt in prompts]
        plays = PLAY["outputs"]
        played = plays[min(self.round, len(plays) - 1)]
        self.round += 1
        outputs = []
        for prompt in prompts:
            samples = [
                SimpleNamespace(
                    index=i, token_ids=ids, finish_reason=reason, text=" ".join(map(str, ids)), logprobs=None
                )
                for i, (ids, reason) in enumerate(played[str(prompt["prompt_token_ids"][0])])
            ]
            outputs.append(SimpleNamespace(outputs=samples))
        return outputs

    @staticmethod
    def _scored(ids: list[int]) -> Any:
        gaps = PLAY.get("reference", {})
        entry = lambda token: {  # noqa: E731
            token: SimpleNamespace(logprob=-0.5 - gaps.get(str(token), 0.0)),
            -1: SimpleNamespace(logprob=-0.5),
        }
        return SimpleNamespace(prompt_logprobs=[None, *(entry(token) for token in ids[1:])])
