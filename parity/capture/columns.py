"""The token streams of a capture as flat arrays, which are filled while the file is read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from parity.records import Capture, Completion, RaggedTokens, TokenIds

GROWS_BY = 1 << 20
"""Tokens for which room is made at most, or a sixteenth of what is there: new room is filled with zeros."""

_NAMES = ("token_ids", "prompt_token_ids")
_NONE: TokenIds = np.empty(0, dtype=np.int64)


class Columns:
    """One stream after another. Each completion gets its part of the whole in place of an array of its own, so that no
    token is in memory twice and nothing is gathered afterwards. The completions are the reader's own until then."""

    def __init__(self) -> None:
        self._owners: list[Completion] = []
        self._columns = {name: _Column() for name in _NAMES}

    def take(self, owner: Completion) -> None:
        self._owners.append(owner)
        for name, column in self._columns.items():
            column.append(getattr(owner, name))
            object.__setattr__(owner, name, _NONE)

    def give(self, capture: Capture) -> None:
        """To the capture of all these completions, in their order."""
        found = {name: column.whole() for name, column in self._columns.items()}
        for name, column in found.items():
            flat = column.flat
            for owner, (begin, end) in zip(self._owners, pairwise(column.offsets.tolist()), strict=True):
                object.__setattr__(owner, name, flat[begin:end])
        vars(capture).update(tokens=found["token_ids"], prompts=found["prompt_token_ids"])


class _Column:
    def __init__(self) -> None:
        self._flat: TokenIds = np.empty(0, dtype=np.int64)
        self._ends = [0]

    def append(self, stream: TokenIds) -> None:
        begin, end = self._ends[-1], self._ends[-1] + len(stream)
        if end > len(self._flat):
            # In place: the system moves pages, no token is copied.
            self._flat.resize(end + max(min(end, GROWS_BY), end >> 4), refcheck=False)
        self._flat[begin:end] = stream
        self._ends.append(end)

    def whole(self) -> RaggedTokens:
        self._flat.resize(self._ends[-1], refcheck=False)
        return RaggedTokens(self._flat, np.array(self._ends, dtype=np.int64))
