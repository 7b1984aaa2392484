"""Pairs of arms to be compared, each with its truth: clean ones in many settings, and every fault of the catalogue.

A trial is data, whatever is compared with what: `judge` asks the comparison, and says what it found of the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.detect.crossings import crossings, sequence
from parity.records import RUN, Capture, Completion, Finding, Key, ScoreKey, Scores, Severity, TopLogprobs, Verdict
from parity.records.crossings import Crossed
from worlds.decoding import force
from worlds.engine import Arm
from worlds.faults import Fault
from worlds.model import FLAT, LASTING, PEAKED, ROUGH, SURE, Shape
from worlds.world import BASE, PREFILL, SMALL, WIDE, WORDS, Truth, World, speculating

ARMS = (replace(BASE, name="cuda/again"), SMALL, WIDE, speculating(1), speculating(2), speculating(3))
"""Clean candidates."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is asked of the arms of a clean trial. scored: "all", "differing" or "none", as `parity run --score`.
    first_exact: the baseline's own logprob of a first token is the score's, as where one engine makes the same prefill
    twice."""

    name: str
    shape: Shape
    requests: int = 64
    sampling: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[Mapping[str, Any], ...] = ()
    scored: str = "all"
    rounds: int = 1
    logprobs: int | None = 0
    first_exact: bool = False


PENALTIES: tuple[Mapping[str, Any], ...] = (
    {"repetition_penalty": 1.1},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.5},
    {"frequency_penalty": 0.4},
    {"repetition_penalty": 1.05, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    {},
)
_PENALISED: tuple[Mapping[str, Any], ...] = (
    *PENALTIES,
    {"repetition_penalty": 1.15, "presence_penalty": 0.7, "logit_bias": {"7": 4.0, "9": 2.0, "12": -100.0}},
)
RULES: tuple[Mapping[str, Any], ...] = (
    {"min_tokens": 48},
    {"bad_ids": [[3], [4], [5, 6], [11]]},
    {"allowed_token_ids": list(range(200))},
    {"logit_bias": {"7": 3.0, "8": -100.0, "9": 1.5}},
    {"stop_token_ids": [2, 3, 9, 17]},
    {"ignore_eos": True},
    {"max_tokens": 17},
    {},
)
_RAISED: tuple[Mapping[str, Any], ...] = (
    {"repetition_penalty": 0.9},
    {"repetition_penalty": 0.8, "presence_penalty": 0.5},
    {"presence_penalty": -0.5},
    {"repetition_penalty": 1.2},
    {},
)
CUTS: tuple[Mapping[str, Any], ...] = ({"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05}, {"temperature": 0.7})
DRAWS: tuple[Mapping[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.3},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 20},
    {"temperature": 1.2, "min_p": 0.05},
    {"temperature": 0.7, "presence_penalty": 0.5},
)

SETTINGS = (
    Setting("greedy, 512 tokens", PEAKED, 128, {"max_tokens": 512}),
    Setting("greedy, flat", FLAT, 160, {"max_tokens": 256}),
    Setting("greedy, sure", SURE, 192, {"max_tokens": 512, "ignore_eos": True}),
    Setting("greedy, flat, differing scored", FLAT, 160, {"max_tokens": 256}, scored="differing"),
    Setting("greedy, lists and no scores", PEAKED, 128, {"max_tokens": 256}, scored="none", logprobs=5),
    Setting("greedy, flat, no own logprobs", FLAT, 128, {"max_tokens": 128}, scored="differing", logprobs=None),
    Setting("penalties", FLAT, 160, {"max_tokens": 256}, PENALTIES),
    Setting("penalties, peaked", PEAKED, 128, {"max_tokens": 512, "ignore_eos": True}, PENALTIES),
    Setting("one penalty", FLAT, 160, {"max_tokens": 256, "repetition_penalty": 1.2}),
    Setting("rules", PEAKED, 160, {"max_tokens": 256}, RULES),
    Setting("rules, flat", FLAT, 160, {"max_tokens": 128}, RULES),
    Setting("rules, lists of five", FLAT, 128, {"max_tokens": 96}, RULES, logprobs=5),
    Setting("penalties, lists of five", FLAT, 128, {"max_tokens": 128}, PENALTIES, logprobs=5),
    Setting("three rounds", FLAT, 64, {"max_tokens": 192}, rounds=3),
    Setting("sampled, 0.7", PEAKED, 80, {"max_tokens": 192, "temperature": 0.7, "n": 2}),
    Setting(
        "sampled, 1, top-p and top-k", FLAT, 160, {"max_tokens": 192, "temperature": 1.0, "top_p": 0.9, "top_k": 50}
    ),
    Setting("sampled, 1", FLAT, 128, {"max_tokens": 128, "temperature": 1.0}),
    Setting("each its own temperature", PEAKED, 160, {"max_tokens": 256, "temperature": 0.5}, DRAWS),
    Setting("drawn, penalties", FLAT, 128, {"max_tokens": 128, "temperature": 0.8}, PENALTIES),
    Setting("drawn, one noise", FLAT, 96, {"max_tokens": 96, "temperature": 0.8, "one_noise": True}),
    Setting(
        "drawn, one noise, two samples", PEAKED, 48, {"max_tokens": 96, "temperature": 1.0, "n": 2, "one_noise": True}
    ),
    Setting("drawn, rules", PEAKED, 128, {"max_tokens": 128, "temperature": 0.8}, RULES),
    Setting("penalties, lists and no scores", FLAT, 128, {"max_tokens": 128}, _PENALISED, scored="none", logprobs=5),
    Setting("one token throughout", FLAT, 64, {"max_tokens": 96, "logit_bias": {"7": 100.0}}),
    Setting("penalties below one, no own logprobs", FLAT, 160, {"max_tokens": 128}, _RAISED, logprobs=None),
    Setting("drawn, cut off, no own logprobs", FLAT, 128, {"max_tokens": 128, "temperature": 1.0}, CUTS, logprobs=None),
    Setting("four tokens, lists and no scores", FLAT, 1024, {"max_tokens": 4}, scored="none", logprobs=5),
    Setting("three tokens, the first as scored", FLAT, 1024, {"max_tokens": 3}, first_exact=True),
    Setting("greedy, flat, the first as scored", FLAT, 512, {"max_tokens": 48}, first_exact=True),
    Setting("greedy, experts far apart", ROUGH, 256, {"max_tokens": 96}),
    Setting("greedy, experts far apart, lasting", LASTING, 256, {"max_tokens": 96}),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One comparison to be made."""

    name: str
    seed: int
    baseline: Capture
    candidate: Capture
    scores: Scores
    truth: Truth
    options: CompareOptions
    crossed: Crossed = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(len(one.token_ids) for one in self.candidate)


