"""The token streams of a capture as flat arrays, which are filled while the file is read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from parity.records import Capture, Completion, RaggedTokens, TokenIds, TopLogprobs
from parity.records.ragged import PatchedTokens

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
        self._listing: list[Completion] = []
        """Completions whose logprobs are of their own tokens alone."""
        self._others = {} if beside is None else beside.completions
        self._order = iter(self._others)
        self._in_order = beside is not None
        self._columns = {
            "token_ids": _Column(None if beside is None else _plain(beside.tokens)),
            "prompt_token_ids": _Column(None if beside is None else _plain(beside.prompts)),
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


class _Column:
    """`like`: another capture's, of which nothing is copied as long as the streams come in its order: those that differ
    are put beside it."""

    def __init__(self, like: RaggedTokens | None) -> None:
        self._like = like
        self._own = _Growing()
        self._rows = array("q")
        """Of the streams in `_own`, while there is a `like`."""
        self._count = 0

    def append(self, stream: TokenIds, *, in_order: bool, shared: bool) -> None:
        if self._like is not None and not in_order:
            self._part_from(self._like)
        if self._like is not None and not shared:
            self._rows.append(self._count)
        if self._like is None or not shared:
            self._own.append(stream)
        self._count += 1

    def whole(self) -> RaggedTokens:
        if self._like is None:
            return self._own.whole()
        if not self._rows and self._count == len(self._like.sizes):
            return self._like
        if len(self._rows) == self._count:
            return self._own.whole()
        return PatchedTokens(self._like, np.array(self._rows, dtype=np.int64), self._own.whole(), self._count)

    def _part_from(self, like: RaggedTokens) -> None:
        whole = self.whole()
        self._like = None
        self._own = _Growing(whole.flat.copy() if whole is like else whole.flat, whole.offsets)


class _Growing:
    """One stream after another, in one array that grows."""

    def __init__(self, flat: TokenIds = _NONE, offsets: Sequence[int] | npt.NDArray[np.int64] = (0,)) -> None:
        """What there is already: `flat` is its own from now on."""
        self._flat = flat if len(flat) else np.empty(0, dtype=np.int64)
        self._ends = array("q", offsets)

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
