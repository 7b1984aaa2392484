"""The token streams of a capture as flat arrays, which are filled while the file is read."""

from __future__ import annotations

from array import array
from itertools import pairwise
from operator import attrgetter
from typing import Final

import numpy as np

from parity.records import Capture, Completion, RaggedTokens, TokenIds

GROWS_BY = 1 << 20
"""Tokens for which room is made at most, or a sixteenth of what is there: new room is filled with zeros."""

_NAMES = ("token_ids", "prompt_token_ids")
_SAID = ("text", "finish_reason", "line")
"""What most completions of one arm have as the other arm's have it."""

_by_numbers = attrgetter("logprobs", "spec", "server")
_by_value = attrgetter(*_SAID, "stop_reason", "max_tokens", "aborted")
"""All but key, streams and sampling parameters. Completions with numbers, or with parameters of their own (1 is True to
Python, not to an engine), are two."""

_REASONS: Final = {reason: reason for reason in ("stop", "length", "abort", "tool_calls")}
_NONE: TokenIds = np.empty(0, dtype=np.int64)


class Columns:
    """One stream after another. Each completion gets its part of the whole in place of an array of its own, so that no
    token is in memory twice and nothing is gathered afterwards. The completions are the reader's own until then.

    `beside`: a capture read before. What its completions have in common with these is not held a second time: names,
    texts, streams, whole completions, and a whole column where all streams of it are the same.
    """

    def __init__(self, beside: Capture | None = None) -> None:
        self._owners: list[Completion] = []
        self._others = {} if beside is None else beside.completions
        self._order = iter(self._others)
        self._in_order = beside is not None
        self._columns = {
            "token_ids": _Column(None if beside is None else beside.tokens),
            "prompt_token_ids": _Column(None if beside is None else beside.prompts),
        }

    def share(self, owner: Completion) -> None:
        """Let it have the other capture's key of the same name."""
        other = self._others.get(owner.key)
        if other is not None:
            object.__setattr__(owner, "key", other.key)
        elif owner.finish_reason in _REASONS:
            object.__setattr__(owner, "finish_reason", _REASONS[owner.finish_reason])

    def take(self, owner: Completion) -> Completion:
        """The completion to keep: this one, or the other capture's where they are the same."""
        other = self._others.get(owner.key)
        self._in_order = self._in_order and next(self._order, None) == owner.key
        same = other is not None
        for name in _NAMES:
            stream: TokenIds = getattr(owner, name)
            theirs = None if other is None else getattr(other, name)
            shared = _is_same(stream, theirs)
            self._columns[name].append(stream, as_there=shared and self._in_order)
            object.__setattr__(owner, name, theirs if shared else _NONE)
            same = same and shared
        if same and other is not None and _says_the_same(owner, other):
            owner = other
        elif other is not None:
            for name in _SAID:
                if getattr(owner, name) == (said := getattr(other, name)):
                    object.__setattr__(owner, name, said)
        self._owners.append(owner)
        return owner

    def give(self, capture: Capture) -> None:
        """To the capture of all these completions, in their order."""
        found = {name: column.whole() for name, column in self._columns.items()}
        for name, column in found.items():
            flat = column.flat
            for owner, (begin, end) in zip(self._owners, pairwise(column.offsets.tolist()), strict=True):
                if getattr(owner, name) is _NONE:
                    object.__setattr__(owner, name, flat[begin:end])
        vars(capture).update(tokens=found["token_ids"], prompts=found["prompt_token_ids"])


def _is_same(stream: TokenIds, other: object) -> bool:
    if not isinstance(other, np.ndarray) or other.dtype != stream.dtype:
        return False
    return stream.tobytes() == other.tobytes()  # for short ones a tenth of the time that array_equal takes


def _says_the_same(one: Completion, other: Completion) -> bool:
    if one.sampling or other.sampling:
        return False
    none = (None, None, None)
    return _by_numbers(one) == none == _by_numbers(other) and bool(_by_value(one) == _by_value(other))


class _Column:
    """`like`: another capture's, of which nothing is copied as long as the streams are the same, one after another."""

    def __init__(self, like: RaggedTokens | None) -> None:
        self._like = like
        self._flat: TokenIds = np.empty(0, dtype=np.int64)
        self._ends = array("q", [0])

    def append(self, stream: TokenIds, *, as_there: bool) -> None:
        begin, end = self._ends[-1], self._ends[-1] + len(stream)
        if self._like is not None and not as_there:
            self._part_from(self._like)
        if self._like is None:
            if end > len(self._flat):
                # In place: the system moves pages, no token is copied.
                self._flat.resize(end + max(min(end, GROWS_BY), end >> 4), refcheck=False)
            self._flat[begin:end] = stream
        self._ends.append(end)

    def whole(self) -> RaggedTokens:
        if self._like is not None:
            if len(self._ends) == len(self._like.offsets):
                return self._like
            self._part_from(self._like)
        self._flat.resize(self._ends[-1], refcheck=False)
        return RaggedTokens(self._flat, np.array(self._ends, dtype=np.int64))

    def _part_from(self, like: RaggedTokens) -> None:
        self._like, self._flat = None, like.flat[: self._ends[-1]].copy()
