"""What a plan consists of: the checkpoint, requests, arms, and which completions are scored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

from parity.messages import Message, message
from parity.plan.fields import Read, Wrong, typed
from parity.plan.messages import Messages, has_images, optional_messages
from parity.records import Json
from parity.records.sampling import Sampling, Value, json_value, read_values

SCORE_MODES: Final = ("all", "differing", "none")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]*/[A-Za-z0-9][A-Za-z0-9._+=-]*")


def _wrong(name: str, problem: Message) -> Wrong:
    return Wrong(problem, f".{name}")


def run_sampling(value: Json) -> Sampling:
    return Sampling().having(read_values(typed(Mapping[str, Any], value), _wrong))


def _own_sampling(value: Json) -> dict[str, Value]:
    return read_values(typed(Mapping[str, Any], value), _wrong, own=True)


def _arm_name(value: Json) -> str:
    """It becomes a file name in the run directory, and plans come from other hosts."""
    name: str = typed(str, value)
    if not _NAME.fullmatch(name):
        raise ValueError(message("plan.not_arm_name", "is {name!r}, not of the form backend/variant", name=name))
    return name


def _score_mode(value: Json) -> str:
    return one_of(value, SCORE_MODES)


def one_of(value: Json, known: tuple[str, ...]) -> str:
    word: str = typed(str, value)
    if word not in known:
        raise ValueError(message("plan.not_one_of", "is {value!r}, not one of {known}", value=word, known=known))
    return word


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt. Every arm gets these token ids; `prompt` is the text they came from, for people."""

    id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    max_tokens: int | None = None
    """A limit of its own, below the plan's: output lengths are mixed. None: the plan's."""
    messages: Annotated[Messages | None, Read(optional_messages)] = None
    """The chat messages it came from, for backends that take them; `prompt_token_ids` are of their text."""
    sampling: Annotated[Mapping[str, Value], Read(_own_sampling)] = field(default_factory=dict, hash=False)
    """Its own sampling parameters but `max_tokens`, those that are not the plan's."""

    @property
    def has_images(self) -> bool:
        return has_images(self.messages)

    def own_json(self) -> dict[str, Json]:
        """Its own sampling parameters as JSON has them."""
        return {name: json_value(value) for name, value in self.sampling.items()}

    def to_json(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "prompt": self.prompt,
            "prompt_token_ids": list(self.prompt_token_ids),
            **({} if self.max_tokens is None else {"max_tokens": self.max_tokens}),
            **({"sampling": self.own_json()} if self.sampling else {}),
            **({} if self.messages is None else {"messages": [dict(one) for one in self.messages]}),
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """A combination of settings that was asked for and cannot run, and why."""

    arm: str
    reason: Annotated[Message, Read(Message.from_json)] = field(compare=False)

    def to_json(self) -> dict[str, Json]:
        return {"arm": self.arm, "reason": self.reason.to_json()}


@dataclass(frozen=True, slots=True)
class Arm:
    """One backend with one variant. `engine` holds the keyword arguments of `vllm.LLM` without the model."""

    name: Annotated[str, Read(_arm_name)]
    backend: str
    variant: str
    engine: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    control: str | None = None
    """The fault planted in this arm's engine on purpose: a positive control, which must be found."""
    deployed: bool = False
    """It runs as production does: what is not in `engine` is left to the engine."""
    rung: str | None = None
    """Of a ladder: the setting that this arm has of production, over the arm before it."""

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "backend": self.backend,
            "variant": self.variant,
            "engine": dict(self.engine),
            "env": dict(self.env),
            **({"control": self.control} if self.control else {}),
            **({"deployed": True} if self.deployed else {}),
            **({"rung": self.rung} if self.rung else {}),
        }


@dataclass(frozen=True, slots=True)
class Model:
    """The checkpoint. `fingerprint` maps a part ("config.json", "weights", …) to its SHA-256."""

    name: str
    path: str
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    vocab_size: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """As json.loads would give it back: lists, not tuples, so that plans in memory and on disk are equal."""
        return {name: list(item) if isinstance(item, tuple) else item for name, item in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Score:
    """Which candidate completions the baseline teacher-forces, and how many top logprobs it gives."""

    mode: Annotated[str, Read(_score_mode)] = "all"
    top: int = 5
