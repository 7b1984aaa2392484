"""The view of a stored run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parity.capture import read_capture, read_scores
from parity.capture.shards import is_there
from parity.capture.sketches import sketches_path
from parity.capture.steps import steps_path
from parity.comparator import Comparison
from parity.errors import ParityError
from parity.files import is_file
from parity.messages import message
from parity.paths import elsewhere
from parity.pipeline.analyse import analyse
from parity.plan import Arm
from parity.plan.checkpoint import shipped_checkpoint
from parity.plan.churn import Churn
from parity.records import DEFAULT_TOLERANCE, Capture, ScoreKey, Severity, TopLogprobs, evidence_from_json
from parity.records.objects import texts_of
from parity.store import ArmRow, FindingFilter, FindingRow, FindingSort, RunRow, Store
from parity.store.endings import Tally, classes, divergences, gaps, same_as_first_round, shortest, tally
from parity.view.arm import CONTROL, ArmView
from parity.view.evidence import Evidence, acceptance, acceptance_counted, of_comparisons
from parity.view.figures import figures_of
from parity.view.find import find_target
from parity.view.finding import FindingView, worst
from parity.view.run import MOST_FINDINGS, TEXT, WORST, Output, Run, RunView, Sibling
from parity.view.score_files import score_files
from parity.view.settings import told_apart

if TYPE_CHECKING:
    from parity.view.profile import Profiled
    from parity.view.why import Why


def of_store(store: Store, target: str | None = None, *, limit: int = MOST_FINDINGS) -> RunView:
    """The view of what `target` names: a finding by number or fingerprint, a run by its id or the beginning of that,
    or the newest run. It has at most `limit` findings, the worst first.

    Raises ParityError where `target` names nothing. The store must stay open while the view is drawn.
    """
    run_id, asked = find_target(store, target)
    row = store.run(run_id)
    arms, requests = store.arms(row.id), store.requests(row.id)
    if not arms:
        raise ParityError(
            message("view.no_arms", "the run {run} has no arms: there is nothing to show of it", run=row.id),
            hint=message("view.no_arms_check", "`parity runs check {run}` says what is wrong with it", run=row.id),
        )
    tallies = {arm.name: tally(store, row.id, arm.name) for arm in arms}
    run = _run(row, len({one.round for some in tallies.values() for one in some}), elsewhere(store.path))
    planned = {arm.name: arm for arm in row.plan.arms}
    configs = told_apart({arm.name: arm.engine for arm in arms})
    expected = len(requests) * (row.plan.rounds or 1) * run.samples if row.source == "run" else None
    rows = [asked] if asked is not None else _rows(store, row.id, arms, limit)
    findings = tuple(_finding(store, one, row.baseline) for one in rows)
    views = tuple(
        _arm(store, run, arm, configs[arm.name], planned.get(arm.name), expected, tallies[arm.name]) for arm in arms
    )
    return RunView(
        run=run,
        arms=views,
        findings=findings,
        total_findings=1 if asked is not None else store.count_findings(row.id),
        chosen=worst(findings),
        asked_for_finding=asked is not None,
        requests=tuple(requests),
        outputs=tuple(output for arm in arms for output in _outputs(store, arm)),
        siblings=tuple(_siblings(store, row)),
        read_evidence=lambda: _evidence(store, run, views),
        read_why=(lambda: _why(store, row.id, asked)) if any(map(_recorded, arms)) else tuple,
        read_profile=(lambda: _profile(store, row.id)) if sum(map(_sketched, arms)) > 1 else lambda: None,
        read_classes=lambda arm: classes(store, row.id, arm),
    )


def _recorded(arm: ArmRow) -> bool:
    return bool(arm.capture) and is_file(steps_path(Path(str(arm.capture))))


def _sketched(arm: ArmRow) -> bool:
    return bool(arm.capture) and is_file(sketches_path(Path(str(arm.capture))))


def _profile(store: Store, run: str) -> Profiled | None:
    from parity.view.profile import profiled

    try:
        return profiled(store, [run])
    except ParityError:
        return None


def _why(store: Store, run: str, asked: FindingRow | None) -> Sequence[Why]:
    """What cannot be read explains nothing: a report has the rest of it to say."""
    from parity.view.why import of_run

    try:
        return of_run(store, run, asked)
    except ParityError:
        return ()


def _rows(store: Store, run_id: str, arms: Sequence[ArmRow], limit: int) -> list[FindingRow]:
    """The worst first. Those of positive controls are no news: they are shown where there is nothing else."""
    real = frozenset(arm.name for arm in arms if CONTROL not in arm.variant)
    where = FindingFilter(arms=real)
    found = store.page_findings(run_id, where, limit=limit) or store.page_findings(run_id, limit=limit)
    if found and found[0].severity != Severity.CORRUPT:  # the widest near-tie may be beyond the limit
        widest = store.page_findings(run_id, where, sort=FindingSort.GAP, descending=True, limit=1)
        found = [*found, *(one for one in widest if one.id not in {known.id for known in found})]
    return found


def _run(row: RunRow, rounds: int, database: str) -> Run:
    """`rounds`: in which completions came; the plan of captures that are compared knows none."""
    plan = row.plan
    return Run(
        id=row.id,
        database=database,
        source=row.source,
        created=row.created,
        status=str(row.status),
        verdict=row.verdict,
        reasons=row.reasons,
        message=row.message,
        model=row.model,
        # A comparison of captures without --model knows no directory; only to show text.
        model_path=Path(plan.model.path) if plan.model.path else shipped_checkpoint(row.model),
        baseline=row.baseline,
        command=row.command,
        plan_hash=row.plan_hash,
        directory=row.directory,
        duration=row.duration,
        rounds=plan.rounds or max(1, rounds),
        samples=plan.sampling.n,
        sampling=plan.sampling.to_json(),
        churn=plan.churn.to_json() if plan.churn != Churn() else {},
        score_files=tuple(score_files(row)),
        skipped=tuple((one.arm, one.reason) for one in plan.skipped),
        score=plan.score.mode if row.source == "run" else None,
        tolerance=plan.tolerance if row.source == "run" else None,
        arbiter=None if plan.arbiter is None else plan.arbiter.backend,
    )


def _arm(
    store: Store,
    run: Run,
    row: ArmRow,
    config: str,
    planned: Arm | None,
    expected: int | None,
    counted: tuple[Tally, ...],
) -> ArmView:
    where = FindingFilter(arms=frozenset({row.name}), severities=frozenset({str(Severity.CORRUPT)}))
    needle: str | None = run.churn.get("needle")
    same, others = same_as_first_round(store, row.run, row.name, needle) if needle else (0, 0)
    return ArmView(
        name=row.name,
        backend=row.backend,
        variant=row.variant,
        is_baseline=row.is_baseline,
        control=planned.control if planned else None,
        status=row.status,
        message=row.message,
        capture=row.capture,
        config=config,
        planned=planned.engine if planned else {},
        variables=planned.env if planned else {},
        engine=row.engine,
        environment=row.environment,
        verdict=row.verdict,
        reasons=row.reasons,
        notes=row.notes,
        figures=figures_of(row.stats),
        stats={**row.stats, "notes": list(map(str, row.notes))} if row.stats else {},
        tally=counted,
        corrupt={one.kind: one.findings for one in store.counts_by_kind(row.run, where)},
        counters=row.counters or {},
        tokens_per_second=row.tokens_per_second,
        acceptance_rate=row.acceptance_rate,
        acceptance_length=row.acceptance_length,
        expected=expected,
        needle=(needle, same, others) if needle and others else None,
        next_steps=row.next_steps,
    )


def _finding(store: Store, row: FindingRow, baseline: str) -> FindingView:
    return FindingView(
        id=row.id,
        fingerprint=row.fingerprint,
        arm=row.arm,
        key=row.key,
        kind=row.kind,
        severity=row.severity,
        position=row.position,
        length=row.length,
        gap=row.gap,
        evidence=evidence_from_json(row.kind, row.request, row.evidence),
        state=str(row.state),
        note=store.triage(row.fingerprint).note,
        asked=store.request(row.run, row.request),
        baseline=store.completion(row.run, baseline, row.key),
        candidate=store.completion(row.run, row.arm, row.key),
    )


def _outputs(store: Store, arm: ArmRow) -> Iterator[Output]:
    corrupt = shortest(store, arm.run, arm.name, corrupt=True, limit=WORST)
    for one in corrupt or shortest(store, arm.run, arm.name, corrupt=False, limit=1):
        text = None if one.text is None else one.text[:TEXT]
        yield Output(arm.name, *one.key, one.n_tokens, one.finish_reason, bool(corrupt), text)


def _siblings(store: Store, run: RunRow) -> Iterator[Sibling]:
    for other in store.runs(limit=500):
        if other.plan_hash == run.plan_hash and other.verdict:
            yield Sibling(other.id, other.verdict, {arm.name: _engine_version(arm) for arm in store.arms(other.id)})


def _engine_version(arm: ArmRow) -> str:
    versions = texts_of(arm.environment.get("versions"))
    names = [name for name in ("vllm", "vllm_ascend", "vllm-ascend") if name in versions]
    return ", ".join(f"{name} {versions[name]}" for name in names) or "unknown"


def _evidence(store: Store, run: Run, arms: Sequence[ArmView]) -> Evidence:
    """As the comparison found it, from the store. A parity that kept no gaps stored older runs: their captures are
    compared again. What is gone is left out and said."""
    captures = _Captures(arms)
    found = {arm.name: gaps(store, run.id, arm.name) for arm in arms}
    if not any(found.values()):
        return _compared_again(run, arms, captures)
    acceptance = {arm.name: acceptance_counted(arm.counters) or captures.acceptance(arm) for arm in arms}
    return Evidence(
        gaps={arm: one for arm, one in found.items() if one},
        divergences={arm.name: divergences(store, run.id, arm.name) for arm in arms if not arm.is_baseline},
        lengths={arm.name: [one.n_tokens for one in arm.tally for _ in range(one.completions)] for arm in arms},
        acceptance={arm: rates for arm, rates in acceptance.items() if rates},
        missing=tuple(captures.missing),
    )


class _Captures:
    """The captures of a run that are still there and can be read; what is `missing`, in words."""

    def __init__(self, arms: Sequence[ArmView]) -> None:
        self._paths = {arm.name: arm.capture for arm in arms}
        self.missing: list[str] = []

    def read(self, arm: str) -> Capture | None:
        path = self._paths[arm]
        try:
            if not path or not is_there(Path(path)):
                raise ParityError(message("view.capture_not_there", "the capture of {arm} is not there", arm=arm))
            return read_capture(Path(path), partial=True)
        except ParityError as error:
            self.missing.append(str(error))
            return None

    def acceptance(self, arm: ArmView) -> list[float]:
        """From the traces of its completions, where its engine speculated."""
        capture = self.read(arm.name) if arm.acceptance_rate is not None else None
        return [] if capture is None else acceptance(capture)


def _compared_again(run: Run, arms: Sequence[ArmView], files: _Captures) -> Evidence:
    captures = {arm.name: capture for arm in arms if (capture := files.read(arm.name)) is not None}
    scores: dict[ScoreKey, TopLogprobs] = {}
    try:
        for file in run.score_files:
            scores.update(read_scores(file))
    except ParityError as error:
        files.missing.append(str(error))
    baseline = captures.get(run.baseline)
    compared: dict[str, Comparison] = {}
    for arm in arms:
        if baseline is not None and arm.name in captures and not arm.is_baseline:
            known = arm.figures.tolerance
            tolerance = DEFAULT_TOLERANCE if known is None else known
            compared[arm.name] = analyse(baseline, captures[arm.name], scores, tolerance=tolerance, model=None)
    return of_comparisons(captures.values(), compared, tuple(files.missing))
