"""The questions that a recording answers: its prompts and sampling parameters as those of a new plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parity.capture import read_capture
from parity.errors import ParityError
from parity.messages import message
from parity.plan import Prompt, Sampling
from parity.plan.prompts import asking
from parity.records import Json
from parity.records.sampling import Value, asked, read_values


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
            own = dict(completion.sampling)
            if completion.max_tokens is not None:
                own["max_tokens"] = completion.max_tokens
            tokens = tuple(completion.prompt_token_ids.tolist())
            prompts[name] = asking(Prompt(name, token_ids=tokens), _read(own, path))
    if not prompts:
        raise ParityError(
            message(
                "pipeline.no_completions_there", "{path} has no completions: there is nothing to replay", path=str(path)
            ),
            hint=message("pipeline.name_another_capture", "name another capture"),
        )
    rounds = 1 + max(completion.key.round for completion in capture)
    return Questions(list(prompts.values()), _asked(capture.header.sampling, path), rounds)


def _asked(recorded: Mapping[str, Json], path: Path) -> Sampling:
    """What a header says of sampling, as far as plans know it; what it leaves out or says null is at its default."""
    return Sampling().having(_read(recorded, path))


def _read(recorded: Mapping[str, Json], path: Path) -> dict[str, Value]:
    given = {row.name: row.plain(recorded[row.name]) for row in asked() if recorded.get(row.name) is not None}
    return read_values(
        given,
        lambda name, problem: ParityError(
            message(
                "pipeline.sampling", "{path}: sampling.{name} {problem}", path=str(path), name=name, problem=problem
            )
        ),
    )
