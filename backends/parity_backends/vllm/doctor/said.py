"""A check as the doctor makes it: what was found, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.messages import Message
from parity.run.checks import Check, State

Facts = Mapping[str, Any]
"""What the probe saw."""


def ok(name: Message | str, found: object) -> Check:
    return Check(name, State.OK, _said(found))


def note(name: Message | str, found: object, remedy: Message | str | None = None) -> Check:
    return Check(name, State.NOTE, _said(found), remedy)


def problem(name: Message | str, found: object, remedy: Message | str) -> Check:
    return Check(name, State.PROBLEM, _said(found), remedy)


def _said(found: object) -> Message | str:
    """A message of parity's; anything else is what the host said."""
    return found if isinstance(found, Message) else str(found)
