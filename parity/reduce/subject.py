"""What is to be narrowed down: a finding of the store, an arm of a run, or a plan file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from parity.errors import ParityError
from parity.explain.experiments import suspected_settings
from parity.messages import Message, message, verbatim
from parity.paths import data_dir
from parity.pipeline.directory import RunDirectory
from parity.plan import DEFAULT_TOLERANCE, Arm, Plan
from parity.records import RUN, Json
from parity.records.evidence import LeakEvidence
from parity.reduce.case import Case, Setup, reference_of
from parity.run.checkout import checkout, runs_it

if TYPE_CHECKING:
    from parity.store import FindingRow, RunRow, Store

CORRUPT = "corrupt"

MOST = 1000
"""Findings that are looked at, the worst first."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan and the arm in it that fails. `first`: requests that are likely to be part of it, the likeliest first."""

    name: Message
    """In words: "finding 12 of run 20261121-…"."""
    plan: Plan
    arm: Arm
    first: tuple[str, ...]
    kind: str | None
    """Of the finding."""
    tolerance: float
    """Nats: the run's own, where it was calibrated."""
    run: RunDirectory | None = None
    """Of the run, which says where its backends were; None for a plan file."""
    conditions: tuple[str, ...] = ()
    """What the run's recorded steps suspect beyond doubt (`parity.explain.predicates`), the likeliest first."""

    @property
    def suspected(self) -> tuple[str, ...]:
        """Settings that would remove these conditions."""
        return suspected_settings(self.conditions)

    @property
    def case(self) -> Case:
        return Case(self.plan.requests, self.plan.sampling, self.plan.churn)

    @property
    def setup(self) -> Setup:
        return Setup(replace(self.arm, control=None), reference_of(self.plan.arm(self.plan.baseline)))

    def directory(self, what: str) -> Path:
        """Where a search about this keeps its notebook, unless the user names another place."""
        given = checkout() if runs_it(self.arm.backend) else None
        about = [what, self.plan.to_json(), self.arm.name, self.first[:1], *([str(given)] if given else [])]
        digest = hashlib.sha256(orjson.dumps(about, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
        return data_dir() / "reductions" / digest


def from_finding(store: Store, finding: FindingRow) -> Subject:
    """The subject of a stored finding. Raises ParityError where its run cannot be run again."""
    if finding.severity != CORRUPT:
        raise ParityError(
            message(
                "reduce.finding_nothing_fails",
                "finding {finding} is {severity} ({kind}): nothing fails there",
                finding=finding.id,
                severity=finding.severity,
                kind=finding.kind,
            ),
            hint=message("reduce.lists_corrupt_ones", "`parity runs show` lists the corrupt ones"),
        )
    first = (finding.request, *_donors(finding))
    return _subject(
        store,
        store.run(finding.run),
        finding.arm,
        first,
        finding.kind,
        message("reduce.subject.finding", "finding {finding} of run {run}", finding=finding.id, run=finding.run),
    )


def from_run(store: Store, run_id: str | None, arm: str | None = None, request: str | None = None) -> Subject:
    """The arm of a run that has corrupt findings, or the one named. Raises ParityError where nothing fails."""
    run = store.run(run_id)
    if arm is not None:
        find_arm(run.plan, arm)
    controls = frozenset(one.name for one in run.plan.arms if one.control)
    looked_for = frozenset(one.name for one in run.plan.arms) - controls
    rows: list[FindingRow] = []
    for arms in [frozenset({arm})] if arm is not None else [looked_for, controls]:  # a control's fault is known
        rows = rows or (_corrupt(store, run.id, arms, request) if arms else [])
    if not rows:
        of = message("reduce.of_arm", " of {arm}", arm=arm) if arm else ""
        about = message("reduce.about_request", " about {request}", request=request) if request else ""
        raise ParityError(
            message(
                "reduce.run_no_corrupt",
                "run {run} has no corrupt findings{of}{about}",
                run=run.id,
                of=of,
                about=about,
            ),
            hint=message("reduce.shows_runs_their", "`parity runs list` shows the runs and their verdicts"),
        )
    mine = [row for row in rows if row.arm == rows[0].arm]
    first = dict.fromkeys([row.request for row in mine] + [name for row in mine for name in _donors(row)])
    name = message("reduce.subject.arm", "{arm} of run {run}", arm=rows[0].arm, run=run.id)
    return _subject(store, run, rows[0].arm, tuple(first), rows[0].kind, name)


def _corrupt(store: Store, run: str, arms: frozenset[str], request: str | None) -> list[FindingRow]:
    """The worst corrupt findings of these arms that name a completion, all of one request where it is named."""
    from parity.store import FindingFilter

    where = FindingFilter(severities=frozenset({CORRUPT}), arms=arms, text=request or "")
    rows = store.page_findings(run, where, limit=MOST)
    return [row for row in rows if row.request != RUN and request in (None, row.request)]


def from_plan(plan: Plan, source: Path, arm: str | None = None) -> Subject:
    """The candidate of a plan file, or the arm named. Raises ParityError where that leaves a choice."""
    names = [candidate.name for candidate in plan.candidates]
    if arm is None and len(names) > 1:
        raise ParityError(
            message("reduce.candidates", "{source} has the candidates {names}", source=str(source), names=names),
            hint=message("reduce.name_one_them", "name one of them with --arm"),
        )
    return Subject(verbatim(str(source)), plan, find_arm(plan, arm or names[0]), (), None, _tolerance(plan, None))


def find_arm(plan: Plan, name: str) -> Arm:
    """Raises ParityError naming those there are."""
    try:
        return plan.arm(name)
    except KeyError:
        known = ", ".join(arm.name for arm in plan.arms)
        raise ParityError(
            message("reduce.plan_no_arm", "the plan has no arm {name!r}", name=name),
            hint=message("reduce.it_has", "it has {known}", known=known),
        ) from None


def _donors(finding: FindingRow) -> tuple[str, ...]:
    """The request whose tokens leaked."""
    facts = finding.facts
    return (facts.donor_request,) if isinstance(facts, LeakEvidence) else ()


def _subject(store: Store, run: RunRow, arm: str, first: tuple[str, ...], kind: str | None, name: Message) -> Subject:
    if run.source != "run" or not run.directory:
        raise ParityError(
            message(
                "reduce.run_compares_captures",
                "run {run} compares captures from elsewhere: there is no plan to run again",
                run=run.id,
            ),
            hint=message(
                "reduce.run_plan_here",
                "run the plan here with `parity run --plan FILE`, and reduce a finding of that run",
            ),
        )
    directory = RunDirectory.open(Path(run.directory))
    plan = directory.plan()
    stats = next((row.stats for row in store.arms(run.id) if row.name == arm), {}) or {}
    return Subject(
        name,
        plan,
        find_arm(plan, arm),
        first,
        kind,
        _tolerance(plan, stats.get("tolerance")),
        directory,
        _conditions(store, run.id, arm),
    )


def _conditions(store: Store, run: str, arm: str) -> tuple[str, ...]:
    """From the recorded steps of the arm, where they leave no doubt about a condition; a damaged file says nothing."""
    from parity.view.why import of_run

    try:
        found = of_run(store, run, arm=arm)
    except ParityError:
        return ()
    return tuple(dict.fromkeys(name for one in found if one.associated.sure for name in one.suspected))


def _tolerance(plan: Plan, measured: Json) -> float:
    """The plan's; where that is "auto", what the run measured, else the default."""
    if not isinstance(plan.tolerance, str):
        return float(plan.tolerance)
    if isinstance(measured, int | float) and not isinstance(measured, bool):
        return float(measured)
    return DEFAULT_TOLERANCE
