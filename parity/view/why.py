"""Under which conditions the faults of a run happen, from what its engines' recorder saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct, structs

from parity.capture import read_capture, read_scores
from parity.capture.shards import is_there
from parity.capture.steps import Ints, RowSteps, read_steps, steps_path
from parity.errors import ParityError
from parity.explain.association import Associated, Association, associate
from parity.explain.hypotheses import Form
from parity.explain.ledger import Ledger, Mask
from parity.explain.predicates import asked_of
from parity.explain.violations import check
from parity.files import is_file
from parity.messages import message
from parity.records import Json, Key, Kind, ScoreKey, Severity, TopLogprobs
from parity.store import FindingRow, Store
from parity.store.rows import FindingFilter
from parity.view.far_logprobs import Far, far_logprobs
from parity.view.find import Absent, find_target, known_arm
from parity.view.score_files import score_files

MOST: Final = 100_000
"""Findings of an arm that are looked at."""

QUIET: Final = 8
"""Row-steps of a request without a far logprob after which one is a fault of its own. A state that was wrong once stays
wrong, and then not every token shows it: in the second model runner of vLLM 0.23.0 (reports/h200-second-runner) 100 of
502 row-steps lie outside of the cause with 1, 44 of 350 with 8."""

TELLING: Final = 10.0
"""The odds ratio from which on a condition may be given as the cause of logprobs that are far off."""

UNREACHED: Final = 20
"""Row-steps of requests that a condition has not been in so far, with which it can be asked whether these are sound."""


class Why(Struct, frozen=True):
    """One arm: its faults as row-steps, and the conditions they go with."""

    arm: str
    associated: Associated
    unplaced: int
    """Completions with findings that no recorded row-step made."""
    nats: float | None = None
    """Its faults are row-steps with a token whose own logprob lies farther off its score, where the QUIET row-steps
    before have none: of numerics of the run as a whole. None: they are those of findings."""
    unreached: float = math.inf
    """Of those: odds of a far logprob under the first condition, over those where it cannot have come from there."""

    @property
    def suspected(self) -> tuple[str, ...]:
        """The conditions that explain the faults best, and those that cannot be separated from them."""
        ranked = self.associated.ranked
        if not ranked:
            return ()
        return tuple(dict.fromkeys(name for names in (ranked[0].names, *ranked[0].same) for name in names))

    @property
    def telling(self) -> bool:
        """Whether the first condition may be given as the cause. Numerics that are wrong everywhere show more in some
        circumstances than in others, which cause none of it: there it must hold of most of them, and seldom else."""
        found = self.associated
        if not found.ranked or not found.sure:
            return False
        first = found.ranked[0]
        most = 2 * first.with_fault >= found.faults
        # What holds of nearly all row-steps has large odds where it holds of all faults too.
        seldom = first.odds >= TELLING and 2 * (first.row_steps - first.with_fault) <= found.row_steps - found.faults
        return self.nats is None or (most and seldom and self.unreached >= TELLING)

    def to_json(self) -> dict[str, Json]:
        found = self.associated
        ranked: list[Json] = [
            {
                "conditions": list(one.names),
                "form": str(one.form),
                "faults": one.with_fault,
                "row_steps": one.row_steps,
                "p": one.p,
                "adjusted_p": one.adjusted,
                "odds": round(one.odds, 3),
                "increase": round(one.increase, 6),
                "times_worse": round(one.factor, 3),
                "same": [list(names) for names in one.same],
            }
            for one in found.ranked
        ]
        return {
            "arm": self.arm,
            **({} if self.nats is None else {"logprobs_off": round(self.nats, 4)}),
            "faults": found.faults,
            "row_steps": found.row_steps,
            "conditions_asked": found.asked,
            "sure": found.sure,
            "needed": found.needed,
            "unplaced": self.unplaced,
            "reach": round(found.reach, 6),
            "ranked": ranked,
        }


def why(store: Store, target: str | None, arm: str | None = None) -> list[Why]:
    """For each arm of a run (or of a finding's run, for findings of its kind) that has faults.

    Raises ParityError where nothing was recorded, or nothing is wrong."""
    run, finding = find_target(store, target)
    known_arm(store, run, arm)
    recorded = _recorded(store, run, arm or (finding.arm if finding is not None else None)).values()
    if not recorded:
        raise _nothing_recorded(run)
    found = of_run(store, run, finding, arm)
    if not found and not any(len(steps) for capture in recorded for steps in read_steps(steps_path(capture))):
        raise _nothing_recorded(run)
    if not found:
        raise _nothing_wrong(run, arm)
    return found


def _nothing_wrong(run: str, arm: str | None) -> ParityError:
    if arm is not None:
        return ParityError(
            message("view.nothing_wrong_in", "nothing is wrong in {arm} of run {run}", arm=arm, run=run),
            hint=message("view.name_faulty_arm", "name an arm with corrupt completions, or leave out --arm"),
        )
    return ParityError(
        message("view.nothing_wrong", "nothing is wrong in the recorded arms of run {run}", run=run),
        hint=message("view.name_faulty", "name a run with corrupt completions; `parity runs list` shows them"),
    )


def _nothing_recorded(run: str) -> Absent:
    return Absent(
        run,
        message("view.nothing_recorded", "the steps of run {run} were not recorded, or their files are gone", run=run),
    )


def _recorded(store: Store, run: str, arm: str | None) -> dict[str, Path]:
    """Arms whose steps are beside their captures."""
    arms = [one for one in store.arms(run) if arm in (None, one.name)]
    return {one.name: Path(one.capture) for one in arms if one.capture and is_file(steps_path(Path(one.capture)))}


def of_run(store: Store, run: str, finding: FindingRow | None = None, arm: str | None = None) -> list[Why]:
    """As `why`; nothing where nothing was recorded, or nothing is wrong."""
    kinds = frozenset({finding.kind}) if finding is not None else frozenset[str]()
    found = []
    for name, capture in _recorded(store, run, arm or (finding.arm if finding is not None else None)).items():
        where = FindingFilter(arms=frozenset({name}), severities=frozenset({str(Severity.CORRUPT)}), kinds=kinds)
        rows = store.page_findings(run, where, limit=MOST)
        places: dict[Key, list[int]] = {}
        for row in rows:
            if row.position is not None:
                places.setdefault(Key(row.request, row.round, row.sample), []).append(row.position)
        broken = not kinds or str(Kind.VIOLATION) in kinds
        one = explained(name, read_steps(steps_path(capture)), _prompts(capture), places, violations=broken)
        if one.associated.faults:
            found.append(one)
        if not kinds or str(Kind.NUMERICS) in kinds:
            found += [
                each
                for each in _of_numerics(store, run, name, capture)
                if each.associated.sure or not one.associated.faults
            ]
    return found


def _of_numerics(store: Store, run: str, arm: str, capture: Path) -> Iterator[Why]:
    """Where the numerics of an arm are a finding: which row-steps have them, by logprobs and scores."""
    if not store.count_findings(run, FindingFilter(arms=frozenset({arm}), kinds=frozenset({str(Kind.NUMERICS)}))):
        return
    row = store.run(run)
    baseline = next((one for one in store.arms(run) if one.name == row.baseline), None)
    files = list(score_files(row))
    if baseline is None or not baseline.capture or not is_there(Path(baseline.capture)) or not files:
        return
    candidate = read_capture(capture, partial=True)
    scores: dict[ScoreKey, TopLogprobs] = {}
    for file in files:
        scores.update(read_scores(file))
    far = far_logprobs(candidate, read_capture(Path(baseline.capture), partial=True), scores)
    prompts = {one.key: one.prompt_token_ids for one in candidate}
    one = explained_by_logprobs(arm, read_steps(steps_path(capture)), prompts, far)
    if one.associated.faults:
        yield one


def _prompts(capture: Path) -> Mapping[Key, Ints]:
    return {one.key: one.prompt_token_ids for one in read_capture(capture, partial=True)}


def explained(
    arm: str,
    starts: Sequence[RowSteps],
    prompts: Mapping[Key, Ints],
    places: Mapping[Key, Iterable[int]],
    *,
    violations: bool = True,
) -> Why:
    """The association of an arm's faults: `places` are output positions of findings by completion.

    Of a completion that began in several starts (an engine started anew, a file joined to itself) the last counts.
    """

    def part(ledger: Ledger, again: set[int]) -> _Part:
        broken = [one.index for one in check(ledger.steps, prompts).violations] if violations else []
        return _asked(ledger, _first_faults(ledger, places, broken), again)

    return _joined(arm, _parts(starts, prompts, part), set(places))


def explained_by_logprobs(arm: str, starts: Sequence[RowSteps], prompts: Mapping[Key, Ints], far: Far) -> Why:
    """The same of row-steps whose tokens have logprobs that are far off, and the QUIET row-steps before have none."""
    parts = _parts(starts, prompts, lambda ledger, again: _onsets(ledger, far.places, again))
    found = _joined(arm, parts, set(far.places))
    ranked = found.associated.ranked
    return structs.replace(found, nats=far.nats, unreached=_unreached(parts, ranked[0]) if ranked else math.inf)


def _unreached(parts: Sequence[_Part], first: Association) -> float:
    """As `Why.unreached`. What is left out after a far logprob can make of numerics that are wrong everywhere ones that
    begin with a request. So all row-steps are asked here in which a request was not yet under the condition. Where
    there are next to none, as of one that holds of its first step: those that come QUIET and more after it."""
    before, later = np.zeros(2), np.zeros(2)
    for part in parts:
        masks = [part.masks[name] for name in first.names]
        holds = np.logical_or.reduce(masks) if first.form is Form.EITHER else np.logical_and.reduce(masks)
        for counts, reach in ((before, len(part.ledger)), (later, QUIET)):
            outside = part.asked & ~holds & ~part.ledger.lately(holds, reach)
            counts += (part.far & outside).sum(), outside.sum()
    off, all_of = (before if before[1] >= UNREACHED else later).tolist()
    within = (first.with_fault + 0.5) / (first.row_steps - first.with_fault + 0.5)
    return float(within * (all_of - off + 0.5) / (off + 0.5))


def _parts(
    starts: Sequence[RowSteps], prompts: Mapping[Key, Ints], part_of: Callable[[Ledger, set[int]], _Part]
) -> list[_Part]:
    """Of each start of an engine; `part_of` gets the requests that began once more in a later one."""
    needed = ("request", "handed", "computed", "scheduled", "drafts", "arrival")
    ledgers = [Ledger(steps, prompts) for steps in starts if len(steps) and steps.has(*needed)]
    last = {key: at for at, ledger in enumerate(ledgers) for key in _begun(ledger).values()}
    return [
        part_of(ledger, {number for number, key in _begun(ledger).items() if last[key] != at})
        for at, ledger in enumerate(ledgers)
    ]


def _joined(arm: str, parts: Sequence[_Part], keys: Collection[Key]) -> Why:
    """The association over all starts of an engine."""
    if not parts:
        return Why(arm, Associated(0, 0, 0, ()), len(keys))
    offsets = np.cumsum([0, *(len(part.among) for part in parts)])
    joined = {
        name: np.concatenate([part.masks[name] for part in parts])
        for name in parts[0].masks
        if all(name in part.masks for part in parts)
    }
    faults = np.concatenate([part.faults + offset for part, offset in zip(parts, offsets, strict=False)])
    associated = associate(joined, faults, np.concatenate([part.among for part in parts]))
    return Why(arm, associated, len(set(keys).difference(*(part.placed for part in parts))))


@dataclass(frozen=True, eq=False)
class _Part:
    """One start of an engine: conditions by row-step, its faulty row-steps, and those that could have been faulty."""

    masks: Mapping[str, Mask]
    faults: Ints
    among: Mask
    placed: frozenset[Key]
    """Completions whose first fault is in it."""
    ledger: Ledger
    far: Mask
    """Row-steps with a far logprob, also those that are no fault of their own."""
    asked: Mask
    """Row-steps that could have one."""


def _asked(ledger: Ledger, first: Mapping[int, int], again: set[int]) -> _Part:
    """`first`: the first faulty row-step by request; `again`: requests that began once more in a later start."""
    kept = {number: index for number, index in first.items() if number not in again}
    limit = np.full(int(ledger.request.max()) + 1, len(ledger))
    for number, index in kept.items():
        limit[number] = index
    faulty = np.array(sorted(kept.values()), dtype=np.int64)
    could = (ledger.emitted > 0) & ledger.known & (np.arange(len(ledger)) <= limit[ledger.request])
    could[faulty] = True
    could &= ~np.isin(ledger.request, list(again))
    keys = (ledger.steps.requests[number].key for number in kept)
    placed = frozenset(key for key in keys if key is not None)
    return _Part(asked_of(ledger), faulty, could, placed, ledger, np.zeros(len(ledger), dtype=bool), could)


def _onsets(ledger: Ledger, places: Mapping[Key, Sequence[int]], again: set[int]) -> _Part:
    """Row-steps that made a token at one of the places, where the request's QUIET row-steps before made none."""
    bad = np.zeros(len(ledger), dtype=bool)
    placed = set()
    numbers = {one.key: number for number, one in ledger.steps.requests.items() if one.key in places}
    emitting = ledger.emitted > 0
    for key, number in numbers.items():
        own = np.flatnonzero((ledger.request == number) & emitting)
        if key is None or not len(own) or number in again:
            continue
        placed.add(key)
        at = np.searchsorted(ledger.emitted_before[own], np.asarray(places[key]), side="right") - 1
        bad[own[np.maximum(0, at)]] = True
    asked = emitting & ledger.known & ~np.isin(ledger.request, list(again))
    among = asked & ~ledger.lately(bad, QUIET)
    return _Part(asked_of(ledger), np.flatnonzero(bad & among), among, frozenset(placed), ledger, bad, asked)


def _begun(ledger: Ledger) -> dict[int, Key]:
    """The completions whose first step is in it, by the number of the request."""
    numbers = np.unique(ledger.request[ledger.known]).tolist()
    return {number: key for number in numbers if (key := ledger.steps.requests[number].key) is not None}


def _first_faults(ledger: Ledger, places: Mapping[Key, Iterable[int]], broken: Sequence[int]) -> dict[int, int]:
    """The first faulty row-step of each request: one that broke an invariant, or made the first token of a finding."""
    found: dict[int, int] = {}
    for index in broken:
        number = int(ledger.request[index])
        found[number] = min(index, found.get(number, index))
    numbers = {one.key: number for number, one in ledger.steps.requests.items() if one.key in places}
    for key, number in numbers.items():
        assert key is not None
        own = np.flatnonzero((ledger.request == number) & (ledger.emitted > 0))
        for position in places[key]:
            if len(own):
                at = int(np.searchsorted(ledger.emitted_before[own], position, side="right")) - 1
                index = int(own[max(0, at)])
                found[number] = min(index, found.get(number, index))
    return found
