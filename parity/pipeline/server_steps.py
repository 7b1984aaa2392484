"""Steps that a server's own recorder wrote: which completion of a capture each request of the engine made.

A server names a completion in its answer (`id`), and its engine gets that name with a number of the prompt and a random
part after it, and before it the sample where several were asked for (vllm/entrypoints/openai, vllm/v1/engine, 0.32.0).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from parity.capture.steps import RowSteps, StepRequest
from parity.records import Capture, Key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def named_by_server(capture: Capture, steps: RowSteps) -> RowSteps:
    """The same steps, requests without a completion named by the ids of the capture's answers."""
    if all(one.request is not None for one in steps.requests.values()):
        return steps
    answers: dict[str, dict[int, Key]] = {}
    for completion in capture:
        name = (completion.server or {}).get("id")
        if isinstance(name, str):
            answers.setdefault(name, {})[completion.key.sample] = completion.key
    return replace(steps, requests={number: _named(one, answers) for number, one in steps.requests.items()})


def arms_by_answers(captures: Iterable[Capture], steps: RowSteps) -> list[str]:
    """The arms of the captures that have answers of these steps' requests, for a server does not know its name, and may
    have been both."""
    named = {capture.header.arm: named_by_server(capture, steps).requests.values() for capture in captures}
    return [arm for arm, requests in named.items() if any(one.request is not None for one in requests)]


def _named(request: StepRequest, answers: Mapping[str, Mapping[int, Key]]) -> StepRequest:
    if request.request is not None:
        return request
    sample, _, name = (
        request.engine_id.rpartition("_") if request.engine_id[:1].isdigit() else ("", "", request.engine_id)
    )
    while name:
        keys = answers.get(name)
        if keys:
            key = keys.get(int(sample) if sample.isdigit() else min(keys))
            return request if key is None else structs.replace(
                request, request=key.request, round=key.round, sample=key.sample
            )  # fmt: skip
        name = name.rpartition("-")[0]
    return request
