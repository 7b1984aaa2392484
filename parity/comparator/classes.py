"""What each completion counts as: of many, one number for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import repeat
from typing import Final, get_args

import numpy as np
import numpy.typing as npt

from parity.comparator.types import CompletionClass
from parity.records import Key
from parity.records.lazy import Flagged, Index

ORDER: Final[tuple[CompletionClass, ...]] = get_args(CompletionClass)
"""As they are numbered in columns."""

Numbers = npt.NDArray[np.int8]


class Classes(Mapping[Key, CompletionClass]):
    """Of many completions: those of an order, numbered as in `ORDER`, and some that are not among them, which come
    after."""

    def __init__(self, order: Index[Key], numbers: Numbers, more: Mapping[Key, CompletionClass]) -> None:
        self.order, self.numbers, self.more = order, numbers, more

    def __getitem__(self, key: Key) -> CompletionClass:
        row = self.order.row(key)
        return self.more[key] if row is None else ORDER[self.numbers[row]]

    def __contains__(self, key: object) -> bool:
        return key in self.order or key in self.more

    def __iter__(self) -> Iterator[Key]:
        yield from self.order
        yield from self.more

    def __len__(self) -> int:
        return len(self.order) + len(self.more)


def by_row(keys: Sequence[Key], numbers: Numbers) -> Mapping[Key, CompletionClass]:
    """The classes of these; numbers: shape (P,), as in `ORDER`."""
    if isinstance(keys, Index):
        return Classes(keys, numbers, {})
    if not len(numbers):
        return {}
    of_most = int(np.bincount(numbers).argmax())
    others = np.flatnonzero(numbers != of_most)
    found = dict.fromkeys(keys, ORDER[of_most])
    found.update(
        (keys[row], ORDER[number]) for row, number in zip(others.tolist(), numbers[others].tolist(), strict=True)
    )
    return found


def of_all(keys: Sequence[Key], of_each: CompletionClass) -> Mapping[Key, CompletionClass]:
    return by_row(keys, np.full(len(keys), ORDER.index(of_each), dtype=np.int8))


def with_others(
    classes: Mapping[Key, CompletionClass], changed: Mapping[Key, CompletionClass]
) -> Mapping[Key, CompletionClass]:
    """Some completions count as something else, or are no others."""
    if not classes or not changed:
        return classes or changed
    if not isinstance(classes, Classes):
        return {**classes, **changed}
    numbers, more = classes.numbers.copy(), dict(classes.more)
    for key, one in changed.items():
        row = classes.order.row(key)
        if row is None:
            more[key] = one
        else:
            numbers[row] = ORDER.index(one)
    return Classes(classes.order, numbers, more)


def along(keys: Sequence[Key], classes: Mapping[Key, CompletionClass]) -> Iterator[CompletionClass | None]:
    """The class of each of these, None where it has none."""
    if not classes:
        return repeat(None, len(keys))
    if isinstance(classes, Classes) and classes.order is keys:
        return (ORDER[number] for number in classes.numbers.data)
    return map(classes.get, keys)


def counted(classes: Mapping[Key, CompletionClass]) -> Counter[CompletionClass]:
    """Completions of each class."""
    if not isinstance(classes, Classes):
        return Counter(classes.values())
    found = Counter(classes.more.values())
    found.update(dict(zip(ORDER, np.bincount(classes.numbers, minlength=len(ORDER)).tolist(), strict=True)))
    return found


def of_class(classes: Mapping[Key, str], wanted: str) -> Set[Key]:
    """Completions of a class."""
    if not isinstance(classes, Classes):
        return {key for key, one in classes.items() if one == wanted}
    among = Flagged(classes.order, classes.numbers == ORDER.index(wanted))
    more = {key for key, one in classes.more.items() if one == wanted}
    return among | more if more else among
