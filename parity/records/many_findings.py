"""The findings of a comparison: held where they are few, in a file where they are many and read again one at a time.

What most passes ask of a finding (whose, where, which kind, how heavy) is read without its evidence: `heads`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple, Protocol, overload

import msgspec
import numpy as np
import numpy.typing as npt

from parity.records import Finding, Key, Kind, Severity, evidence_from_json
from parity.unnamed import Numbers, Unnamed

HELD: Final = 4096
"""Findings that are held: 10 MB."""

Rows = npt.NDArray[np.int64]
Change = Callable[[Finding], Finding]
Order = Callable[["Placed"], Any]


class Placed(Protocol):
    """What is known of a finding without its evidence; a Finding is one."""

    @property
    def key(self) -> Key: ...
    @property
    def request(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def position(self) -> int | None: ...
    @property
    def length(self) -> int | None: ...
    @property
    def weight(self) -> float: ...


class Head(NamedTuple):
    key: Key
    kind: Kind
    severity: Severity
    position: int | None
    length: int | None
    weight: float

    @property
    def request(self) -> str:
        return self.key.request


_Packed = tuple[str, int, int, str, str, int | None, int | None, float, str, str]
"""request, round, sample, kind, severity, position, length, weight, arm, baseline."""
_PACKED = msgspec.msgpack.Decoder(_Packed)


def _number(value: object) -> object:
    """A number of numpy as Python has it."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value)} stands in no finding")


_PACK = msgspec.msgpack.Encoder(enc_hook=_number)


class _Store:
    """Findings in a file, numbered as they come."""

    def __init__(self) -> None:
        """Raises ParityError where no file can be made."""
        self._file = Unnamed()
        self._ends = Numbers("q", held=True)
        """Where the head of a finding ends, and its evidence."""
        self._corrupt = bytearray()

    def __len__(self) -> int:
        return len(self._corrupt)

    def append(self, one: Finding) -> None:
        """Raises ParityError where the disk is full."""
        of = (*one.key, str(one.kind), str(one.severity), one.position, one.length, one.weight, one.arm, one.baseline)
        for part in (of, one.evidence.to_json()):
            self._file.append(_PACK.encode(part))
            self._ends.append(self._file.size)
        self._corrupt.append(one.severity is Severity.CORRUPT)

    def is_corrupt(self, rows: Rows) -> npt.NDArray[np.bool_]:
        return np.frombuffer(bytes(self._corrupt), dtype=np.bool_)[rows]

    def head(self, row: int) -> Head:
        request, number, sample, kind, severity, position, length, weight, _, _ = _PACKED.decode(self._head(row))
        return Head(Key(request, number, sample), Kind(kind), Severity(severity), position, length, weight)

    def finding(self, row: int) -> Finding:
        request, number, sample, name, severity, position, length, _, arm, baseline = _PACKED.decode(self._head(row))
        begin, end = self._ends.data[2 * row : 2 * row + 2]
        kind = Kind(name)
        evidence = evidence_from_json(kind, request, msgspec.msgpack.decode(self._file.read(begin, end)))
        return Finding(arm, baseline, request, number, sample, kind, Severity(severity), position, length, evidence)

    def _head(self, row: int) -> bytes:
        ends = self._ends.data
        return self._file.read(ends[2 * row - 1] if row else 0, ends[2 * row])


class ManyFindings(Sequence[Finding]):
    """Findings that are made when they are looked at, as they come out of JSON (`Finding.from_json`)."""

    def __init__(self, store: _Store, rows: Rows, changes: tuple[Change, ...] = ()) -> None:
        """changes: what is made of each, one after another, wherever it is looked at as a whole."""
        self.store, self.rows, self.changes = store, rows, changes

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Finding: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Finding]: ...
    def __getitem__(self, at: int | slice) -> Finding | Sequence[Finding]:
        if isinstance(at, slice):
            return ManyFindings(self.store, self.rows[at], self.changes)
        found = self.store.finding(int(self.rows[at]))
        for change in self.changes:
            found = change(found)
        return found

    def __iter__(self) -> Iterator[Finding]:
        return map(self.__getitem__, range(len(self)))


