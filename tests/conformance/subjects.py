"""The backends under test, each with a way to bring it up, and the plan that all of them get."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gaps
from fake_server import MODEL, VOCABULARY, fake_server
from plans import plan_of
from real_server import SPECULATION, vllm_server
from tokenizers import Tokenizer

from parity.plan import Plan
from parity.plan.messages import parse_messages
from parity.run import Backend, OwnSettings, load_backend, run_arm

PROMPTS = ("In the beginning God", "def main(argv):", "The capital of France is", "And it came to pass")
MAX_TOKENS = 12

GREEDY = {
    "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "max_tokens": MAX_TOKENS, "min_tokens": 0, "n": 1, "seed": 0, "stop": [],
    "stop_token_ids": [], "ignore_eos": False, "skip_special_tokens": True, "logprobs": None,
}  # fmt: skip


@dataclass(frozen=True)
class Up:
    """A subject that is up: the adapter's name and the settings of its arm."""

    backend: str
    engine: dict[str, Any]
    env: dict[str, str]

    @property
    def arm(self) -> str:
        return f"{self.backend}/x"

    def plan(self, *, rounds: int = 1, requests: list[dict[str, Any]] | None = None, **sampling: Any) -> Plan:
        """The plan of the suite, as `parity plan` would write it."""
        value = {
            "model": {"name": MODEL.name, "path": str(MODEL), "vocab_size": VOCABULARY, "eos_token_ids": [0]},
            "rounds": rounds,
            "sampling": {**GREEDY, **sampling},
            "requests": requests if requests is not None else questions(),
            "arms": [
                {"name": self.arm, "backend": self.backend, "variant": "x", "engine": self.engine, "env": self.env}
            ],
            "baseline": self.arm,
        }
        return plan_of(value)


def questions() -> list[dict[str, Any]]:
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    return [
        {
            "id": f"p{number}",
            "prompt": prompt,
            "prompt_token_ids": tokenizer.encode(prompt).ids,
            "messages": list(parse_messages([{"role": "user", "content": prompt}])),
        }
        for number, prompt in enumerate(PROMPTS)
    ]


def text_of(token_ids: Any) -> str:
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    return str(tokenizer.decode([int(token) for token in token_ids], skip_special_tokens=True))


# --------------------------------------------------------------------------- bringing them up


def settings(backend: str, **given: Any) -> dict[str, Any]:
    adapter = load_backend(backend)
    assert isinstance(adapter, OwnSettings)
    return adapter.arm_settings(given)


@contextmanager
def fake(_: Path, *, vllm: bool = True, **options: Any) -> Iterator[Up]:
    with fake_server(vllm=vllm) as server:
        yield Up("server", settings("server", url=server.url, timeout=30.0, **options), {})


@contextmanager
def replay(directory: Path) -> Iterator[Up]:
    """A recording of the fake server, with its scores beside it."""
    capture = directory / "recorded.jsonl"
    with fake(directory) as up:
        record(up, up.plan(rounds=2), capture, directory / "scores.jsonl")
    yield Up("replay", settings("replay", capture=str(capture)), {})


def record(up: Up, plan: Plan, capture: Path, scores: Path) -> None:
    from parity.capture import read_capture
    from parity.run import ScoreItem

    with run_arm(plan, up.arm, capture, capture.with_suffix(".log")) as session:
        session.generate()
        items = [ScoreItem(up.arm, *one.key, one.prompt_token_ids, one.token_ids) for one in read_capture(capture)]
        session.score(items, scores)


def by_name(name: str) -> Callable[[Path], AbstractContextManager[Up]]:
    """A backend as it is; where its device is not here, its session raises BackendError."""

    def bring_up(_: Path) -> AbstractContextManager[Up]:
        adapter = load_backend(name)
        engine = {**adapter.engine_defaults("base", num_speculative_tokens=1), "max_model_len": 256}
        return nullcontext(Up(name, engine, adapter.env_defaults("base")))

    return bring_up


def transformers(_: Path) -> AbstractContextManager[Up]:
    adapter = load_backend("transformers")
    engine = settings("transformers", **adapter.engine_defaults("base", num_speculative_tokens=1))
    return nullcontext(Up("transformers", engine, adapter.env_defaults("base")))


SERVERS: dict[str, str] = {}
"""The URL of vLLM's own server, started once for all that test it."""


@contextmanager
def vllm(directory: Path, **options: Any) -> Iterator[Up]:
    yield Up("server", settings("server", url=SERVERS["vllm"], timeout=120.0, **options), {})


def real_server(directory: Path) -> AbstractContextManager[str]:
    adapter: Backend = load_backend("cpu")
    python = adapter.interpreter(print)
    env = {**adapter.env_defaults("base"), **adapter.launch_env(python)}
    env.pop("VLLM_ENABLE_V1_MULTIPROCESSING")  # the server runs as it does in production
    env["VLLM_SERVER_DEV_MODE"] = "1"  # it reports its arguments
    return vllm_server(python, MODEL, directory / "server.log", {**os.environ, **env}, SPECULATION)


FAST: dict[str, Callable[[Path], AbstractContextManager[Up]]] = {
    "server": fake,
    "server-stream": lambda directory: fake(directory, stream=True),
    "server-chat": lambda directory: fake(directory, endpoint="chat"),
    "server-chat-stream": lambda directory: fake(directory, endpoint="chat", stream=True),
    "server-text": lambda directory: fake(directory, vllm=False),
    "replay": replay,
}
HARDWARE = {name: by_name(name) for name in gaps.HARDWARE}
ENGINES: dict[str, Callable[[Path], AbstractContextManager[Up]]] = {
    "cpu": by_name("cpu"),
    **{name: by_name(name) for name in gaps.ENVIRONMENTS},
    "transformers": transformers,
    "vllm-server": vllm,
    "vllm-server-stream": lambda directory: vllm(directory, stream=True),
    "vllm-server-chat": lambda directory: vllm(directory, endpoint="chat"),
    "vllm-server-chat-stream": lambda directory: vllm(directory, endpoint="chat", stream=True),
}
"""Those that start an engine (marked so), in an order that keeps no two up at the same time."""
