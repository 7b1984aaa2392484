"""Numbers of things, with the noun in the right number: parameters for messages about several of them."""

from __future__ import annotations

from parity.messages import Message, message


def completions(count: int) -> Message:
    return message("words.completions", "{count} completion", plural="{count} completions", count=count)


def requests(count: int) -> Message:
    return message("words.requests", "{count} request", plural="{count} requests", count=count)


def tokens(count: int) -> Message:
    return message("words.tokens", "{count} token", plural="{count} tokens", count=count)


def rounds(count: int) -> Message:
    return message("words.rounds", "{count} round", plural="{count} rounds", count=count)
