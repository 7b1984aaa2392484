"""The questions that a recording answers: its prompts and sampling parameters as those of a new plan."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from parity.capture import read_capture
from parity.errors import ParityError
from parity.plan import Prompt, Sampling


@dataclass(frozen=True, slots=True)
class Questions:
    """What was asked when a capture was made."""

    prompts: list[Prompt]
    sampling: Sampling
    rounds: int


def questions_of(path: Path) -> Questions:
    """From a capture file. Raises CaptureError for a damaged one, ParityError for one without completions."""
    capture = read_capture(path)
    prompts: dict[str, Prompt] = {}
    for completion in capture:
        name = completion.key.request
        if name not in prompts:
            prompts[name] = Prompt(name, token_ids=tuple(completion.prompt_token_ids.tolist()))
    if not prompts:
        raise ParityError(f"{path} has no completions: there is nothing to replay", hint="name another capture")
    known = {field.name for field in fields(Sampling)}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in capture.header.sampling.items()
        if name in known
    }
    rounds = 1 + max(completion.key.round for completion in capture)
    return Questions(list(prompts.values()), Sampling(**given), rounds)
