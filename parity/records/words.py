"""What many sentences are made of: numbers of things, with the noun in the right number, and whom one is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from parity.messages import Message, message


def completions(count: int) -> Message:
    return message("words.completions", "{count} completion", plural="{count} completions", count=count)


def named(completions: Collection[object]) -> Message:
    """How many there are, and which is the first."""
    return message(
        "words.named",
        "{count} completion ({first})",
        plural="{count} completions (first: {first})",
        count=len(completions),
        first=str(next(iter(completions))),
    )


def explained(completions: Mapping[Any, Message]) -> Message:
    """How many there are, and what is said of the first."""
    first, why = next(iter(completions.items()))
    return message(
        "words.explained",
        "{count} completion ({first}: {why})",
        plural="{count} completions (first: {first}: {why})",
        count=len(completions),
        first=str(first),
        why=why,
    )


def requests(count: int) -> Message:
    return message("words.requests", "{count} request", plural="{count} requests", count=count)


def tokens(count: int) -> Message:
    return message("words.tokens", "{count} token", plural="{count} tokens", count=count)


def rounds(count: int) -> Message:
    return message("words.rounds", "{count} round", plural="{count} rounds", count=count)


def of_arms(arms: list[str], reason: Message) -> Message:
    """The sentence with the arms that it is about before it, unless it begins with that itself."""
    names = ", ".join(arms)
    if str(reason).startswith(f"{names}: "):
        return reason
    return message("pipeline.of_arm", "{arm}: {reason}", arm=names, reason=reason)  # as stored runs have it
