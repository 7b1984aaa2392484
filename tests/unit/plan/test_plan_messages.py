"""Chat messages in a plan: kept, checked, and their images seen."""

from __future__ import annotations

from typing import Any

import pytest

from parity.plan import Plan
from parity.plan.messages import has_images, parse_messages, text_only

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TEXT = {"type": "text", "text": "What is this?"}


def test_parts_of_text_are_joined_and_others_left_out() -> None:
    messages = parse_messages([{"role": "user", "content": [TEXT, IMAGE, {"type": "text", "text": " Say."}]}])
    assert text_only(messages) == [{"role": "user", "content": "What is this? Say."}]
    assert has_images(messages)
    assert not has_images(parse_messages([{"role": "user", "content": [TEXT]}]))
    assert not has_images(parse_messages([{"role": "assistant", "content": None}]))
    assert not has_images(None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "must be a list"),
        ("hello", "must be a list"),
        ([{"content": "x"}], "number 0 is not"),
        ([{"role": "user", "content": 3}], "content must be text"),
        ([{"role": "user", "content": ["x"]}], "every part"),
        ([{"role": "user", "content": [{"type": "text"}]}], "must have a text"),
    ],
)
def test_mistakes_are_named(value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        parse_messages(value)


def test_a_plan_keeps_them() -> None:
    messages = [{"role": "user", "content": [TEXT, IMAGE]}]
    arm = {"backend": "server", "engine": {"url": "http://h"}, "env": {}}
    written = {
        "schema": "parity.plan/1",
        "model": {"name": "m", "path": "/m", "vocab_size": 100, "eos_token_ids": [0]},
        "sampling": {},
        "requests": [{"id": "a", "prompt": "x", "prompt_token_ids": [1], "messages": messages}],
        "arms": [{"name": f"server/{one}", "variant": one, **arm} for one in ("one", "two")],
        "arbiter": {"name": "transformers/arbiter", "variant": "arbiter", "backend": "transformers"},
        "baseline": "server/one",
    }
    plan = Plan.from_json(written)
    assert plan.requests[0].has_images
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.to_json()["requests"][0]["messages"] == messages
    assert plan.arbiter is not None
    assert plan.to_json()["arbiter"]["backend"] == "transformers"
