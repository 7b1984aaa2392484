"""What a report is about, gathered from the store: one run, its arms, and the findings to show.

Every format reads a `Case` and nothing else, so that they all say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import orjson

from parity.comparator import Suspect, triangulate
from parity.errors import ParityError
from parity.records import Json, Key, Severity, TokenIds, Verdict
from parity.report.summary import CONTROL, planted_in
from parity.report.table import ExperimentTable
from parity.report.table import from_store as experiment
from parity.report.tokens import TokenText
from parity.store import (
    ArmRow,
    CompletionRow,
    FindingFilter,
    FindingRow,
    FindingSort,
    RequestRow,
    RunRow,
    Store,
    Triage,
)
from parity.store.lookup import by_fingerprint, lengths
from parity.store.lookup import corrupt as corrupt_keys

MOST_FINDINGS = 1000
"""Findings that a report shows with their streams, where nobody asks for more."""


@dataclass(frozen=True, slots=True)
class ArmCase:
    """One arm, with its completions counted by class and its corrupt findings by kind."""

    row: ArmRow
    classes: Mapping[str, int]
    corrupt: Mapping[str, int]
    completions: int
    tokens: Mapping[Key, int]
    """Output tokens of each completion, in the order of the capture."""
    corrupt_keys: frozenset[Key] = frozenset()
    """Completions in which something corrupt was found, also where the finding itself is not in the report."""

    @property
    def keys(self) -> list[Key]:
        return list(self.tokens)

    @property
    def lengths(self) -> list[int]:
        return list(self.tokens.values())

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def is_control(self) -> bool:
        """A positive control: its engine has a fault planted on purpose."""
        return CONTROL in self.row.variant

    @property
    def versions(self) -> dict[str, str]:
        found = self.row.environment.get("versions")
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}

    @property
    def planted(self) -> str | None:
        """The fault that was planted in this arm's engine on purpose, as its environment says it."""
        return planted_in(self.row.environment)

    @property
    def is_clean(self) -> bool:
        return not self.row.is_baseline and not self.corrupt and self.row.verdict == Verdict.PASS

    @property
    def project(self) -> str:
        """Whose engine this is: "vllm" or "vllm-ascend"."""
        plugin = {"vllm_ascend", "vllm-ascend", "torch_npu", "torch-npu"} & set(self.versions)
        return "vllm-ascend" if plugin or self.row.backend == "ascend" else "vllm"


@dataclass(frozen=True, slots=True)
class FindingCase:
    """A finding with both streams, where they were stored."""

    row: FindingRow
    triage: Triage
    request: RequestRow | None
    baseline: CompletionRow | None
    candidate: CompletionRow | None

    @property
    def is_corrupt(self) -> bool:
        return self.row.severity == Severity.CORRUPT

    @property
    def why(self) -> str:
        return str(self.row.evidence.get("why", ""))

    @property
    def first_divergence(self) -> int | None:
        return self.candidate.first_divergence if self.candidate is not None else None