class Gathering:
    """Findings by their places in a run, in any order; those of one place as they come."""

    def __init__(self) -> None:
        self._held: list[Finding] = []
        self._store: _Store | None = None
        self._places = Numbers("q", held=True)

    def append(self, place: int, found: Finding) -> None:
        """Raises ParityError where the disk is full."""
        self._places.append(place)
        if self._store is not None:
            self._store.append(found)
            return
        self._held.append(found)
        if len(self._held) > HELD:
            self._store = _Store()
            for one in self._held:
                self._store.append(one)
            self._held = []

    def in_order(self) -> Sequence[Finding]:
        order = np.argsort(self._places.whole(), kind="stable")
        if self._store is None:
            return tuple(self._held[row] for row in order.tolist())
        return ManyFindings(self._store, order)


def gathered(findings: Iterable[Finding]) -> Sequence[Finding]:
    """All of them, in their order. Raises ParityError where they are many and the disk is full."""
    if isinstance(findings, tuple | ManyFindings):
        return findings
    rest = iter(findings)
    few = tuple(islice(rest, HELD))
    if len(few) < HELD:
        return few
    found = Gathering()
    for one in chain(few, rest):
        found.append(0, one)
    return found.in_order()


def joined(*parts: Iterable[Finding]) -> Sequence[Finding]:
    """Those of one part after those of another. Raises ParityError where they are many and the disk is full."""
    stores = [part.store for part in parts if isinstance(part, ManyFindings) and not part.changes]
    if not stores:
        return gathered(chain.from_iterable(parts))
    store, rows = stores[0], []
    for part in parts:
        if isinstance(part, ManyFindings) and part.store is store and not part.changes:
            rows.append(part.rows)
            continue
        begin = len(store)  # those who look at the file now see nothing of what comes
        for one in part:
            store.append(one)
        rows.append(np.arange(begin, len(store)))
    return ManyFindings(store, np.concatenate(rows))


def each(findings: Sequence[Finding], change: Change) -> Sequence[Finding]:
    """What `change` makes of each; it leaves alone what `heads` says. Of many it is made where they are looked at."""
    if isinstance(findings, ManyFindings):
        return ManyFindings(findings.store, findings.rows, (*findings.changes, change))
    return tuple(map(change, findings))


def heads(findings: Iterable[Finding]) -> Iterator[Placed]:
    """What is known of each without its evidence."""
    if isinstance(findings, ManyFindings):
        return map(findings.store.head, map(int, findings.rows))
    return iter(findings)


def corrupt_of(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Those that are no noise."""
    if isinstance(findings, ManyFindings):
        of = findings.store.is_corrupt(findings.rows)
        return ManyFindings(findings.store, findings.rows[of], findings.changes)
    return [one for one in findings if one.severity is Severity.CORRUPT]


def in_order(findings: Sequence[Finding], order: Order) -> Sequence[Finding]:
    """Sorted, the least first; equal ones stay as they are."""
    if not isinstance(findings, ManyFindings):
        return tuple(sorted(findings, key=order))
    known = list(map(order, heads(findings)))
    places = sorted(range(len(known)), key=known.__getitem__)
    return ManyFindings(findings.store, findings.rows[np.array(places, dtype=np.int64)], findings.changes)


def least(findings: Sequence[Finding], count: int | None, order: Order) -> Sequence[Finding]:
    """The first `count` of `in_order`; None: all."""
    if count is None or count >= len(findings):
        return in_order(findings, order)
    known = ((order(one), place) for place, one in enumerate(heads(findings)))
    return tuple(findings[place] for _, place in heapq.nsmallest(count, known))
