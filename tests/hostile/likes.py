"""What `--like` names: a line of somebody else, a recipe file, a server that reports."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asked import Asked
from judging import KEY, Ended, place
from servers import DEEDS, liar
from stores import MOVES, deep

MIB = 700
SECONDS = 60.0

LINES: dict[str, str] = {
    "nested": "vllm serve m --speculative-config '" + "[" * 100_000 + "'",
    "nested JSON": "vllm serve m --hf-overrides '" + json.dumps({"a": deep(900)}) + "'",
    "nested keys": "vllm serve m --speculative-config." + ".".join("a" * 5000) + " 1",
    "keys that clash": "vllm serve m --speculative-config.a 1 --speculative-config.a.b 2",
    "a number without end": "vllm serve m --max-model-len " + "9" * 400 + "k",
    "many digits": "vllm serve m --max-model-len " + "9" * 50_000,
    "that moves": f"vllm serve m --served-model-name '{MOVES}' --{MOVES}",
    "a model that moves": f"vllm serve '{MOVES}'",
    "NUL": "vllm serve m\x00 --max-model-len 8",
    "quotes": "vllm serve 'm",
    "a config of a device": "vllm serve m --config /dev/zero",
    "a config of nothing": "vllm serve m --config",
    "a million flags": "vllm serve m " + "--max-model-len 8 " * 20_000,
    "substitution": "vllm serve $(touch PWNED) `touch PWNED`; touch PWNED",
}


def text(content: str | bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode()) and None


def two_gigabytes(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 << 30)


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
RECIPES: dict[str, Callable[[Path], None]] = {
    "laughs": text(LAUGHS), "nested": text("a: " + "[" * 20_000), "nested mappings": text("".join("  " * n + "a:\n" for n in range(900))),
    "itself": text("speculative-config: &a {b: *a}"), "a list of itself": text("stop: &a [*a]"), "a date": text("max-model-len: 2024-01-01"), "no date": text("max-model-len: 2024-99-99"),
    "bytes": text("model: !!binary aGFsbG8="), "a set": text("stop: !!set {a, b}"), "python": text("model: !!python/object/apply:os.system ['touch PWNED']"),
    "keys of lists": text("? [a]\n: b"), "NaN": text("gpu-memory-utilization: .nan"), "10^400": text("max-model-len: 1" + "0" * 400), "not UTF-8": text(b"\xff\xfe"), "nothing": text(""),
    "a worker class": text("worker-cls: evil.Worker\nmax-model-len: 64"), "remote code": text("trust-remote-code: true"), "a plugin": text("speculative-config: '{\"draft_module\": \"evil.mod\"}'"),
    "itself as config": text("config: x.yaml\nmax-model-len: 64"), "that moves": text(f'served-model-name: "x"\n"{MOVES.encode("unicode_escape").decode()}": 1'),
    "2 GB": two_gigabytes, "a pipe": lambda path: os.mkfifo(path), "a device": lambda path: path.symlink_to("/dev/zero"),
}  # fmt: skip

REPORTS: dict[str, Any] = {
    "a list": [1], "no configuration": {}, "nested": {"vllm_config": deep(900)}, "a model that moves": {"vllm_config": {"model_config": {"model": MOVES}}},
    "a model elsewhere": {"vllm_config": {"model_config": {"model": "/etc"}}}, "lengths of 2^70": {"vllm_config": {"model_config": {"max_model_len": 2**70}}},
    "settings of text": {"vllm_config": {"model_config": {"dtype": MOVES, "enforce_eager": "x", "max_model_len": -1}, "scheduler_config": {"max_num_seqs": [5, "x"]}}},
    "code": {"vllm_config": {"parallel_config": {"worker_cls": "evil.Worker", "distributed_executor_backend": "evil.Executor"}, "model_config": {"dtype": "evil.module", "trust_remote_code": True}}},
    "a draft from elsewhere": {"vllm_config": {"speculative_config": {"model": "../../x", "method": "evil.method"}}},
}  # fmt: skip
ANSWERS = ("not HTTP", "waits", "drip", "endless body", "endless blanks", "endless 100", "redirect to a file", "closes", "deep", "40 MB of numbers", "45 MB of lists",
           "not UTF-8", "gzip bomb")  # fmt: skip

CASES = [
    *(f"line: {name}" for name in LINES), *(f"recipe: {name}" for name in RECIPES),
    *(f"report: {name}" for name in REPORTS), *(f"server: {name}" for name in ANSWERS if name in DEEDS),
]  # fmt: skip
SHORT = ("recipe: laughs", "recipe: a worker class", "server: not HTTP", "report: code")


def campaign(asked: Asked) -> Iterator[Ended]:
    """A plan made like each; none may run anything or have code imported that its recipe or its server named."""
    for case in SHORT if asked.short else asked.piece(CASES):
        what, _, name = case.partition(": ")
        with place() as here, contextlib.ExitStack() as stack:
            if what == "line":
                source = LINES[name]
            elif what == "recipe":
                path = here.work / "x.yaml"
                RECIPES[name](path)
                source = str(path)
            else:
                source = stack.enter_context(liar(f"first: {name}" if what == "server" else f"like: {name}"))
            if "\x00" in source or len(source) > 100_000:
                continue  # no command line takes it
            ended = here.run(case, "plan", "--backends", "cpu", "--variants", "base,deployed", "--like", source,
                             "--suite", "smoke", "-o", "plan.json", seconds=SECONDS, mib=MIB)  # fmt: skip
            plan = here.work / "plan.json"
            said = plan.read_text() if plan.is_file() else ""
            ended.problems += [f"planned {word}" for word in ("evil.", '"trust_remote_code": true') if word in said]
            assert KEY not in source
            yield ended
