"""Chat messages of a request: what they may look like, their text, and whether they hold images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parity.records import Json

Messages = tuple[Mapping[str, Json], ...]


def parse_messages(value: Json) -> Messages:
    """Messages in the form of OpenAI's chat endpoint. Raises ValueError or TypeError that says what is wrong."""
    if not isinstance(value, list) or not value:
        raise TypeError("must be a list of objects with role and content")
    for number, message in enumerate(value):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise TypeError(f"must be a list of objects with role and content; number {number} is not")
        content = message.get("content")
        if content is not None and not isinstance(content, str | list):
            raise TypeError(f"number {number}: content must be text or a list of parts")
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise TypeError(f"number {number}: every part of a content must be an object with a type")
            if part["type"] == "text" and not isinstance(part.get("text"), str):
                raise TypeError(f"number {number}: a part of type text must have a text")
    return tuple(value)


def has_images(messages: Sequence[Mapping[str, Json]] | None) -> bool:
    """Whether a part is anything but text (image_url, input_audio, …)."""
    return any(part["type"] != "text" for message in messages or () for part in _parts(message))


def text_only(messages: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """The messages with the text of their parts as plain strings, and without all other parts."""
    return [
        {**message, "content": "".join(part["text"] for part in _parts(message) if part["type"] == "text")}
        if isinstance(message.get("content"), list)
        else dict(message)
        for message in messages
    ]


def _parts(message: Mapping[str, Json]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []
