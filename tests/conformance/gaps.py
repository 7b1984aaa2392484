"""What a backend cannot do, as data: who could change it, and why it is so.

A gap is strict: the test of it runs all the same, and one that passes fails the suite, so a gap that closes is
noticed (the way of ibis: `notimpl`, `notyet`, `never`). Hardware that this machine has not is no gap of a backend:
its tests are skipped, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from parity.run import load_backend


@dataclass(frozen=True)
class Gap:
    subject: str
    """Name of the subject in subjects.py."""
    capability: str
    """Name of the test, without `test_`."""
    owner: str
    """Who could close it: parity, vllm, the protocol, nobody."""
    kind: str
    """notimpl: parity has not built it. notyet: the other side has not. never: it makes no sense there."""
    reason: str


TEXT_ALONE = "a server that gives text alone: token ids are made again from the text"

HARDWARE = {
    "cuda": "no NVIDIA GPU with vLLM on this machine",
    "ascend": "no Ascend NPU with vllm-ascend on this machine",
}
"""Backends whose device may be missing, and what is said then."""

ENVIRONMENTS = {
    "cpu-v2": "its environment is not here: `parity env create cpu-v2`",
    "ascend-emulated": "its environment is not here: `parity env create ascend-emulated`",
}
"""Backends for any machine whose environment takes minutes to build, so nobody's test does it unasked."""

MAY_BE_MISSING = {**HARDWARE, **ENVIRONMENTS}

GAPS = (
    Gap("transformers", "samples", "parity", "never", "the arbiter decodes greedily: nothing is drawn"),
    Gap("replay", "own_questions", "nobody", "never", "a recording answers what was asked when it was made"),
    Gap("replay", "samples", "nobody", "never", "a recording answers what was asked when it was made"),
    Gap("replay", "a_stop_string_ends_it", "nobody", "never", "a recording answers what was asked when it was made"),
    Gap("replay", "a_request_has_a_limit_of_its_own", "nobody", "never", "it answers what was asked then"),
    Gap("replay", "logprobs_are_of_the_tokens", "nobody", "never", "it answers what was asked then"),
    Gap("replay", "an_input_that_does_not_fit_is_named", "nobody", "never", "no engine looks at the input"),
    *(
        Gap(chat, "prompts_are_the_plans", "the protocol", "never", "the server applies its own chat template")
        for chat in ("server-chat", "server-chat-stream", "vllm-server-chat", "vllm-server-chat-stream")
    ),
    Gap("server-text", "logprobs_are_of_the_tokens", "the protocol", "notyet", TEXT_ALONE),
    Gap("server-text", "scores_are_of_the_tokens", "the protocol", "notyet", "no prompt_logprobs outside vLLM"),
    Gap("server-text", "what_cannot_be_scored_is_said", "the protocol", "notyet", "no prompt_logprobs outside vLLM"),
)


def find(subject: str, capability: str) -> Gap | None:
    found = [gap for gap in GAPS if (gap.subject, gap.capability) == (subject, capability)]
    return found[0] if found else None


@cache
def available(backend: str) -> bool:
    """Is its device, or its environment, on this machine? Looked for once."""
    return load_backend(backend).detect().available


def mark(subject: str, capability: str, *marks: Any) -> Any:
    """A parameter for pytest: a strict expected failure where there is a gap, a skip where what it needs is missing."""
    gap = find(subject, capability)
    every = list(marks)
    if subject in MAY_BE_MISSING:
        every.append(pytest.mark.skipif(not available(subject), reason=MAY_BE_MISSING[subject]))
    if gap is not None:
        why = f"{gap.kind} ({gap.owner}): {gap.reason}"
        every.append(pytest.mark.xfail(reason=why, strict=True))
    return pytest.param(subject, marks=every)