def clean(setting: Setting, seed: int, arms: Sequence[Arm] = ARMS) -> Iterator[Trial]:
    """The baseline against every arm."""
    world = World(seed, setting.shape)
    asked = world.requests(setting.requests, own=setting.own)
    known: dict[bytes, TopLogprobs] = {}
    same: dict[str, Any] = {"rounds": setting.rounds, "logprobs": setting.logprobs, **setting.sampling}
    baseline = world.run(asked, BASE, **same).capture
    for arm in arms:
        made = world.run(asked, arm, **same)
        scores = scored(world, baseline, made.capture, setting.scored, known)
        name = f"{setting.name}: {arm.name}"
        own = _first_as_scored(baseline, scores) if setting.first_exact else baseline
        yield Trial(name, seed, own, made.capture, scores, made.truth, CompareOptions(detokenize=WORDS))


def _first_as_scored(arm: Capture, scores: Scores) -> Capture:
    """The arm, its own logprob of each first token the one that it was scored with."""

    def changed(one: Completion) -> Completion:
        top = scores.get(ScoreKey(arm.header.arm, *one.key))
        if top is None or one.logprobs is None or not len(one.token_ids):
            return one
        values = one.logprobs.values.copy()
        values[0, one.logprobs.ids[0] == one.token_ids[0]] = top.values[0, top.ids[0] == one.token_ids[0]]
        return replace(one, logprobs=TopLogprobs(one.logprobs.ids, values))

    return replace(arm, completions={key: changed(one) for key, one in arm.completions.items()})


def scored(world: World, baseline: Capture, candidate: Capture, mode: str, known: dict[bytes, TopLogprobs]) -> Scores:
    """What `parity run --score` would have had scored."""
    if mode == "none":
        return {}
    if mode == "all":
        return world.score(baseline, candidate, known=known)
    apart = differing(baseline, candidate)
    arms = (candidate, baseline) if is_greedy(baseline) else (candidate,)
    return world.score(*(_of(arm, apart) for arm in arms), known=known)


