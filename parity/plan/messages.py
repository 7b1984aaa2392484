"""Chat messages of a request: what they may look like, their text, and whether they hold images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parity.messages import message
from parity.records import Json

Messages = tuple[Mapping[str, Json], ...]


def parse_messages(value: Json) -> Messages:
    """Messages in the form of OpenAI's chat endpoint. Raises ValueError or TypeError that says what is wrong."""
    if not isinstance(value, list) or not value:
        raise TypeError(message("plan.must_messages", "must be a list of objects with role and content"))
    for number, one in enumerate(value):
        if not isinstance(one, dict) or not isinstance(one.get("role"), str):
            raise TypeError(
                message(
                    "plan.message_object",
                    "must be a list of objects with role and content; number {number} is not",
                    number=number,
                )
            )
        content = one.get("content")
        if content is not None and not isinstance(content, str | list):
            raise TypeError(
                message(
                    "plan.message_content", "number {number}: content must be text or a list of parts", number=number
                )
            )
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise TypeError(
                    message(
                        "plan.message_part",
                        "number {number}: every part of a content must be an object with a type",
                        number=number,
                    )
                )
            if part["type"] == "text" and not isinstance(part.get("text"), str):
                raise TypeError(
                    message(
                        "plan.message_part_text", "number {number}: a part of type text must have a text", number=number
                    )
                )
    return tuple(value)


def optional_messages(value: Json) -> Messages | None:
    """As `parse_messages`, or null."""
    return None if value is None else parse_messages(value)


def has_images(messages: Sequence[Mapping[str, Json]] | None) -> bool:
    """Whether a part is anything but text (image_url, input_audio, …)."""
    return any(part["type"] != "text" for one in messages or () for part in _parts(one))


def text_only(messages: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """The messages with the text of their parts as plain strings, and without all other parts."""
    return [
        {**one, "content": "".join(part["text"] for part in _parts(one) if part["type"] == "text")}
        if isinstance(one.get("content"), list)
        else dict(one)
        for one in messages
    ]


def _parts(one: Mapping[str, Json]) -> list[dict[str, Any]]:
    content = one.get("content")
    return content if isinstance(content, list) else []
