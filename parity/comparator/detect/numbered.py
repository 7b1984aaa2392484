"""The requests of a run by number, and which of them each of its streams belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count

import numpy as np
import numpy.typing as npt

from parity.records import Key
from parity.records.lazy import Index


class Numbered:
    """Requests in the order in which they first stand in `keys` and then in `more`."""

    def __init__(self, keys: Sequence[Key], more: Sequence[Key]) -> None:
        self._index = keys if isinstance(keys, Index) else None
        self._counted = 0 if self._index is None else len(self._index.firsts)
        rest: Iterator[str] = (
            key.request for key in (more if self._index is not None else chain(keys, more)) if not self._has(key)
        )
        self._numbers = dict(zip(dict.fromkeys(rest), count(self._counted)))
        self._others = list(self._numbers)
        self._keys, self._more = keys, more

    def of_streams(self) -> npt.NDArray[np.int32]:
        """Shape (keys + more,): the request of each."""
        own = self._each(self._keys) if self._index is None else self._index.numbers
        return np.concatenate([own, self._each(self._more)])

    def __len__(self) -> int:
        return self._counted + len(self._others)

    def number(self, request: str) -> int:
        """-1 for one that is not there."""
        found = None if self._index is None else self._index.number(request)
        return self._numbers.get(request, -1) if found is None else found

    def name(self, number: int) -> str:
        if number >= self._counted:
            return self._others[number - self._counted]
        assert self._index is not None
        key: Key = self._index[int(self._index.firsts[number])]
        return key.request

    def _has(self, key: Key) -> bool:
        return self._index is not None and self._index.number(key.request) is not None

    def _each(self, keys: Sequence[Key]) -> npt.NDArray[np.int32]:
        return np.fromiter((self.number(key.request) for key in keys), dtype=np.int32, count=len(keys))
