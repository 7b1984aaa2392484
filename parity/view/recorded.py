"""What broke inside the engines of a recorded run, and under which conditions: for who has just made it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from parity.messages import Message, joined, message, words_heard
from parity.records import Json, Kind
from parity.store import FindingRow, Store
from parity.store.rows import FindingFilter
from parity.view.why import Why, of_run
from parity.view.why_said import said as why_said

SHOWN: Final = 3
"""Violations that are shown."""


class Broke(Struct, frozen=True):
    """The violations of a run (the heaviest, and how many there are), and the conditions that its faults go with."""

    run: str
    count: int
    first: tuple[FindingRow, ...]
    why: tuple[Why, ...]

    def to_json(self) -> dict[str, Json]:
        return {
            "run": self.run,
            "violations": self.count,
            "first": [
                {"arm": one.arm, "request": one.request, "round": one.round, "sample": one.sample,
                 "position": one.position, "evidence": dict(one.evidence)}
                for one in self.first
            ],
            "why": [one.to_json() for one in self.why],
        }  # fmt: skip


def what_broke(store: Store, run: str) -> Broke:
    where = FindingFilter(kinds=frozenset({str(Kind.VIOLATION)}))
    count = store.count_findings(run, where)
    return Broke(run, count, tuple(store.page_findings(run, where, limit=SHOWN)), tuple(of_run(store, run)))


def said(broke: Broke) -> list[Message]:
    lines = [
        message("recorded.none", "recorded: no step of run {run} broke the engine's bookkeeping", run=broke.run)
        if not broke.count
        else message(
            "recorded.broke",
            "recorded: {count} completion of run {run} broke the engine's bookkeeping",
            plural="recorded: {count} completions of run {run} broke the engine's bookkeeping",
            count=broke.count,
            run=broke.run,
        )
    ]
    lines += [joined(["  ", words_heard(one.evidence.get("why") or "")], by="") for one in broke.first]
    for one in broke.why:
        first, *rest = why_said(one)
        lines += [first, *(joined(["  ", line], by="") for line in rest)]
    return lines
