"""Prompts to requests: token ids, made once, so that every arm gets the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from parity.errors import ParityError
from parity.messages import message
from parity.plan.apart import tokenised
from parity.plan.messages import text_only
from parity.plan.parts import Request
from parity.plan.prompts import Prompt


def tokenise(prompts: Iterable[Prompt], model: str | Path) -> list[Request]:
    """Requests with token ids. A checkpoint of somebody else is asked in a process of its own. Raises ParityError."""
    prompts, where = list(prompts), Path(model)
    asked = [
        {
            "id": prompt.id,
            "text": prompt.text,
            "ids": None if prompt.token_ids is None else list(prompt.token_ids),
            "messages": None if prompt.messages is None else [dict(one) for one in text_only(prompt.messages)],
        }
        for prompt in prompts
    ]
    made = tokenised(where, asked)
    return [_request(prompt, text, ids) for prompt, (text, ids) in zip(prompts, made, strict=True)]


def _request(prompt: Prompt, text: str | None, ids: list[int]) -> Request:
    own, limit = prompt.sampling, prompt.max_tokens
    if prompt.token_ids is not None:
        return Request(prompt.id, text, prompt.token_ids, limit, sampling=own)
    if not ids:
        raise ParityError(
            message("plan.prompt_empty_no", "the prompt {prompt!r} is empty: it has no tokens", prompt=prompt.id),
            hint=message("plan.remove", "remove it"),
        )
    messages = None if prompt.messages is None else tuple(prompt.messages)
    return Request(prompt.id, text, tuple(ids), limit, messages, own)
