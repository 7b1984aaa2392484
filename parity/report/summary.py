"""What a person is told about a run, as data: from the store, or straight from a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.comparator import Comparison
from parity.records import Capture, Json, Key, Severity, TokenIds
from parity.store import FindingFilter, FindingSort, Store

EXAMPLES = 3
"""Worst findings shown."""


@dataclass(frozen=True, slots=True)
class ArmLine:
    """One row of the table. `classes` counts completions by class, `corrupt` findings by kind."""

    name: str
    is_baseline: bool
    completions: int
    classes: Mapping[str, int] = field(default_factory=dict)
    corrupt: Mapping[str, int] = field(default_factory=dict)
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    tokens_per_second: float | None = None
    message: str | None = None
    planted: str | None = None
    """The fault that was planted in its engine on purpose."""


@dataclass(frozen=True, slots=True)
class Example:
    """A finding with what it takes to show it: the prompt and both token streams."""

    arm: str
    key: Key
    kind: str
    severity: str
    position: int | None
    length: int | None
    evidence: Mapping[str, Json]
    prompt: str | None
    baseline_tokens: TokenIds | None
    candidate_tokens: TokenIds | None
    first_divergence: int | None
    finding: int | None = None
    """Its number in the store, for `parity report` and `parity reduce`."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything the terminal shows. `missed` maps an arm to the fault rate (per completion, 95 %) that
    its comparison cannot exclude."""

    baseline: str
    verdict: str | None
    reasons: Sequence[str]
    arms: Sequence[ArmLine]
    examples: Sequence[Example]
    findings: int
    missed: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    run: str | None = None
    status: str | None = None
    message: str | None = None
    model: str = ""
    model_path: Path | None = None
    directory: str | None = None
    duration: float | None = None
    created: str | None = None
    rounds: int = 1


CONTROL = "-control-"
"""In the variant of an arm whose engine has a fault planted on purpose: its findings are no news."""


def planted_in(environment: Mapping[str, Json]) -> str | None:
    """The fault planted in an engine with this environment, as its variable names it."""
    variables = environment.get("variables")
    about = {**environment, **(variables if isinstance(variables, Mapping) else {})}
    fault = str(about.get("PARITY_FAULT") or "none")
    return None if fault.partition(":")[0] == "none" else fault


def from_store(store: Store, run_id: str) -> Summary:
    """The summary of a stored run. Raises ParityError where there is no such run."""
    run = store.run(run_id)
    arms = store.arms(run.id)
    kinds: dict[str, dict[str, int]] = {}
    for arm in arms:
        where = FindingFilter(arms=frozenset({arm.name}), severities=frozenset({"corrupt"}))
        kinds[arm.name] = {count.kind: count.findings for count in store.counts_by_kind(run.id, where)}
    lines = [
        ArmLine(
            arm.name,
            arm.is_baseline,
            sum(classes.values()),
            classes,
            kinds[arm.name],
            arm.acceptance_rate,
            arm.acceptance_length,
            arm.tokens_per_second,
            arm.message,
            planted_in(arm.environment),
        )
        for arm in arms
        for classes in (store.count_classes(run.id, arm.name),)
    ]
    path = run.plan.get("model", {}).get("path")
    rounds = run.plan.get("rounds")
    candidates = [arm for arm in arms if not arm.is_baseline]
    return Summary(
        baseline=run.baseline,
        verdict=run.verdict,
        reasons=run.reasons,
        arms=lines,
        examples=_stored_examples(store, run.id, run.baseline),
        findings=store.count_findings(run.id),
        missed=_missed({arm.name: arm.stats for arm in candidates}),
        notes=_notes({arm.name: arm.stats.get("notes", []) for arm in candidates}),
        run=run.id,
        status=str(run.status),
        message=run.message,
        model=run.model,
        model_path=Path(path) if path else None,
        directory=run.directory,
        duration=run.duration,
        created=run.created,
        rounds=rounds if isinstance(rounds, int) else 1,
    )


def _stored_examples(store: Store, run_id: str, baseline: str) -> list[Example]:
    real = frozenset(arm.name for arm in store.arms(run_id) if CONTROL not in arm.variant)
    rows = store.page_findings(run_id, FindingFilter(arms=real, severities=frozenset({"corrupt"})), limit=200)
    if not rows:
        rows = store.page_findings(run_id, FindingFilter(arms=real), sort=FindingSort.GAP, descending=True, limit=1)
    examples = []
    for row in _pick(rows):
        request = store.request(run_id, row.request)
        ours = store.completion(run_id, row.arm, row.key)
        theirs = store.completion(run_id, baseline, row.key)
        examples.append(
            Example(
                row.arm,
                row.key,
                row.kind,
                row.severity,
                row.position,
                row.length,
                row.evidence,
                request.prompt if request else None,
                theirs.token_ids if theirs else None,
                ours.token_ids if ours else None,
                ours.first_divergence if ours else None,
                row.id,
            )
        )
    return examples


def from_comparison(
    baseline: Capture,
    candidate: Capture,
    comparison: Comparison,
    divergences: Mapping[Key, int],
    results: Mapping[str, Any],
    model_path: Path | None,
) -> Summary:
    """The summary of a comparison of two captures; `results` maps arms to their `ArmResult`."""
    name = candidate.header.arm
    corrupt = Counter(str(f.kind) for f in comparison.findings if f.severity is Severity.CORRUPT)
    classes = Counter(str(cls) for cls in comparison.classes.values())
    lines = [
        ArmLine(
            arm,
            capture is baseline,
            len(capture.completions),
            {} if capture is baseline else dict(classes),
            {} if capture is baseline else dict(corrupt),
            results[arm].acceptance_rate,
            results[arm].acceptance_length,
            results[arm].tokens_per_second,
            planted=planted_in(capture.header.environment),
        )
        for arm, capture in ((baseline.header.arm, baseline), (name, candidate))
    ]
    worst = [f for f in comparison.findings if f.severity is Severity.CORRUPT] or sorted(
        comparison.findings, key=lambda f: -_number(f.evidence.get("gap"))
    )[:1]
    examples = []
    for finding in _pick(worst):
        ours = candidate.completions.get(finding.key)
        theirs = baseline.completions.get(finding.key)
        examples.append(
            Example(
                finding.arm,
                finding.key,
                str(finding.kind),
                str(finding.severity),
                finding.position,
                finding.length,
                finding.evidence,
                None,
                theirs.token_ids if theirs else None,
                ours.token_ids if ours else None,
                divergences.get(finding.key),
            )
        )
    return Summary(
        baseline=baseline.header.arm,
        verdict=str(comparison.verdict),
        reasons=comparison.reasons,
        arms=lines,
        examples=examples,
        findings=len(comparison.findings),
        missed=_missed({name: comparison.stats}),
        notes=comparison.notes,
        model=baseline.header.model,
        model_path=model_path,
    )


def _pick(findings: Sequence[Any]) -> list[Any]:
    """At most EXAMPLES, of as many kinds as there are, in order."""
    first_of_kind: dict[str, Any] = {}
    for finding in findings:
        first_of_kind.setdefault(str(finding.kind), finding)
    chosen = list(first_of_kind.values())
    rest = [finding for finding in findings if all(finding is not one for one in chosen)]
    return [*chosen, *rest][:EXAMPLES]


def _missed(stats: Mapping[str, Mapping[str, Json]]) -> dict[str, float]:
    return {
        arm: float(bound)
        for arm, values in stats.items()
        if isinstance(bound := values.get("fault_rate_not_excluded"), int | float)
    }


def _notes(notes: Mapping[str, Sequence[str]]) -> list[str]:
    several = len(notes) > 1
    return [f"{arm}: {note}" if several else note for arm, lines in notes.items() for note in lines]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else -1.0
