"""Tokenising with somebody else's checkpoint, in a process that may take little memory and time.

A tokenizer's regular expressions and a chat template are somebody else's programs: one may not end, take all memory or
panic in Rust. So they run here, within limits of the operating system, and what comes back is JSON.

    python -m parity.plan.tokenise_child < {"model": DIRECTORY, "seconds": N, "prompts": […]}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from parity.errors import ParityError
from parity.messages import Message, message
from parity.records import Json

MEMORY_BYTES: Final = 2 << 30
"""Of address space."""
SECONDS: Final = 20
SECONDS_A_MEGABYTE: Final = 5
"""Of processor time: so many, and more for the prompts."""


def tokenised_apart(model: Path, prompts: Sequence[dict[str, Json]]) -> list[tuple[str | None, list[int]]]:
    """(text, token ids) of each prompt, made in a process of its own. Raises ParityError."""
    asked = json.dumps({"model": str(model), "prompts": list(prompts)})
    seconds = SECONDS + SECONDS_A_MEGABYTE * (len(asked) >> 20)
    env = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
    command = [sys.executable, "-P", "-m", "parity.plan.tokenise_child", str(seconds)]
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            command, input=asked.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, check=False,
            timeout=4 * seconds,
        )  # fmt: skip
        answer: Any = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        raise ParityError(
            message(
                "plan.tokenizer_limits",
                "the tokenizer or the chat template of {model} needs more than {seconds} s or {gib} GiB, or crashes",
                model=str(model),
                seconds=seconds,
                gib=MEMORY_BYTES >> 30,
            ),
            hint=message("plan.give_token_ids", "is the checkpoint what it should be? `prompt_token_ids` need neither"),
        ) from None
    if isinstance(answer, dict):
        hint = answer.get("hint")
        raise ParityError(Message.from_json(answer["error"]), hint=None if hint is None else Message.from_json(hint))
    return [(text, [int(one) for one in ids]) for text, ids in answer]


def main() -> None:
    """The other side."""
    import resource

    seconds = int(sys.argv[1])
    limits = {resource.RLIMIT_AS: MEMORY_BYTES, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
    for kind, most in limits.items():
        with suppress(ValueError, OSError):  # a lower one is set already, or the system has none of this kind
            resource.setrlimit(kind, (most, most))
    asked = json.loads(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        from parity.plan.tokenise import texts_and_ids

        answer: Any = texts_and_ids(asked["prompts"], Path(asked["model"]))
    except ParityError as error:
        answer = {"error": error.message.to_json(), "hint": None if error.hint is None else error.hint.to_json()}
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception
        said = message(
            "plan.tokenizer_fails",
            "the tokenizer of {model} fails: {kind}: {said}",
            model=asked["model"],
            kind=type(error).__name__,
            said=str(error)[:300],
        )
        answer = {"error": said.to_json(), "hint": None}
    json.dump(answer, out)
    out.flush()


if __name__ == "__main__":
    main()
