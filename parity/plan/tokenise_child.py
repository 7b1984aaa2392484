"""The process in which somebody else's tokenizer and chat template run: little memory, little time, no secrets.

A tokenizer's regular expressions and a chat template are somebody else's programs: one may not end, take all memory or
panic in Rust. So they run here, within limits of the operating system. A request is a line of JSON, and so is its
answer: {"done": …}, or {"error": MESSAGE, "hint": MESSAGE}.

    python -m parity.plan.tokenise_child MEMORY_BYTES
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from parity.errors import ParityError
from parity.messages import message
from parity.plan.tokenise import TextOfTokens, texts_and_ids


class Answers:
    """What can be asked; `open` comes before what needs a tokenizer."""

    def __init__(self) -> None:
        self.tokenizer: TextOfTokens | None = None

    def prompts(self, model: str, prompts: list[dict[str, Any]]) -> object:
        return texts_and_ids(prompts, Path(model))

    def open(self, model: str) -> object:
        self.tokenizer = TextOfTokens(Path(model))
        return None

    def decode(self, streams: list[list[int]], skip: bool) -> object:
        assert self.tokenizer is not None
        return self.tokenizer.decode_each(streams, skip=skip)

    def encode(self, text: str, special: bool) -> object:
        assert self.tokenizer is not None
        return self.tokenizer.encode(text, special=special)

    def spellings(self, ids: list[int]) -> object:
        assert self.tokenizer is not None
        return self.tokenizer.spellings(ids)


def answered(answers: Answers, asked: dict[str, Any]) -> dict[str, Any]:
    """One answer, whatever happens."""
    model = asked.pop("of", "")
    ask: Callable[..., object] = getattr(answers, asked.pop("ask"))
    try:
        return {"done": ask(**asked)}
    except ParityError as error:
        return {"error": error.message.to_json(), "hint": None if error.hint is None else error.hint.to_json()}
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception
        said = message(
            "plan.tokenizer_fails",
            "the tokenizer of {model} fails: {kind}: {said}",
            model=model,
            kind=type(error).__name__,
            said=str(error)[:300],
        )
        return {"error": said.to_json(), "hint": None}


def limit_memory(most: int) -> None:
    """No more address space than this, and no core file."""
    with suppress(ImportError):  # no POSIX, no limits
        import resource

        for kind, value in ((resource.RLIMIT_AS, most), (resource.RLIMIT_CORE, 0)):
            with suppress(ValueError, OSError):  # a lower one is set already, or the system has none of this kind
                resource.setrlimit(kind, (value, value))


def limit_time(seconds: int) -> None:
    """So many seconds of processor time from now on; then the system ends this process."""
    with suppress(ImportError):
        import resource

        with suppress(ValueError, OSError):
            _, hard = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + seconds, hard))


def main() -> None:
    limit_memory(int(sys.argv[1]))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answers = Answers()
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        limit_time(asked.pop("seconds"))
        out.write(json.dumps(answered(answers, asked)).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
