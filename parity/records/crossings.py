"""Completions scored after the text of another request: does that explain them better than their own prompt?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from parity.records import Key, TopLogprobs


class Crossing(NamedTuple):
    """The tokens of a completion of `arm`, from `start` on, after the donor's prompt and its first `start` tokens."""

    arm: str
    receiver: Key
    donor: Key
    start: int


Crossed = Mapping[Crossing, TopLogprobs]
"""What the scorer says of each: the tokens that were scored, from `start` on."""
