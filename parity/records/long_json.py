"""Indented JSON of a value of which one field has very many rows: never all of them in memory as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from parity.messages import Json

_AT_ONCE: Final = 256
"""Rows that are made to text at once."""


def blocks(value: Mapping[str, Json], name: str, rows: Iterable[Json], dump: Callable[[Json], str]) -> Iterator[str]:
    """What `dump` makes of `value` with `rows` in its field `name`, a block of whole lines at a time: between two of
    them stands a line end. dump: indents by two."""
    rest = iter(rows)
    some = list(islice(rest, _AT_ONCE))
    if not some:
        yield dump({**value, name: []})
        return
    opened = f'\n  "{name}": [\n'
    head, _, tail = dump({**value, name: [None]}).rstrip("\n").partition(f"{opened}    null\n  ]")
    text = head + opened
    while some:
        # In its place in the document, so that it is indented as there.
        block = dump({name: some}).rstrip("\n")
        text += block[len("{" + opened) : -len("\n  ]\n}")]
        if some := list(islice(rest, _AT_ONCE)):
            yield f"{text},"
            text = ""
    yield f"{text}\n  ]{tail}"
