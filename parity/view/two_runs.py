"""Two runs beside each other: which findings are new, gone, changed, and which settings differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from parity.records import RUN, Json, Key, Kind
from parity.store import ArmRow, RunRow
from parity.store.browse import Browser, CompletionLine, FaultLine

Place = tuple[str, str, int, int, str]
"""Arm, request, round, sample, kind."""

_STEPS_SAID: Final = frozenset({"inside.clean", "inside.broken"})
"""Said of an arm whose steps were read (pipeline/inside.py)."""


class Change(StrEnum):
    NEW = "new"
    CHANGED = "changed"
    GONE = "gone"
    UNASKED = "not_judged"
    """The second run says nothing of that: no such arm, not compared, the completion is missing or nothing judges it,
    or the engine's steps were not recorded, which a violation is seen in."""
    SAME = "same"


class Pair(Struct, frozen=True):
    """A finding of the first run and what became of it in the second."""

    change: Change
    before: FaultLine | None
    after: FaultLine | None

    @property
    def line(self) -> FaultLine:
        """The later one, where there is one."""
        one = self.after or self.before
        assert one is not None
        return one


class Difference(Struct, frozen=True):
    """A setting that the runs do not share; None where a run has none."""

    name: str
    before: Json
    after: Json


class TwoRuns(Struct, frozen=True):
    before: RunRow
    after: RunRow
    pairs: Sequence[Pair]
    """What is new first, then what changed, what is gone, what is not judged, what stayed; near-ties are left out."""
    settings: Sequence[Difference]

    def count(self, change: Change) -> int:
        return sum(one.change is change for one in self.pairs)


def two_runs(store: Browser, before: RunRow, after: RunRow) -> TwoRuns:
    """Findings are the same where arm, completion and kind are, whatever the plan is called: a plan that lost a prompt
    has other fingerprints. Arms are known by name, unless each run has one candidate. Raises ParityError."""
    arms = [store.arms(run.id) for run in (before, after)]
    alone = all(len(_candidates(of_run)) == 1 for of_run in arms)
    found = [_by_place(store.fault_lines(run.id), alone=alone) for run in (before, after)]
    judged, asked = _judged(store, after, alone=alone), _with_steps(arms[1], alone=alone)
    pairs = [pair for place in dict.fromkeys([*found[1], *found[0]]) for pair in _pairs(*(one[place] for one in found))]
    order = list(Change)
    pairs = [
        replace(one, change=Change.UNASKED)
        if one.change is Change.GONE
        and (_completion(one.line, alone=alone) not in judged or not _asked(one.line, asked, alone=alone))
        else one
        for one in pairs
    ]
    pairs.sort(key=lambda one: (order.index(one.change), -one.line.weight, one.line.id))
    settings = [_settings(run, of_run) for run, of_run in zip((before, after), arms, strict=True)]
    names = [
        name for name in dict.fromkeys([*settings[0], *settings[1]]) if settings[0].get(name) != settings[1].get(name)
    ]
    return TwoRuns(
        before, after, pairs, [Difference(name, settings[0].get(name), settings[1].get(name)) for name in names]
    )


def _candidates(arms: Sequence[ArmRow]) -> list[str]:
    return [arm.name for arm in arms if not arm.is_baseline]


def _completion(line: FaultLine | CompletionLine, *, alone: bool) -> tuple[str, Key]:
    return "" if alone else line.arm, line.key


def _judged(store: Browser, run: RunRow, *, alone: bool) -> set[tuple[str, Key]]:
    """The completions of which the run says whether they are right, and of each arm the run as a whole."""
    lines = [one for one in store.completion_lines(run.id) if one.cls not in ("", "missing", "unjudged")]
    found = {_completion(one, alone=alone) for one in lines}
    return found | {(arm, Key(RUN, 0, 0)) for arm, _ in found}


def _with_steps(arms: Sequence[ArmRow], *, alone: bool) -> set[str]:
    """Arms in whose steps violations were looked for."""
    return {
        "" if alone else arm.name
        for arm in arms
        if not arm.is_baseline and any(one.id in _STEPS_SAID for one in (*arm.reasons, *arm.notes))
    }


def _asked(line: FaultLine, with_steps: set[str], *, alone: bool) -> bool:
    return line.kind != Kind.VIOLATION or ("" if alone else line.arm) in with_steps


def _by_place(lines: Sequence[FaultLine], *, alone: bool) -> defaultdict[Place, list[FaultLine]]:
    found: defaultdict[Place, list[FaultLine]] = defaultdict(list)
    for one in lines:
        found["" if alone else one.arm, one.key.request, one.key.round, one.key.sample, one.kind].append(one)
    return found


def _pairs(before: Sequence[FaultLine], after: Sequence[FaultLine]) -> Iterator[Pair]:
    """Of one kind in one completion: those at the same place belong together, the others in their order."""
    rest = list(after)
    left: list[FaultLine] = []
    for one in before:
        same = next((two for two in rest if two.position == one.position), None)
        if same is None:
            left.append(one)
            continue
        rest.remove(same)
        yield Pair(Change.SAME if same.length == one.length else Change.CHANGED, one, same)
    for old, new in zip_longest(left, rest):
        yield Pair(Change.GONE if new is None else Change.NEW if old is None else Change.CHANGED, old, new)


def _settings(run: RunRow, arms: Sequence[ArmRow]) -> dict[str, Json]:
    """Everything that was asked for or found, one level deep, by a name that says where it stands."""
    found: dict[str, Json] = {"model": run.model, "rounds": run.plan.rounds or 1, "baseline": run.baseline}
    found |= flat("sampling", run.plan.sampling.to_json())
    found |= flat("version", run.versions)
    for arm in arms:
        found |= flat(arm.name, arm.engine) | flat(f"{arm.name} environment", arm.environment)
    return found


def flat(where: str, values: Mapping[str, Json]) -> dict[str, Json]:
    """One level deep, by names that begin with `where`."""
    found: dict[str, Json] = {}
    for name, value in values.items():
        inner = value if isinstance(value, Mapping) else {"": value}
        found |= {f"{where} {name}{f'.{key}' if key else ''}": one for key, one in inner.items()}
    return found
