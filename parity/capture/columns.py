"""The token streams of a capture as flat arrays, which are filled while the file is read."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import Final

import numpy as np

from parity.capture.streams import NONE as _NONE
from parity.capture.streams import Column
from parity.records import Capture, Completion, RaggedTokens, TokenIds, TopLogprobs
from parity.records.ragged import PatchedTokens

_NAMES = ("token_ids", "prompt_token_ids")
_SAID = ("text", "finish_reason", "line")
"""What most completions of one arm have as the other arm's have it."""

_by_numbers = attrgetter("logprobs", "spec", "server")
_by_value = attrgetter(*_SAID, "stop_reason", "max_tokens", "aborted")
"""All but key, streams and sampling parameters. Completions with numbers, or with parameters of their own (1 is True to
Python, not to an engine), are two."""

_REASONS: Final = {reason: reason for reason in ("stop", "length", "abort", "tool_calls")}


class Columns:
    """One stream after another. Each completion gets its part of the whole in place of an array of its own, so that no
    token is in memory twice and nothing is gathered afterwards. The completions are the reader's own until then.

    `beside`: a capture read before. What its completions have in common with these is not held a second time: names,
    texts, streams, whole completions, and a whole column where all streams of it are the same.
    """

    def __init__(self, beside: Capture | None = None) -> None:
        self._owners: list[Completion] = []
        self._listing: list[Completion] = []
        """Completions whose logprobs are of their own tokens alone."""
        self._others = {} if beside is None else beside.completions
        self._order = iter(self._others)
        self._in_order = beside is not None
        self._columns = {
            "token_ids": Column(None if beside is None else _plain(beside.tokens)),
            "prompt_token_ids": Column(None if beside is None else _plain(beside.prompts)),
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
        chosen = owner.logprobs is not None and _lists(owner.logprobs, owner.token_ids)
        for name in _NAMES:
            stream: TokenIds = getattr(owner, name)
            theirs = None if other is None else getattr(other, name)
            shared = _is_same(stream, theirs)
            self._columns[name].append(stream, in_order=self._in_order, shared=shared)
            object.__setattr__(owner, name, theirs if shared else _NONE)
            same = same and shared
        if chosen:
            _list(owner)
            if owner.token_ids is _NONE:
                self._listing.append(owner)
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
            own, rows = (column.own, column.rows) if isinstance(column, PatchedTokens) else (column, None)
            owners = self._owners if rows is None else [self._owners[row] for row in rows.tolist()]
            flat = own.flat
            for owner, (begin, end) in zip(owners, pairwise(own.offsets.tolist()), strict=True):
                if getattr(owner, name) is _NONE:
                    object.__setattr__(owner, name, flat[begin:end])
        for owner in self._listing:
            _list(owner)
        vars(capture).update(tokens=found["token_ids"], prompts=found["prompt_token_ids"])


def _lists(logprobs: TopLogprobs, tokens: TokenIds) -> bool:
    """Are they of these tokens alone?"""
    return logprobs.ids.shape == (len(tokens), 1) and _is_same(logprobs.ids, tokens)


def _list(owner: Completion) -> None:
    """Let its logprobs name its own tokens, which are no second array."""
    listed = owner.logprobs
    assert listed is not None
    own = TopLogprobs(owner.token_ids[:, None], listed.values, listed.logsumexp)
    object.__setattr__(owner, "logprobs", own)


def _plain(column: RaggedTokens) -> RaggedTokens:
    return RaggedTokens(column.flat, column.offsets) if isinstance(column, PatchedTokens) else column


def _is_same(stream: TokenIds, other: object) -> bool:
    if not isinstance(other, np.ndarray) or other.dtype != stream.dtype:
        return False
    return stream.tobytes() == other.tobytes()  # for short ones a tenth of the time that array_equal takes


def _says_the_same(one: Completion, other: Completion) -> bool:
    if one.sampling or other.sampling:
        return False
    none = (None, None, None)
    return _by_numbers(one) == none == _by_numbers(other) and bool(_by_value(one) == _by_value(other))
