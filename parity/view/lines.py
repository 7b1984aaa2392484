"""One line of a list of runs: what stands in the store of a run without its completions and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from parity.records import Kind
from parity.records.emulated import emulated
from parity.store import ArmRow, RunRow, RunStatus, Store, TriageState

States = Mapping[str, Mapping[tuple[str, str], int]]


@dataclass(frozen=True)
class RunLine:
    """A run and its arms; `status` as `actual_status` has it."""

    run: RunRow
    arms: tuple[ArmRow, ...]
    status: str
    states: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Findings but near-ties by arm and state of triage, as `Store.states_of` has them."""

    @cached_property
    def controls(self) -> Mapping[str, str]:
        """As `controls`."""
        return controls(self.run)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Findings by kind over all arms but those with a fault planted on purpose."""
        return self._counts(planted=False)

    @cached_property
    def planted(self) -> Mapping[str, int]:
        """Findings by kind in those."""
        return self._counts(planted=True)

    @property
    def emulated(self) -> tuple[str, ...]:
        """Arms that ran on an emulated device."""
        return tuple(arm.name for arm in self.arms if emulated(arm.backend, arm.environment))

    @property
    def compared(self) -> bool:
        """Is there an arm of which findings are known, if only that there are none?"""
        return any(arm.status == "compared" for arm in self.arms)

    @property
    def findings(self) -> int:
        return sum(self.counts.values()) + sum(self.planted.values())

    @property
    def near_ties(self) -> int:
        return self.counts.get(Kind.NEAR_TIE, 0)

    @property
    def others(self) -> int:
        """Findings but near-ties and those of positive controls."""
        return sum(self.counts.values()) - self.near_ties

    @property
    def new(self) -> int:
        """Those of `others` that nobody has decided about and no rule of a known bug fits."""
        return self._in_state(TriageState.NEW)

    @property
    def known(self) -> int:
        """Those of `others` that are known bugs."""
        return self._in_state(TriageState.KNOWN)

    def _in_state(self, state: TriageState) -> int:
        return sum(n for (arm, one), n in self.states.items() if one == state and arm not in self.controls)

    def _counts(self, *, planted: bool) -> Mapping[str, int]:
        found: Counter[str] = Counter()
        for arm in self.arms:
            if (arm.name in self.controls) is planted:
                found.update(arm.counts)
        return dict(found)


def run_line(store: Store, run: RunRow) -> RunLine:
    return run_lines(store, [run], store.states_of([run.id]))[0]


def run_lines(store: Store, runs: Sequence[RunRow], states: States) -> list[RunLine]:
    """`states`: as `Store.states_of` has them."""
    return [RunLine(run, tuple(store.arms(run.id)), actual_status(run), states.get(run.id, {})) for run in runs]


def actual_status(run: RunRow) -> str:
    """The status, distinct from that of a process that was killed and could not say so."""
    if run.status is RunStatus.RUNNING and run.directory:
        from parity.pipeline.directory import RunDirectory  # takes half of the time to start

        if not RunDirectory(Path(run.directory)).in_use():
            return str(RunStatus.INTERRUPTED)
    return str(run.status)


def controls(run: RunRow) -> Mapping[str, str]:
    """The arms in which a fault was planted on purpose, and which: what is found there is no news."""
    return {arm.name: arm.control for arm in run.plan.arms if arm.control}


def counts_of(arm: ArmRow, *, follow_ups: bool = True) -> Mapping[str, int]:
    """Findings of an arm by kind, as they were counted when they were found; without `follow_ups` each completion's
    first fault alone. Where an older parity compared, no first faults are known: then all of them."""
    first = {} if follow_ups else arm.stats.get("first_faults") or {}
    return {kind: first.get(kind, 0) if first and kind != Kind.NEAR_TIE else n for kind, n in arm.counts.items()}