def _of(arm: Capture, keys: frozenset[Key]) -> Capture:
    return replace(arm, completions={key: one for key, one in arm.completions.items() if key in keys})


def in_parts(trial: Trial, completions: int) -> Iterator[Trial]:
    """The trial as runs of so many completions each, which say less of the model."""
    keys = list(trial.candidate.completions)
    for begin in range(0, len(keys), completions):
        some = frozenset(keys[begin : begin + completions])
        scores = {key: top for key, top in trial.scores.items() if Key(*key[1:]) in some}
        baseline, candidate = _of(trial.baseline, some), _of(trial.candidate, some)
        name = f"{trial.name}, from {begin}"
        yield replace(trial, name=name, baseline=baseline, candidate=candidate, scores=scores)


def differing(baseline: Capture, candidate: Capture) -> frozenset[Key]:
    """Completions that are others in the candidate."""
    twins = baseline.completions
    return frozenset(
        key
        for key, one in candidate.completions.items()
        if key not in twins or not np.array_equal(one.token_ids, twins[key].token_ids)
    )


def is_greedy(arm: Capture) -> bool:
    """Is nothing drawn?"""
    asked = [arm.header.sampling, *(one.sampling for one in arm)]
    return not any(sampling.get("temperature") for sampling in asked)


def crossed(world: World, trial: Trial) -> Trial:
    """The trial as `parity run` has it: what its own prompts do not explain is scored after those of others."""
    first = compare(trial.baseline, trial.candidate, trial.scores, trial.options)
    arms = {arm.header.arm: arm for arm in (trial.baseline, trial.candidate)}
    asked = crossings(trial.baseline, (), scores=trial.scores)
    asked += crossings(trial.candidate, first.findings, scores=trial.scores)
    pairs = [sequence(one, arms[one.arm]) for one in asked]
    answers = force(world.model, Arm("cuda/base", PREFILL), [(tuple(p.tolist()), t) for p, t in pairs], top=20)
    return replace(
        trial,
        crossed={one: TopLogprobs(said.ids, said.values) for one, said in zip(asked, answers, strict=True)},
    )


class Faulty:
    """A baseline and the arms that a fault makes of it, in any number of requests, for one seed.

    Requests come in blocks, so that a larger run has the smaller one in it: `first` of them, as many again, then twice
    as many, and so on.
    """

    def __init__(
        self,
        seed: int,
        shape: Shape,
        *,
        first: int = 32,
        max_tokens: int = 128,
        logprobs: int | None = 0,
        recorded: bool = False,
    ) -> None:
        self.world, self.seed, self.first, self.max_tokens = (
            World(seed, shape, recorded=recorded),
            seed,
            first,
            max_tokens,
        )
        self.logprobs = logprobs
        self._known: dict[bytes, TopLogprobs] = {}
        self._bases: dict[tuple[str, int], Capture] = {}
        self._made: dict[tuple[str, str, int], tuple[Capture, Truth, Scores]] = {}

    def trial(self, fault: Fault, blocks: int, arm: Arm | None = None) -> Trial:
        """The fault in so many blocks of requests: one is `first` of them, and each more doubles their number."""
        parts = [self._part(fault, number, arm or speculating(2)) for number in range(blocks)]
        hits = {key: hit for _, truth, _ in parts for key, hit in truth.rows.items()}
        scores = {key: top for _, _, some in parts for key, top in some.items()}
        lapsed = {key: worst for _, truth, _ in parts for key, worst in truth.lapsed.items()}
        made = Trial(
            f"{fault.name}, {fault.size}".rstrip(", "),
            self.seed,
            self.baseline(fault, blocks),
            _joined([made for made, _, _ in parts]),
            scores,
            Truth(fault, hits, sum(truth.moved for _, truth, _ in parts), lapsed),
            CompareOptions(detokenize=WORDS),
        )
        return crossed(self.world, made) if fault.family == "sampled" else made

    def baseline(self, fault: Fault, blocks: int) -> Capture:
        """What the fault's arm is compared with, in so many blocks of requests."""
        return _joined([self._base(fault, number) for number in range(blocks)])

    def forget(self) -> None:
        """Drops what was made for faults; baselines are kept."""
        self._made.clear()

    def _base(self, fault: Fault, number: int) -> Capture:
        name = (repr((sorted(fault.rules.items()), fault.own, fault.rounds)), number)
        if name not in self._bases:
            asked = self._asked(fault, number)
            before = self._before(number)
            self._bases[name] = self.world.run(asked, BASE, before=before, **self._sampling(fault)).capture
        return self._bases[name]

    def _sampling(self, fault: Fault) -> dict[str, Any]:
        return {"max_tokens": self.max_tokens, "logprobs": self.logprobs, "rounds": fault.rounds, **fault.rules}

    def _before(self, number: int) -> int:
        """Requests of the blocks before it."""
        return self.first << (number - 1) if number else 0

    def _asked(self, fault: Fault, number: int) -> Any:
        count = self.first << max(0, number - 1)
        return self.world.requests(count, seed=number, own=fault.own, name=f"b{number}r")

    def _part(self, fault: Fault, number: int, arm: Arm) -> tuple[Capture, Truth, Scores]:
        name = (fault.name, fault.size, number)
        if name not in self._made:
            asked = self._asked(fault, number)
            same = {"before": self._before(number), **self._sampling(fault)}
            made = self.world.run(asked, arm, fault=fault, fault_seed=number, **same)
            scores = self.world.score(self._base(fault, number), made.capture, known=self._known)
            self._made[name] = made.capture, made.truth, scores
        return self._made[name]


