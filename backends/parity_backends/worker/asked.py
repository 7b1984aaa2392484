"""What the supervisor sends, as types of the dictionaries that JSON makes. docs/plan.md describes each key."""

from __future__ import annotations

from typing import Any, Optional, TypedDict, Union

Record = dict[str, Any]
"""A line of a capture on its way."""
Sampling = dict[str, Any]
"""Sampling parameters by the names that plans have for them."""
Rows = dict[str, dict[str, Any]]
"""What is known of each sampling parameter, by name (`parity.records.sampling.wire`)."""
Settings = dict[str, Any]
"""What the engine of an arm is asked for."""


class ModelAsked(TypedDict, total=False):
    name: str
    path: str
    vocab_size: Optional[int]
    eos_token_ids: Optional[list[int]]


class ArmAsked(TypedDict, total=False):
    name: str
    backend: str
    variant: str
    engine: Settings
    env: dict[str, str]


class Request(TypedDict, total=False):
    id: str
    prompt: Optional[str]
    prompt_token_ids: list[int]
    max_tokens: Optional[int]
    messages: Any
    sampling: Optional[Sampling]


class Churn(TypedDict, total=False):
    arrival: str
    every: float
    shuffle: bool
    abort_share: float
    abort_after: tuple[int, int]
    batch_sizes: Optional[tuple[int, int]]
    needle: str
    asynchronous: bool
    seed: int


class Plan(TypedDict, total=False):
    model: ModelAsked
    arms: list[ArmAsked]
    requests: list[Request]
    rounds: int
    record: Union[bool, str]
    sketch: str
    sketch_tokens: int
    """Of so many tokens of each phase and no more; in no plan of `parity plan`, a kit asks for it."""
    sampling: Sampling
    churn: Churn
    parameters: Rows


class Item(TypedDict):
    """A completion to score."""

    arm: str
    request: str
    round: int
    sample: int
    prompt_token_ids: list[int]
    token_ids: list[int]
