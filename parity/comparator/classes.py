"""What each completion counts as."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from parity.comparator.types import CompletionClass
from parity.records import Key
from parity.records.lazy import Index


class Classes(Mapping[Key, CompletionClass]):
    """Of many completions, of which most count as the same: only the others are held. Those that are not among `order`
    come after them."""

    def __init__(self, order: Index[Key], of_most: CompletionClass, others: Mapping[Key, CompletionClass]) -> None:
        self.order, self.of_most, self.others = order, of_most, others
        self._more = [key for key in others if key not in order]

    def __getitem__(self, key: Key) -> CompletionClass:
        found = self.others.get(key)
        if found is None and key not in self.order:
            raise KeyError(key)
        return self.of_most if found is None else found

    def __contains__(self, key: object) -> bool:
        return key in self.others or key in self.order

    def __iter__(self) -> Iterator[Key]:
        yield from self.order
        yield from self._more

    def __len__(self) -> int:
        return len(self.order) + len(self._more)


def of_all(keys: Sequence[Key], of_each: CompletionClass) -> Mapping[Key, CompletionClass]:
    return Classes(keys, of_each, {}) if isinstance(keys, Index) else dict.fromkeys(keys, of_each)


def with_others(
    classes: Mapping[Key, CompletionClass], changed: Mapping[Key, CompletionClass]
) -> Mapping[Key, CompletionClass]:
    """Some completions count as something else, or are no others."""
    if not classes or not changed:
        return classes or changed
    if isinstance(classes, Classes) and not isinstance(changed, Classes):
        return Classes(classes.order, classes.of_most, {**classes.others, **changed})
    return {**classes, **changed}


def along(keys: Sequence[Key], classes: Mapping[Key, CompletionClass]) -> Iterator[CompletionClass | None]:
    """The class of each of these, None where it has none."""
    if not classes:
        return repeat(None, len(keys))
    if isinstance(classes, Classes) and classes.order is keys:
        others, usual = classes.others, classes.of_most
        return (others.get(key, usual) for key in keys) if others else (usual for _ in range(len(keys)))
    return map(classes.get, keys)


def counted(classes: Mapping[Key, CompletionClass]) -> Counter[CompletionClass]:
    """Completions of each class."""
    if not isinstance(classes, Classes):
        return Counter(classes.values())
    found = Counter(classes.others.values())
    found[classes.of_most] += len(classes) - len(classes.others)
    return found


def of_class(classes: Mapping[Key, str], wanted: str) -> set[Key]:
    """Completions of a class."""
    if isinstance(classes, Classes) and classes.of_most != wanted:
        return {key for key, one in classes.others.items() if one == wanted}
    return {key for key, one in classes.items() if one == wanted}
