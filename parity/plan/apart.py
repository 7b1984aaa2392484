"""Tokenizers of others, asked in a process of their own (`tokenise_child`), which is started once for each model."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn

from parity.errors import ParityError
from parity.messages import Message, message
from parity.plan.checkpoint import shipped_checkpoint
from parity.plan.tokenise import Spelling, TextOfTokens, texts_and_ids
from parity.records import Json

MEMORY_BYTES: Final = 2 << 30
"""Of address space."""
SECONDS: Final = 20
SECONDS_A_MEGABYTE: Final = 5
"""Of processor time for prompts, and to load a tokenizer: so many, and more for the prompts."""
SECONDS_TO_SHOW: Final = 4
"""Of processor time for some tokens, while a person may be waiting."""
PATIENCE: Final = 4
"""Times as much may pass: the machine has other work."""
MAX_ANSWER_BYTES: Final = 256 << 20
STREAMS_AT_ONCE: Final = 256
KEPT: Final = 4
"""Models whose process is kept."""
INHERITED: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "PARITY_HOME", "PARITY_LANG", "HOME")


class Child:
    """The other process. Raises ParityError where it does not answer in time; it is not asked again after that."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._broken: ParityError | None = None
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env |= {"TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
        env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "parity.plan.tokenise_child", str(MEMORY_BYTES)], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
        )  # fmt: skip
        self.end = weakref.finalize(self, _end, self._process)

    def ask(self, what: str, seconds: int, **given: Json) -> Any:
        """The answer; `seconds` of processor time."""
        asked = json.dumps({"ask": what, "of": str(self._model), "seconds": seconds, **given}).encode() + b"\n"
        with self._lock:
            if self._broken is not None:
                raise self._broken
            try:
                said = json.loads(self._answer(asked, seconds * PATIENCE))
            except (OSError, ValueError):
                self._fail(seconds)
        if "error" in said:
            hint = said.get("hint")
            raise ParityError(Message.from_json(said["error"]), hint=None if hint is None else Message.from_json(hint))
        return said["done"]

    def _answer(self, asked: bytes, seconds: float) -> bytes:
        """Raises OSError."""
        until, found = time.monotonic() + seconds, bytearray()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(asked)
        poll = select.poll() if hasattr(select, "poll") else None
        if poll is not None:
            poll.register(self._process.stdout, select.POLLIN)
        while not found.endswith(b"\n"):
            if poll is not None and not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError
            piece = self._process.stdout.read(1 << 20)
            if not piece or len(found) > MAX_ANSWER_BYTES:
                raise OSError("no answer")
            found += piece
        return bytes(found)

    def _fail(self, seconds: int) -> NoReturn:
        self.end()
        self._broken = ParityError(
            message(
                "plan.tokenizer_limits",
                "the tokenizer or the chat template of {model} needs more than {seconds} s or {gib} GiB, or crashes",
                model=str(self._model),
                seconds=seconds,
                gib=MEMORY_BYTES >> 30,
            ),
            hint=message("plan.give_token_ids", "is the checkpoint what it should be? `prompt_token_ids` need neither"),
        )
        raise self._broken


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


class ApartTokens:
    """As `TextOfTokens`, of a checkpoint of somebody else. Each call may raise ParityError."""

    def __init__(self, model: Path) -> None:
        self._child = Child(model)
        self._child.ask("open", SECONDS, model=str(model))

    def decode(self, ids: Sequence[int], *, skip: bool = False) -> str:
        return self.decode_each([ids], skip=skip)[0]

    def decode_each(self, streams: Sequence[Sequence[int]], *, skip: bool = False) -> list[str]:
        found: list[str] = []
        for begin in range(0, len(streams), STREAMS_AT_ONCE):
            some = [[int(one) for one in ids] for ids in streams[begin : begin + STREAMS_AT_ONCE]]
            found += self._child.ask("decode", SECONDS_TO_SHOW, streams=some, skip=skip)
        return found

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return [int(one) for one in self._child.ask("encode", SECONDS, text=text, special=special)]

    def spellings(self, ids: Sequence[int]) -> list[Spelling]:
        said = self._child.ask("spellings", SECONDS_TO_SHOW, ids=[int(one) for one in ids])
        return [Spelling(*one) for one in said]


def tokenised(model: Path, prompts: Sequence[dict[str, Json]]) -> list[tuple[str | None, list[int]]]:
    """(text, token ids) of each prompt. Raises ParityError."""
    if is_ours(model):
        return texts_and_ids(prompts, model)
    seconds = SECONDS + SECONDS_A_MEGABYTE * (sum(len(str(prompt.get("text"))) for prompt in prompts) >> 20)
    child = Child(model)
    try:
        answer = child.ask("prompts", seconds, model=str(model), prompts=list(prompts))
    finally:
        child.end()
    return [(text, [int(one) for one in ids]) for text, ids in answer]


def is_ours(model: Path) -> bool:
    """Whether a checkpoint came with parity, or nothing here can be limited."""
    return os.name != "posix" or shipped_checkpoint(model.name) == model


def tokens_of(model: Path) -> TextOfTokens | ApartTokens:
    """What makes text of a checkpoint's tokens and the other way round. Raises ParityError where it does not load."""
    stat = (model / "tokenizer.json").stat()
    return _tokens_of(model, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=KEPT)
def _tokens_of(model: Path, *identity: int) -> TextOfTokens | ApartTokens:
    return TextOfTokens(model) if is_ours(model) else ApartTokens(model)
