"""The requests of a run by number, and which of them each of its streams belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
import numpy.typing as npt

from parity.records import Key
from parity.records.lazy import Index


class Numbered:
    """Requests in the order in which they first stand in `keys` and then in `more`."""

    def __init__(self, keys: Sequence[Key], more: Sequence[Key]) -> None:
        self._index = keys if isinstance(keys, Index) else None
        self._counted = 0 if self._index is None else len(self._index.firsts)
        self._of_keys = [key.request for key in keys] if self._index is None else []
        self._of_more = [key.request for key in more]
        self._numbers = dict(zip(self._of_keys, count()))
        self._once = len(self._numbers) == len(self._of_keys)
        """Each request stands once in `keys`."""
        if not self._once:
            self._numbers = dict(zip(dict.fromkeys(self._of_keys), count()))
        index = self._index
        others = self._of_more if index is None else (one for one in self._of_more if index.number(one) is None)
        for one in others:
            self._numbers.setdefault(one, self._counted + len(self._numbers))
        self._others = list(self._numbers)

    def of_streams(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Shapes (keys,) and (more,): the request of each."""
        if self._index is not None:
            own = self._index.numbers
        elif self._once:
            own = np.arange(len(self._of_keys), dtype=np.int32)
        else:
            own = self._each(self._of_keys)
        return own, self._each(self._of_more)

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

    def _each(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        number = self._numbers.__getitem__ if self._index is None else self.number
        return np.fromiter(map(number, names), dtype=np.int32, count=len(names))
