"""A whole view, and what is said of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from parity.comparator import Suspect, suspect_of_run, triangulate
from parity.comparator.stats import Stats
from parity.messages import Message, message
from parity.paths import named_in
from parity.records import Json, Key, Verdict
from parity.records.emulated import PROVES, proves
from parity.records.evidence import LocatedEvidence, ViolationEvidence
from parity.records.words import of_arms
from parity.store import RequestRow
from parity.view.arm import ArmView
from parity.view.evidence import Evidence
from parity.view.finding import FindingView, begins
from parity.view.tokens import TokenText

if TYPE_CHECKING:
    from parity.view.profile import Profiled
    from parity.view.why import Why

EXAMPLES: Final = 3
"""Worst findings shown on a terminal."""

LOOKED_AT: Final = 200
"""Findings that these are chosen from."""

MOST_FINDINGS: Final = 1000
"""Findings of a view with their streams, where nobody asks for more."""

WORST: Final = 3
"""Outputs shown for each arm."""

TEXT: Final = 400
"""Characters kept of an output."""


@dataclass(frozen=True, slots=True)
class Run:
    """What is said of the run as a whole. `id`, `created`, `command` and `plan_hash` are "" where it is not stored."""

    id: str
    source: str
    """"run" (parity ran the engines) or "compare" (captures made elsewhere)."""
    created: str
    status: str | None
    verdict: str | None
    reasons: tuple[Message, ...]
    message: Message | None
    """Why it failed."""
    model: str
    model_path: Path | None
    baseline: str
    command: str
    plan_hash: str
    directory: str | None
    duration: float | None
    rounds: int
    samples: int
    """Of each request in a round."""
    sampling: Mapping[str, Json]
    churn: Mapping[str, Json]
    """How requests came and went while others ran; empty where they did not."""
    score_files: tuple[Path, ...] = ()
    skipped: tuple[tuple[str, Message], ...] = ()
    """Combinations that could not run: (arm, reason)."""
    score: str | None = None
    """Which completions the baseline was to score (`SCORE_MODES`); None where captures were compared."""
    tolerance: float | str | None = None
    """As it was asked for."""
    arbiter: str | None = None
    """The backend that was asked as the arbiter."""
    database: str = field(default="", compare=False)
    """Where it is stored, if elsewhere than commands look by themselves."""

    @property
    def named(self) -> str:
        """The run in the words of a command line: its id, and where it is to be looked for; "" where not stored."""
        return named_in(self.id, self.database) if self.id else ""

    @property
    def greedy(self) -> bool:
        return not self.sampling.get("temperature")


@dataclass(frozen=True, slots=True)
class Output:
    """What an arm said, shown below the table because it is corrupt, or shorter than all others."""

    arm: str
    request: str
    round: int
    sample: int
    tokens: int
    finish_reason: str | None
    corrupt: bool
    text: str | None


@dataclass(frozen=True, slots=True)
class Sibling:
    """A run of the same plan, with the engine versions of its arms: arm name to version."""

    id: str
    verdict: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class RunView:
    """Everything that is drawn of a run. `findings` are the worst first; `chosen` is the one to show.

    What is large is read when it is asked for: `evidence`, `classes_of`.
    """

    run: Run
    arms: tuple[ArmView, ...]
    findings: tuple[FindingView, ...]
    total_findings: int
    chosen: FindingView | None
    """The finding asked for, else the worst."""
    asked_for_finding: bool
    requests: Sequence[RequestRow]
    outputs: tuple[Output, ...] = ()
    siblings: tuple[Sibling, ...] = ()
    read_evidence: Callable[[], Evidence] = field(default=Evidence, compare=False, repr=False)
    read_why: Callable[[], Sequence[Why]] = field(default=tuple, compare=False, repr=False)
    read_profile: Callable[[], Profiled | None] = field(default=lambda: None, compare=False, repr=False)
    read_classes: Callable[[str], Mapping[Key, str]] = field(default=lambda arm: {}, compare=False, repr=False)

    @cached_property
    def evidence(self) -> Evidence:
        """Gaps by token, where streams part, lengths, acceptance. Raises ParityError."""
        return self.read_evidence()

    @cached_property
    def why(self) -> tuple[Why, ...]:
        """Of arms whose steps were recorded and that have faults: the conditions that these go with. Why a control
        is wrong is known, and no news of the others."""
        known = {arm.name for arm in self.controls} - {arm.name for arm in self.suspected}
        return tuple(one for one in self.read_why() if one.arm not in known)

    @cached_property
    def profile(self) -> Profiled | None:
        """How far the modules of sketched arms are from the reference's prefill; None of fewer than two arms."""
        return self.read_profile()

    @property
    def violations(self) -> list[FindingView]:
        """Of the engine's bookkeeping."""
        return [one for one in self.corrupt if isinstance(one.evidence, ViolationEvidence)]

    @property
    def first_violation(self) -> FindingView | None:
        """The one of the earliest step, in the arm of the worst."""
        broken = [(one.evidence.step, one) for one in self.corrupt if isinstance(one.evidence, ViolationEvidence)]
        if not broken:
            return None
        arm = broken[0][1].arm
        return min((pair for pair in broken if pair[1].arm == arm), key=lambda pair: pair[0])[1]

    @property
    def located(self) -> list[FindingView]:
        """Where sketches found a module or the sampler wrong."""
        return [one for one in self.corrupt if isinstance(one.evidence, LocatedEvidence)]

    def classes_of(self, arm: str) -> Mapping[Key, str]:
        """The class of each completion of an arm, "" where it was not compared."""
        return self.read_classes(arm)

    @cached_property
    def text(self) -> TokenText:
        return TokenText(self.run.model_path)

    @property
    def baseline(self) -> ArmView:
        return next(arm for arm in self.arms if arm.is_baseline)

    @property
    def candidates(self) -> list[ArmView]:
        """The arms that are judged: neither the baseline nor a positive control."""
        return [arm for arm in self.arms if not arm.is_baseline and not arm.is_control]

    @property
    def controls(self) -> list[ArmView]:
        return [arm for arm in self.arms if arm.is_control]

    def arm(self, name: str) -> ArmView:
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def suspected(self) -> list[ArmView]:
        """The arms that the report accuses: that of the finding asked for, every one that diverged, or the baseline."""
        if self.asked_for_finding and self.chosen is not None:
            return [self.arm(self.chosen.arm)]
        if self.baseline_is_at_fault:
            return [self.baseline]
        return [arm for arm in self.candidates if arm.corrupt] or (
            [self.arm(self.chosen.arm)] if self.chosen is not None else []
        )

    @property
    def baseline_is_at_fault(self) -> bool:
        """An arbiter says so, and nothing is corrupt in the others: no finding of this run shows the fault."""
        return bool(self.against_baseline) and not any(arm.corrupt for arm in self.candidates)

    @cached_property
    def suspect(self) -> Suspect | None:
        return self._told_by_arms(suspect_of_run)

    @property
    def suspect_of_any(self) -> Suspect | None:
        """The same where the verdict of one arm counts as a pattern: for who asks engines about it."""
        return self._told_by_arms(triangulate)

    def _told_by_arms(self, ask: Callable[..., Suspect | None]) -> Suspect | None:
        verdicts = {arm.name: Verdict(arm.verdict) for arm in self.candidates if arm.verdict is not None}
        against = [arm.name for arm in self.against_baseline]
        stats = {arm.name: Stats.from_json(arm.stats) for arm in self.candidates if arm.verdict is not None}
        numerics = {arm: one.numerics for arm, one in stats.items() if one.numerics}
        faults = {arm: one.faults_at for arm, one in stats.items()}
        recorded = {arm: one.recorded for arm, one in stats.items() if one.recorded}
        return ask(verdicts, self.run.baseline, against, numerics, faults, recorded)

    @property
    def against_baseline(self) -> list[ArmView]:
        """The candidates that an arbiter supports where they differ, and not the baseline."""
        return [arm for arm in self.candidates if (arm.stats.get("arbiter") or {}).get("baseline_at_fault")]

    @property
    def open_reason(self) -> Message | None:
        """Why a run in which nothing is corrupt is no PASS all the same; None of others."""
        if self.run.verdict not in (Verdict.DIVERGED, Verdict.INCONCLUSIVE):
            return None
        return None if any(arm.corrupt for arm in self.candidates) else next(iter(self.run.reasons), None)

    @property
    def projects(self) -> list[str]:
        """Who should hear of it: vllm-ascend for its arms, vllm for others with vLLM, both where both diverge; nobody
        where no arm is known to be vLLM."""
        arms = self.suspected or self.candidates
        return sorted({arm.project for arm in arms if arm.project is not None})

    @property
    def tolerance(self) -> float | None:
        arms = self.candidates or self.controls
        return next((arm.figures.tolerance for arm in arms if arm.figures.tolerance is not None), None)

    @cached_property
    def corrupt(self) -> list[FindingView]:
        return [finding for finding in self.findings if finding.is_corrupt]

    @property
    def examples(self) -> list[FindingView]:
        """The worst findings of as many kinds as there are, in the order of all findings; where nothing is corrupt, the
        widest near-tie."""
        if not self.corrupt:
            return [self.chosen] if self.chosen is not None else []
        firsts = begins(self.corrupt)
        first = {finding.kind: finding for finding in reversed(firsts)}
        of_kinds = [finding for finding in firsts if first[finding.kind] is finding]
        chosen = [*of_kinds, *(one for one in firsts if first[one.kind] is not one)][:EXAMPLES]
        return [finding for finding in firsts if any(finding is one for one in chosen)]

    @property
    def missed(self) -> Mapping[str, float]:
        """The fault rate (per completion, 95 %) that the comparison of an arm cannot exclude."""
        bounds = {arm.name: arm.figures.not_excluded for arm in self.arms if not arm.is_baseline}
        return {arm: bound for arm, bound in bounds.items() if bound is not None}

    @property
    def notes(self) -> list[Message]:
        """Each once, with the arms that it is about."""
        others = [arm for arm in self.arms if not arm.is_baseline]
        arms_of: dict[str, tuple[Message, list[str]]] = {}
        for arm in others:
            for note in arm.notes:
                if note.id != PROVES:
                    arms_of.setdefault(str(note), (note, []))[1].append(arm.name)
        return self.emulated + [of_arms(names, note) if len(others) > 1 else note for note, names in arms_of.values()]

    @property
    def emulated(self) -> list[Message]:
        """What a run on an emulated device proves, once for all its arms; nothing where all devices are real."""
        names = [arm.name for arm in self.arms if arm.emulated]
        return [proves(*names)] if names else []

    @property
    def question(self) -> Message:
        """Prompts × samples × rounds, and up to how many tokens."""
        run, requests = self.run, len(self.requests)
        shape = message("view.requests", "{requests} requests", requests=requests)
        if run.samples > 1:
            shape = message("view.samples", "{shape} × {samples} samples", shape=shape, samples=run.samples)
        asked = message(
            "view.question",
            "{shape} × {count} round = {total} completions an arm",
            plural="{shape} × {count} rounds = {total} completions an arm",
            shape=shape,
            count=run.rounds,
            total=f"{requests * run.samples * run.rounds:,}",
        )
        limit = run.sampling.get("max_tokens")
        if isinstance(limit, int):
            asked = message("view.question.limit", "{asked}, up to {limit} tokens each", asked=asked, limit=limit)
        if run.churn:
            churn = [f"{name} {value}" for name, value in run.churn.items() if name != "seed"]
            asked = message("view.question.churn", "{asked}; churn: {churn}", asked=asked, churn=churn)
        return asked