def _joined(captures: Sequence[Capture]) -> Capture:
    counters: dict[str, int] = {}
    for one in captures:
        for name, count in (one.counters or {}).items():
            counters[name] = counters.get(name, 0) + count
    completions = {key: made for one in captures for key, made in one.completions.items()}
    return replace(captures[0], completions=completions, counters=counters)


# ------------------------------------------------------------------ judging


@dataclass(frozen=True, slots=True)
class Judged:
    """What a comparison said of a trial.

    Completions `hit` by the fault, of these `found` (a corrupt finding), with a right `kind`, the right `place` (a
    finding at the first changed token), the right `donor`; `accused`: corrupt findings of others, `of_run` of the run.
    """

    trial: Trial
    result: Comparison
    hit: int
    found: int
    kind: int
    place: int
    donor: int
    accused: tuple[Finding, ...]
    of_run: tuple[Finding, ...]

    @property
    def seen(self) -> bool:
        """The verdict says that something is wrong."""
        return self.result.verdict is Verdict.DIVERGED

    @property
    def named(self) -> bool:
        """Some finding has a kind that is right."""
        fault = self.trial.truth.fault
        return fault is not None and any(one.kind in fault.kinds for one in self.result.corrupt)


def judge(trial: Trial, ask: Callable[..., Comparison] = compare) -> Judged:
    result = ask(trial.baseline, trial.candidate, trial.scores, trial.options, trial.crossed)
    corrupt = [one for one in result.findings if one.severity is Severity.CORRUPT]
    by_row: dict[Any, list[Finding]] = {}
    for one in corrupt:
        if one.request != RUN:
            by_row.setdefault(one.key, []).append(one)
    fault, rows = trial.truth.fault, trial.truth.rows
    kinds = fault.kinds if fault else ()
    everywhere = fault is not None and not fault.hits_rows
    right = {key: [one for one in by_row.get(key, ()) if one.kind in kinds] for key in rows}
    return Judged(
        trial,
        result,
        len(rows),
        sum(key in by_row for key in rows),
        sum(bool(some) for some in right.values()),
        sum(any(one.position == rows[key].position for one in by_row.get(key, ())) for key in rows),
        sum(_names(right[key], hit.donor) for key, hit in rows.items() if hit.donor),
        () if everywhere else tuple(one for key, some in by_row.items() if key not in rows for one in some),
        tuple(one for one in corrupt if one.request == RUN),
    )


def _names(findings: Sequence[Finding], donor: str) -> bool:
    return any(getattr(one.evidence, "donor_request", None) == donor for one in findings)


def said(result: Comparison) -> dict[str, Any]:
    """A verdict as data, to be compared with that of another checkout on the same trial."""
    findings = [
        [one.request, one.round, one.sample, str(one.kind), str(one.severity), one.position, one.length]
        for one in result.findings
    ]
    return {
        "verdict": str(result.verdict),
        "reasons": sorted(one.id for one in result.reasons),
        "findings": sorted(findings, key=repr),
    }