@dataclass(frozen=True)
class Case:
    """Everything a report may say. `findings` are the worst first; `chosen` is what it is about."""

    run: RunRow
    arms: Sequence[ArmCase]
    findings: Sequence[FindingCase]
    total_findings: int
    chosen: FindingCase | None
    asked_for_finding: bool
    requests: Sequence[RequestRow]
    siblings: Sequence[tuple[RunRow, Mapping[str, str]]] = ()
    """Runs of the same plan, each with the engine versions of its arms: arm name to version."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """max_tokens of the requests that have one of their own."""
    notes: Sequence[str] = ()
    table: ExperimentTable | None = None

    @cached_property
    def tokens(self) -> TokenText:
        path = self.run.plan.get("model", {}).get("path")
        return TokenText(Path(path) if path else None)

    @property
    def baseline(self) -> ArmCase:
        return next(arm for arm in self.arms if arm.row.is_baseline)

    @property
    def candidates(self) -> list[ArmCase]:
        """The arms that are judged: neither the baseline nor a positive control."""
        return [arm for arm in self.arms if not arm.row.is_baseline and not arm.is_control]

    @property
    def controls(self) -> list[ArmCase]:
        return [arm for arm in self.arms if arm.is_control]

    def arm(self, name: str) -> ArmCase:
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def suspected(self) -> list[ArmCase]:
        """The arms that the report accuses: that of the finding asked for, or every one that diverged."""
        if self.asked_for_finding and self.chosen is not None:
            return [self.arm(self.chosen.row.arm)]
        return [arm for arm in self.candidates if arm.corrupt] or (
            [self.arm(self.chosen.row.arm)] if self.chosen is not None else []
        )

    @cached_property
    def suspect(self) -> Suspect | None:
        verdicts = {arm.name: Verdict(arm.row.verdict) for arm in self.candidates if arm.row.verdict in set(Verdict)}
        return triangulate(verdicts, self.run.baseline)

    @property
    def projects(self) -> list[str]:
        """Who should hear of it: vllm-ascend for its arms, vllm for all others, both where both diverge."""
        arms = self.suspected or self.candidates
        return sorted({arm.project for arm in arms}) or ["vllm"]

    @property
    def sampling(self) -> Mapping[str, Json]:
        found = self.run.plan.get("sampling")
        return found if isinstance(found, Mapping) else {}

    @property
    def tolerance(self) -> float | None:
        for arm in self.candidates or self.controls:
            value = arm.row.stats.get("tolerance")
            if isinstance(value, int | float):
                return float(value)
        return None

    def corrupt_findings(self) -> list[FindingCase]:
        return [finding for finding in self.findings if finding.is_corrupt]


def find_target(store: Store, target: str | None) -> tuple[str, FindingRow | None]:
    """What `target` names: a finding by number or fingerprint, or a run by id, its beginning, or None (newest).

    Raises ParityError where it names nothing, or both a finding and a run.
    """
    text = (target or "").strip()
    if not text:
        return store.run().id, None
    number = text.removeprefix("finding:")
    finding = store.finding(int(number)) if number.isdecimal() and len(number) < 19 else None
    if text.startswith("finding:"):
        if finding is None:
            raise ParityError(f"there is no finding {number} in {store.path}", hint="`parity runs show --json` has ids")
        return finding.run, finding
    runs = [run for run in store.runs() if run.id.startswith(text)] if finding is not None else []
    if finding is not None and runs:
        raise ParityError(
            f"{text} is the number of a finding and the beginning of run {runs[0].id}",
            hint=f"write finding:{text}, or more of the run's id",
        )
    if finding is None and len(text) >= 8 and all(char in "0123456789abcdef" for char in text):
        named = by_fingerprint(store, text)
        if len({row.fingerprint for row in named}) > 1:
            raise ParityError(f"{text} begins the fingerprint of several findings", hint="write more of it")
        if named:
            return named[0].run, named[0]
    if finding is not None:
        return finding.run, finding
    if number.isdecimal() and len(number) < 8 and not any(run.id.startswith(text) for run in store.runs()):
        raise ParityError(f"there is no finding {number} in {store.path}", hint="`parity runs show --json` has ids")
    return store.run(text).id, None


def build_case(store: Store, target: str | None, *, limit: int = MOST_FINDINGS) -> Case:
    """Gather what a report needs. Raises ParityError where `target` names nothing."""
    run_id, asked = find_target(store, target)
    run = store.run(run_id)
    rows = store.arms(run.id)
    arms = [_arm(store, run.id, row) for row in rows]
    if asked is not None:
        findings = [_finding(store, asked, run.baseline)]
    else:
        real = frozenset(arm.name for arm in arms if not arm.is_control)
        found = store.page_findings(run.id, FindingFilter(arms=real), sort=FindingSort.WORST, limit=limit)
        if not found:  # a run of nothing but controls is still worth showing
            found = store.page_findings(run.id, sort=FindingSort.WORST, limit=limit)
        findings = [_finding(store, row, run.baseline) for row in found]
    return Case(
        run=run,
        arms=arms,
        findings=findings,
        total_findings=1 if asked is not None else store.count_findings(run.id),
        chosen=_worst(findings),
        asked_for_finding=asked is not None,
        requests=store.requests(run.id),
        siblings=_siblings(store, run),
        limits=_limits(run),
        table=experiment(store, run.id),
        notes=[str(note) for row in rows for note in row.stats.get("notes", [])],
    )


def _arm(store: Store, run_id: str, row: ArmRow) -> ArmCase:
    where = FindingFilter(arms=frozenset({row.name}), severities=frozenset({str(Severity.CORRUPT)}))
    corrupt = {count.kind: count.findings for count in store.counts_by_kind(run_id, where)}
    classes = store.count_classes(run_id, row.name)
    keys = corrupt_keys(store, run_id, row.name)
    return ArmCase(row, classes, corrupt, sum(classes.values()), lengths(store, run_id, row.name), keys)


def _finding(store: Store, row: FindingRow, baseline: str) -> FindingCase:
    return FindingCase(
        row,
        store.triage(row.fingerprint),
        store.request(row.run, row.request),
        store.completion(row.run, baseline, row.key),
        store.completion(row.run, row.arm, row.key),
    )


def _worst(findings: Sequence[FindingCase]) -> FindingCase | None:
    """The corrupt finding with the widest gap and streams to show, else the widest near-tie."""

    def weight(finding: FindingCase) -> tuple[bool, bool, float]:
        shown = finding.candidate is not None and finding.row.position is not None
        return finding.is_corrupt, shown, finding.row.gap or 0.0

    return max(findings, key=weight, default=None)


def _limits(run: RunRow) -> dict[str, int]:
    """From the plan in the run's directory: the store keeps a request's tokens, not its own max_tokens."""
    path = Path(run.directory or "") / "plan.json"
    if not run.directory or not path.is_file():
        return {}
    try:
        requests = orjson.loads(path.read_bytes())["requests"]
        return {one["id"]: one["max_tokens"] for one in requests if isinstance(one.get("max_tokens"), int)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParityError(f"cannot read the plan {path}: {error}", hint="put it back, or run the plan again") from error


def _siblings(store: Store, run: RunRow) -> list[tuple[RunRow, Mapping[str, str]]]:
    same = [other for other in store.runs(limit=500) if other.plan_hash == run.plan_hash and other.verdict]
    return [(other, {arm.name: _engine_version(arm) for arm in store.arms(other.id)}) for other in same]


def _engine_version(arm: ArmRow) -> str:
    versions = arm.environment.get("versions")
    if not isinstance(versions, Mapping):
        return "unknown"
    names = [name for name in ("vllm", "vllm_ascend", "vllm-ascend") if name in versions]
    return ", ".join(f"{name} {versions[name]}" for name in names) or "unknown"


def divergence(finding: FindingCase) -> int | None:
    """Where the streams part, from the streams themselves."""
    if finding.baseline is None or finding.candidate is None:
        return None
    return _first_difference(finding.baseline.token_ids, finding.candidate.token_ids)


def _first_difference(a: TokenIds, b: TokenIds) -> int | None:
    shared = min(len(a), len(b))
    unequal = np.flatnonzero(a[:shared] != b[:shared])
    if len(unequal):
        return int(unequal[0])
    return None if len(a) == len(b) else shared


__all__ = ["MOST_FINDINGS", "ArmCase", "Case", "FindingCase", "Key", "build_case", "divergence", "find_target"]
